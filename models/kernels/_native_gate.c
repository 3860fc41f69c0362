// y silu(z) of rows, and its way back: models/layers/gate.py.
//
// Rows of y and z are `y_apart` and `z_apart` numbers from one another, those of their gradients `d_apart`: both may be
// halves of one row.

#include "_native.h"

typedef struct {
  int64_t rows, width, y_apart, z_apart, d_apart;
} Sizes;

void gate_forward(const real *restrict y, const real *restrict z, real *restrict out, const Sizes *at) {
  for (int64_t row = 0; row < at->rows; row++) {
    const real *restrict y_r = y + row * at->y_apart, *restrict z_r = z + row * at->z_apart;
    real *restrict out_r = out + row * at->width;
    SIMD for (int64_t e = 0; e < at->width; e++) out_r[e] = y_r[e] * z_r[e] * gate_of(z_r[e]);
  }
}

void gate_backward(const real *restrict y, const real *restrict z, const real *restrict d_out, real *restrict d_y,
                   real *restrict d_z, const Sizes *at) {
  for (int64_t row = 0; row < at->rows; row++) {
    const real *restrict y_r = y + row * at->y_apart, *restrict z_r = z + row * at->z_apart;
    const real *restrict d_r = d_out + row * at->width;
    real *restrict d_y_r = d_y + row * at->d_apart, *restrict d_z_r = d_z + row * at->d_apart;
    SIMD for (int64_t e = 0; e < at->width; e++) {
      const real s = gate_of(z_r[e]), of_s = d_r[e] * s;
      d_y_r[e] = of_s * z_r[e];
      d_z_r[e] = of_s * y_r[e] * (1 + z_r[e] * (1 - s));
    }
  }
}
