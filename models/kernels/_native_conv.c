// A short causal convolution, one filter a channel, from the start, and its way back: models/_convolution.py.
//
// x and y are [R, B, L, E], weights [R, W, E], biases [R, E].

#include "_native.h"

typedef struct {
  int64_t replicas, batch, length, channels, taps;
} Sizes;

void conv_forward(const real *restrict x, const real *restrict weight, const real *restrict bias, real *restrict y,
                  const Sizes *at) {
  const int64_t channels = at->channels, taps = at->taps;
  for (int64_t row = 0; row < at->replicas * at->batch; row++) {
    const real *restrict weight_r = weight + row / at->batch * taps * channels;
    const real *restrict bias_r = bias + row / at->batch * channels;
    for (int64_t t = 0; t < at->length; t++) {
      const int64_t now = (row * at->length + t) * channels;
      memcpy(y + now, bias_r, channels * sizeof(real));
      for (int64_t lag = 0; lag < taps && lag <= t; lag++) {
        const real *restrict tap = weight_r + (taps - 1 - lag) * channels, *restrict before = x + now - lag * channels;
        SIMD for (int64_t e = 0; e < channels; e++) y[now + e] += tap[e] * before[e];
      }
    }
  }
}

// d_x is written, d_weight and d_bias are added to.
void conv_backward(const real *restrict d_y, const real *restrict x, const real *restrict weight, real *restrict d_x,
                   real *restrict d_weight, real *restrict d_bias, const Sizes *at) {
  const int64_t channels = at->channels, taps = at->taps, length = at->length;
  real *restrict of_weight = malloc((taps + 1) * channels * sizeof(real)), *restrict of_bias = of_weight + taps * channels;
  for (int64_t row = 0; row < at->replicas * at->batch; row++) {
    const int64_t replica = row / at->batch;
    const real *restrict weight_r = weight + replica * taps * channels;
    memset(of_weight, 0, (taps + 1) * channels * sizeof(real));
    memset(d_x + row * length * channels, 0, length * channels * sizeof(real));
    for (int64_t t = 0; t < length; t++) {
      const int64_t now = (row * length + t) * channels;
      SIMD for (int64_t e = 0; e < channels; e++) of_bias[e] += d_y[now + e];
      for (int64_t lag = 0; lag < taps && lag <= t; lag++) {
        const int64_t tap = (taps - 1 - lag) * channels, before = now - lag * channels;
        SIMD for (int64_t e = 0; e < channels; e++) {
          d_x[before + e] += d_y[now + e] * weight_r[tap + e];
          of_weight[tap + e] += d_y[now + e] * x[before + e];
        }
      }
    }
    SIMD for (int64_t i = 0; i < taps * channels; i++) d_weight[replica * taps * channels + i] += of_weight[i];
    SIMD for (int64_t e = 0; e < channels; e++) d_bias[replica * channels + e] += of_bias[e];
  }
  free(of_weight);
}
