// The recurrence of SLiCE and its way back: models/scans/block_steps.py has the equations.
//
// c is [B, L, H, K, K], b and h [B, L, H, K], the state before the first token [B, H, K]. Blocks are too small to fill
// vectors one by one: of as many rows and columns as models have by default they make straight lines.

#include "_native.h"

typedef struct {
  int64_t rows, length, heads, block, steps;
} Sizes;

ALWAYS void forward_of(const int64_t K, const real *restrict c, const real *restrict b, const real *restrict first,
                       real *restrict h, const Sizes *at) {
  const int64_t width = at->heads * K;
  const real part = 1 / (real)at->steps;
  for (int64_t row = 0; row < at->rows; row++)
    for (int64_t t = 0; t < at->length; t++) {
      const int64_t now = row * at->length + t;
      const real *restrict before = t ? h + (now - 1) * width : first + row * width;
      const real *restrict c_t = c + now * width * K, *restrict b_t = b + now * width;
      real *restrict h_t = h + now * width;
      for (int64_t head = 0; head < width; head += K)
        for (int64_t i = 0; i < K; i++) {
          const real *restrict row_of = c_t + (head + i) * K;
          real sum = 0;
          for (int64_t j = 0; j < K; j++) sum += row_of[j] * before[head + j];
          h_t[head + i] = before[head + i] + part * sum + b_t[head + i];
        }
    }
}

// `g`, which comes as the gradient of the last state, leaves as that of the first; d_c and d_b are written.
ALWAYS void backward_of(const int64_t K, const real *restrict c, const real *restrict first, const real *restrict h,
                        const real *restrict d_h, real *restrict d_c, real *restrict d_b, real *restrict g,
                        const Sizes *at) {
  const int64_t width = at->heads * K;
  const real part = 1 / (real)at->steps;
  for (int64_t row = 0; row < at->rows; row++) {
    real *restrict g_row = g + row * width;
    for (int64_t t = at->length - 1; t >= 0; t--) {
      const int64_t now = row * at->length + t;
      const real *restrict before = t ? h + (now - 1) * width : first + row * width;
      const real *restrict c_t = c + now * width * K, *restrict d_h_t = d_h + now * width;
      real *restrict d_c_t = d_c + now * width * K, *restrict g_t = d_b + now * width;
      SIMD for (int64_t i = 0; i < width; i++) g_t[i] = g_row[i] + d_h_t[i];
      for (int64_t head = 0; head < width; head += K) {
        real back[K];
        for (int64_t j = 0; j < K; j++) back[j] = 0;
        for (int64_t i = 0; i < K; i++) {
          const real own = g_t[head + i], share = part * own;
          const real *restrict row_of = c_t + (head + i) * K;
          real *restrict d_row = d_c_t + (head + i) * K;
          for (int64_t j = 0; j < K; j++) {
            back[j] += share * row_of[j];
            d_row[j] = share * before[head + j];
          }
        }
        for (int64_t j = 0; j < K; j++) g_row[head + j] = g_t[head + j] + back[j];
      }
    }
  }
}

#define BY_BLOCK(act, ...)           \
  if (at->block == 4)                \
    act(4, __VA_ARGS__, at);         \
  else if (at->block == 1)           \
    act(1, __VA_ARGS__, at);         \
  else                               \
    act(at->block, __VA_ARGS__, at);

void block_steps_forward(const real *restrict c, const real *restrict b, const real *restrict first, real *restrict h,
                         const Sizes *at) {
  BY_BLOCK(forward_of, c, b, first, h)
}

void block_steps_backward(const real *restrict c, const real *restrict first, const real *restrict h,
                          const real *restrict d_h, real *restrict d_c, real *restrict d_b, real *restrict g,
                          const Sizes *at) {
  BY_BLOCK(backward_of, c, first, h, d_h, d_c, d_b, g)
}
