// y f(z) of rows, with f silu or gelu, and its way back: models/layers/gate.py.
//
// Rows of y and z are `y_apart` and `z_apart` numbers from one another, those of their gradients `d_apart`: both may be
// halves of one row.

#include "_native.h"

typedef struct {
  int64_t rows, width, y_apart, z_apart, d_apart, is_gelu;
} Sizes;

// The share of a normal distribution below -u, for u >= 0, in float to 1e-7 of 1: t/2 2^(s P(s) - u^2 / (2 log 2)) with
// t = 1/(1 + 0.45 u) and s = 1 - t; P was fitted here. In double it is the library's.
static inline real below(real u) {
  if (sizeof(real) != 4) return (real)(0.5 * erfc((double)u * 0.70710678118654752));
  const real t = 1 / (1 + (real)0.45 * u), s = 1 - t;
  real y = (real)2.595016360e-01;
  y = y * s + (real)-7.546174526e-01;
  y = y * s + (real)6.875841618e-01;
  y = y * s + (real)-3.042638004e-01;
  y = y * s + (real)2.448408604e-01;
  y = y * s + (real)1.084508672e-01;
  y = y * s + (real)-6.155919284e-02;
  y = y * s + (real)-5.423152447e-01;
  y = y * s + (real)-1.115312696;
  return (real)0.5 * t * exp2_of(s * y - (real)0.721347520 * u * u);
}

static inline real share_below(real z) {
  const real tail = below((real)fabs(z));
  return z > 0 ? 1 - tail : tail;
}

void gate_forward(const real *restrict y, const real *restrict z, real *restrict out, const Sizes *at) {
  for (int64_t row = 0; row < at->rows; row++) {
    const real *restrict y_r = y + row * at->y_apart, *restrict z_r = z + row * at->z_apart;
    real *restrict out_r = out + row * at->width;
    if (at->is_gelu)
      SIMD for (int64_t e = 0; e < at->width; e++) out_r[e] = y_r[e] * z_r[e] * share_below(z_r[e]);
    else
      SIMD for (int64_t e = 0; e < at->width; e++) out_r[e] = y_r[e] * z_r[e] * gate_of(z_r[e]);
  }
}

void gate_backward(const real *restrict y, const real *restrict z, const real *restrict d_out, real *restrict d_y,
                   real *restrict d_z, const Sizes *at) {
  for (int64_t row = 0; row < at->rows; row++) {
    const real *restrict y_r = y + row * at->y_apart, *restrict z_r = z + row * at->z_apart;
    const real *restrict d_r = d_out + row * at->width;
    real *restrict d_y_r = d_y + row * at->d_apart, *restrict d_z_r = d_z + row * at->d_apart;
    if (at->is_gelu) {
      SIMD for (int64_t e = 0; e < at->width; e++) {
        const real share = share_below(z_r[e]), density = (real)0.398942280401432678 * exp_of(-z_r[e] * z_r[e] / 2);
        d_y_r[e] = d_r[e] * z_r[e] * share;
        d_z_r[e] = d_r[e] * y_r[e] * (share + z_r[e] * density);
      }
    } else {
      SIMD for (int64_t e = 0; e < at->width; e++) {
        const real s = gate_of(z_r[e]), of_s = d_r[e] * s;
        d_y_r[e] = of_s * z_r[e];
        d_z_r[e] = of_s * y_r[e] * (1 + z_r[e] * (1 - s));
      }
    }
  }
}
