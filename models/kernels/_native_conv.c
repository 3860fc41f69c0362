// A short causal convolution, one filter a channel, from the start, with or without silu behind it, and its way back:
// models/layers/convolution.py.
//
// x and y are [R, B, L, E], weights [R, W, E], biases [R, E]. Positions of x are `apart` numbers from one another.

#include "_native.h"

typedef struct {
  int64_t replicas, batch, length, channels, taps;
  int64_t apart, silu;
} Sizes;

// The sum over taps at position t, of x from there on back.
static inline void convolve(const real *restrict x, const real *restrict weight, const real *restrict bias,
                            real *restrict y, int64_t t, const Sizes *at) {
  memcpy(y, bias, at->channels * sizeof(real));
  for (int64_t lag = 0; lag < at->taps && lag <= t; lag++) {
    const real *restrict tap = weight + (at->taps - 1 - lag) * at->channels, *restrict before = x - lag * at->apart;
    SIMD for (int64_t e = 0; e < at->channels; e++) y[e] += tap[e] * before[e];
  }
}

void conv_forward(const real *restrict x, const real *restrict weight, const real *restrict bias, real *restrict y,
                  const Sizes *at) {
  for (int64_t row = 0; row < at->replicas * at->batch; row++) {
    const int64_t replica = row / at->batch;
    const real *restrict weight_r = weight + replica * at->taps * at->channels;
    for (int64_t t = 0; t < at->length; t++) {
      const int64_t now = row * at->length + t;
      real *restrict y_t = y + now * at->channels;
      convolve(x + now * at->apart, weight_r, bias + replica * at->channels, y_t, t, at);
      if (at->silu) SIMD for (int64_t e = 0; e < at->channels; e++) y_t[e] *= gate_of(y_t[e]);
    }
  }
}

// d_x [R, B, L, E] is written, d_weight and d_bias are added to. What silu was of is found again.
void conv_backward(const real *restrict d_y, const real *restrict x, const real *restrict weight,
                   const real *restrict bias, real *restrict d_x, real *restrict d_weight, real *restrict d_bias,
                   const Sizes *at) {
  const int64_t channels = at->channels, taps = at->taps, length = at->length;
  real *restrict of_weight = malloc((taps + 2) * channels * sizeof(real)), *restrict of_bias = of_weight + taps * channels;
  real *restrict d = of_bias + channels;
  for (int64_t row = 0; row < at->replicas * at->batch; row++) {
    const int64_t replica = row / at->batch;
    const real *restrict weight_r = weight + replica * taps * channels;
    memset(of_weight, 0, (taps + 1) * channels * sizeof(real));
    memset(d_x + row * length * channels, 0, length * channels * sizeof(real));
    for (int64_t t = 0; t < length; t++) {
      const int64_t now = row * length + t;
      const real *restrict x_t = x + now * at->apart, *restrict d_y_t = d_y + now * channels;
      if (at->silu) {
        convolve(x_t, weight_r, bias + replica * channels, d, t, at);
        SIMD for (int64_t e = 0; e < channels; e++) {
          const real s = gate_of(d[e]);
          d[e] = d_y_t[e] * s * (1 + d[e] * (1 - s));
        }
      } else {
        memcpy(d, d_y_t, channels * sizeof(real));
      }
      SIMD for (int64_t e = 0; e < channels; e++) of_bias[e] += d[e];
      for (int64_t lag = 0; lag < taps && lag <= t; lag++) {
        const int64_t tap = (taps - 1 - lag) * channels;
        const real *restrict before = x_t - lag * at->apart;
        real *restrict d_before = d_x + (now - lag) * channels;
        SIMD for (int64_t e = 0; e < channels; e++) {
          d_before[e] += d[e] * weight_r[tap + e];
          of_weight[tap + e] += d[e] * before[e];
        }
      }
    }
    SIMD for (int64_t i = 0; i < taps * channels; i++) d_weight[replica * taps * channels + i] += of_weight[i];
    SIMD for (int64_t e = 0; e < channels; e++) d_bias[replica * channels + e] += of_bias[e];
  }
  free(of_weight);
}
