// RMSNorm of rows, and its way back: models/layers/norm.py.
//
// x is [R, N, D], weights [R, D], and `scale` [R, N] keeps 1 / sqrt(mean(x^2) + eps) of each row.

#include "_native.h"

typedef struct {
  int64_t replicas, rows, width;
} Sizes;

void norm_forward(const real *restrict x, const real *restrict weight, const real *restrict eps, real *restrict y,
                  real *restrict scale, const Sizes *at) {
  const int64_t width = at->width;
  for (int64_t row = 0; row < at->replicas * at->rows; row++) {
    const real *restrict x_r = x + row * width, *restrict weight_r = weight + row / at->rows * width;
    real *restrict y_r = y + row * width, squares = 0;
    _Pragma("omp simd reduction(+ : squares)") for (int64_t d = 0; d < width; d++) squares += x_r[d] * x_r[d];
    const real s = 1 / (real)sqrt(squares / width + *eps);
    SIMD for (int64_t d = 0; d < width; d++) y_r[d] = x_r[d] * s * weight_r[d];
    scale[row] = s;
  }
}

// d_x is written, d_weight [R, D] is added to, by sums of 64 rows: one of all would lose its last bits.
void norm_backward(const real *restrict x, const real *restrict weight, const real *restrict scale,
                   const real *restrict d_y, real *restrict d_x, real *restrict d_weight, const Sizes *at) {
  const int64_t width = at->width, together = 64;
  real *restrict sum = malloc(width * sizeof(real));
  for (int64_t replica = 0; replica < at->replicas; replica++) {
    const real *restrict weight_r = weight + replica * width;
    real *restrict d_weight_r = d_weight + replica * width;
    for (int64_t begin = 0; begin < at->rows; begin += together) {
      const int64_t end = begin + together < at->rows ? begin + together : at->rows;
      memset(sum, 0, width * sizeof(real));
      for (int64_t n = begin; n < end; n++) {
        const int64_t row = replica * at->rows + n;
        const real *restrict x_r = x + row * width, *restrict d_y_r = d_y + row * width, s = scale[row];
        real *restrict d_x_r = d_x + row * width, along = 0;
        _Pragma("omp simd reduction(+ : along)") for (int64_t d = 0; d < width; d++) {
          const real of_y = d_y_r[d] * x_r[d] * s;
          sum[d] += of_y;
          along += of_y * weight_r[d];
        }
        along *= s * s / width;
        SIMD for (int64_t d = 0; d < width; d++) d_x_r[d] = s * d_y_r[d] * weight_r[d] - along * x_r[d];
      }
      SIMD for (int64_t d = 0; d < width; d++) d_weight_r[d] += sum[d];
    }
  }
  free(sum);
}
