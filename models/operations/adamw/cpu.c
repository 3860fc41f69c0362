// A step of AdamW for R replicas of P weights, in one pass and in place: models/scans/adamw.py.
//
// Of each replica: whether it steps, the factors of gradient, of the means towards it and its square, the size of a move,
// the root of the square's correction, what is shrunk by, and epsilon.

#include "_native.h"

typedef struct {
  int64_t replicas, weights;
} Sizes;

enum { OK, SCALE, TO_MEAN, TO_SQUARE, SIZE, ROOT, SHRINK, EPS, SCALARS };

// As torch.lerp: exact at both ends.
ALWAYS real towards(real a, real b, real share) {
  return share < (real)0.5 ? a + share * (b - a) : b - (b - a) * (1 - share);
}

ALWAYS void step(const real *restrict gradient, real *restrict weight, real *restrict mean, real *restrict square,
                 const real *restrict decayed, const real *restrict multiplier, const real *restrict of, int64_t count) {
  const real scale = of[SCALE], to_mean = of[TO_MEAN], to_square = of[TO_SQUARE], size = of[SIZE], root = of[ROOT];
  const real shrink = of[SHRINK], eps = of[EPS];
  SIMD for (int64_t p = 0; p < count; p++) {
    const real g = gradient[p] * scale, m = towards(mean[p], g, to_mean), v = towards(square[p], g * g, to_square);
    const real root_v = sizeof(real) == 4 ? (real)sqrtf((float)v) : (real)sqrt((double)v);
    const real move = size * m / (root_v * root + eps) + shrink * decayed[p] * weight[p];
    mean[p] = m;
    square[p] = v;
    weight[p] -= multiplier ? move * multiplier[p] : move;
  }
}

void adamw(const real *restrict gradient, real *restrict weight, real *restrict mean, real *restrict square,
           const real *restrict decayed, const real *restrict multiplier, const real *restrict scalars,
           const Sizes *at) {
  for (int64_t r = 0; r < at->replicas; r++) {
    const real *of = scalars + r * SCALARS;
    const int64_t first = r * at->weights;
    if (of[OK] == 0) continue;  // what it must not take may be NaN
    if (multiplier)
      step(gradient + first, weight + first, mean + first, square + first, decayed, multiplier, of, at->weights);
    else
      step(gradient + first, weight + first, mean + first, square + first, decayed, 0, of, at->weights);
  }
}
