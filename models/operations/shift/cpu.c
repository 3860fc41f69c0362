// A token mixed with the one before, and the square of what is positive: models/scans/token_shift.py.
//
//   y_t = x_t + (x_{t-1} - x_t) m_t        d x_t = (1 - m_t) d y_t + m_{t+1} d y_{t+1}        d m_t = (x_{t-1} - x_t) d y_t
//
// Of strings with `last` before their first token. Shares m are one row for each replica, or one for each token.

#include "_native.h"

typedef struct {
  int64_t replicas, strings, length, width;
  int64_t whole;  // m of each token
  int64_t adds;   // to what d x and d last hold
} Sizes;

void shift_forward(const real *restrict x, const real *restrict last, const real *restrict m, real *restrict y,
                   const Sizes *at) {
  const int64_t width = at->width, down = at->whole ? width : 0;
  for (int64_t n = 0; n < at->replicas * at->strings; n++) {
    const real *before = last + n * width, *shares = at->whole ? m + n * at->length * width : m + n / at->strings * width;
    for (int64_t t = 0; t < at->length; t++) {
      const real *restrict x_t = x + (n * at->length + t) * width, *restrict m_t = shares + t * down;
      real *restrict y_t = y + (n * at->length + t) * width;
      SIMD for (int64_t e = 0; e < width; e++) y_t[e] = x_t[e] + (before[e] - x_t[e]) * m_t[e];
      before = x_t;
    }
  }
}

void shift_backward(const real *restrict x, const real *restrict last, const real *restrict m, const real *restrict d_y,
                    real *restrict d_x, real *restrict d_last, real *restrict d_m, const Sizes *at) {
  const int64_t width = at->width, down = at->whole ? width : 0, kept = at->adds ? 1 : 0;
  for (int64_t n = 0; n < at->replicas * at->strings; n++) {
    const int64_t from = at->whole ? n * at->length * width : n / at->strings * width, first = n * at->length * width;
    real *restrict of_last = d_last + n * width;
    for (int64_t e = 0; e < width && !kept; e++) of_last[e] = 0;
    if (at->length) SIMD for (int64_t e = 0; e < width; e++) of_last[e] += m[from + e] * d_y[first + e];
    for (int64_t t = 0; t < at->length; t++) {
      const real *restrict x_t = x + first + t * width, *restrict d_t = d_y + first + t * width;
      const real *restrict m_t = m + from + t * down, *restrict before = t ? x_t - width : last + n * width;
      real *restrict of_x = d_x + first + t * width, *restrict of_m = d_m + from + t * down;
      if (!kept) memset(of_x, 0, width * sizeof(real));
      SIMD for (int64_t e = 0; e < width; e++) of_x[e] += (1 - m_t[e]) * d_t[e];
      if (t + 1 < at->length) SIMD for (int64_t e = 0; e < width; e++) of_x[e] += m_t[down + e] * d_t[width + e];
      if (at->whole)
        SIMD for (int64_t e = 0; e < width; e++) of_m[e] = (before[e] - x_t[e]) * d_t[e];
      else
        SIMD for (int64_t e = 0; e < width; e++) of_m[e] += (before[e] - x_t[e]) * d_t[e];
    }
  }
}

void square_forward(const real *restrict x, real *restrict y, const int64_t *count) {
  SIMD for (int64_t i = 0; i < *count; i++) y[i] = x[i] > 0 ? x[i] * x[i] : 0;
}

void square_backward(const real *restrict x, const real *restrict d_y, real *restrict d_x, const int64_t *count) {
  SIMD for (int64_t i = 0; i < *count; i++) d_x[i] = x[i] > 0 ? 2 * x[i] * d_y[i] : 0;
}
