// What kernels over heads of attention share: their sizes, rows that are turned as they are read, and tiles.
//
// Heads are [B, L, H + 2 G, K], queries, keys and values behind each other, G heads of keys serving H of queries. A tile
// is sixteen queries, the lanes of vectors, one for each key that any of them sees: nothing is summed within a vector.

#include "_native.h"

typedef struct {
  int64_t rows, length, heads, key_heads, width, window;
  int64_t other;  // whether in the second of a kernel's two ways
} Sizes;

// A row of K numbers, times `scale`, turned by the angles of its token, or turned back.
static inline void turned(const real *restrict x, real *restrict found, const real *restrict turns, int64_t t,
                          real scale, int back, const Sizes *at) {
  const int64_t width = at->width, half = width / 2;
  if (!turns) {
    SIMD for (int64_t k = 0; k < width; k++) found[k] = scale * x[k];
    return;
  }
  const real *restrict c = turns + t * half, *restrict s = c + at->length * half;
  const real sign = back ? -scale : scale;
  SIMD for (int64_t k = 0; k < half; k++) {
    const real a = x[k], b = x[half + k];
    found[k] = scale * c[k] * a - sign * s[k] * b;
    found[half + k] = scale * c[k] * b + sign * s[k] * a;
  }
}

static inline int64_t place_of(int64_t row, int64_t t, int64_t head, const Sizes *at) {
  return ((row * at->length + t) * (at->heads + 2 * at->key_heads) + head) * at->width;
}

typedef struct {
  int64_t queries, from, to;
} Tile;

static Tile tile_at(int64_t t, const Sizes *at) {
  const int64_t left = at->length - t, queries = left < LANES ? left : LANES;
  return (Tile){queries, at->window && t >= at->window ? t + 1 - at->window : 0, t + queries};
}

// What is next to nothing is nothing: of numbers below the least normal one Intel's processors take far longer.
static inline void into_shares(lanes *restrict share, const lanes *restrict most) {
  SIMD for (int64_t i = 0; i < LANES; i++) {
    const real below = (*share)[i] - (*most)[i];
    (*share)[i] = below < -87 ? 0 : exp_of(below);
  }
}
