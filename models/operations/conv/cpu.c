// A short causal convolution, one filter a channel, from the start, with or without silu behind it, and its way back:
// models/layers/convolution.py.
//
// x and y are [R, B, L, E], weights [R, W, E], biases [R, E]. Positions of x are `apart` numbers from one another. Of
// sixteen channels at a time the taps, the inputs that they meet, and on the way back what both are still owed, stay
// where they are through a row: registers, where there are three taps or four.

#include "_native.h"

typedef struct {
  int64_t replicas, batch, length, channels, taps;
  int64_t apart, silu;
} Sizes;

typedef struct {
  lanes *taps, *past, *owed, *of_taps;  // the last tap first, and x_t before x_{t-1}
  lanes bias, of_bias;
} Held;

ALWAYS Held held_of(const int64_t taps, lanes *room, const real *restrict weight, const real *restrict bias,
                    int64_t block, const Sizes *at) {
  for (int64_t lag = 0; lag < taps; lag++) {
    room[lag] = block_of(weight + (taps - 1 - lag) * at->channels, block, at->channels);
    room[taps + lag] = room[2 * taps + lag] = room[3 * taps + lag] = (lanes){0};
  }
  return (Held){room, room + taps, room + 2 * taps, room + 3 * taps, block_of(bias, block, at->channels), {0}};
}

// The sum over taps, where the next x has come.
ALWAYS lanes convolved(const int64_t taps, Held *held, lanes x) {
  for (int64_t lag = taps - 1; lag > 0; lag--) held->past[lag] = held->past[lag - 1];
  held->past[0] = x;
  lanes sum = held->bias;
  for (int64_t lag = 0; lag < taps; lag++) sum += held->taps[lag] * held->past[lag];
  return sum;
}

ALWAYS void forward_of(const int64_t taps, lanes *room, const real *restrict x, const real *restrict weight,
                       const real *restrict bias, real *restrict y, const Sizes *at) {
  for (int64_t block = 0; block < blocks(at->channels); block++) {
    Held held = held_of(taps, room, weight, bias, block, at);
    for (int64_t t = 0; t < at->length; t++) {
      lanes sum = convolved(taps, &held, block_of(x + t * at->apart, block, at->channels));
      if (at->silu) SIMD for (int64_t i = 0; i < LANES; i++) sum[i] *= gate_of(sum[i]);
      put_block(y + t * at->channels, block, at->channels, sum);
    }
  }
}

// d_x is written, d_weight and d_bias are added to. What silu was of is found again.
ALWAYS void backward_of(const int64_t taps, lanes *room, const real *restrict d_y, const real *restrict x,
                        const real *restrict weight, const real *restrict bias, real *restrict d_x,
                        real *restrict d_weight, real *restrict d_bias, const Sizes *at) {
  const int64_t channels = at->channels, length = at->length;
  for (int64_t block = 0; block < blocks(channels); block++) {
    Held held = held_of(taps, room, weight, bias, block, at);
    for (int64_t t = 0; t < length; t++) {
      lanes d = block_of(d_y + t * channels, block, channels);
      const lanes sum = convolved(taps, &held, block_of(x + t * at->apart, block, channels));
      if (at->silu)
        SIMD for (int64_t i = 0; i < LANES; i++) {
          const real s = gate_of(sum[i]);
          d[i] *= s * (1 + sum[i] * (1 - s));
        }
      held.of_bias += d;
      for (int64_t lag = taps - 1; lag > 0; lag--) held.owed[lag] = held.owed[lag - 1] + d * held.taps[lag];
      held.owed[0] = d * held.taps[0];
      for (int64_t lag = 0; lag < taps; lag++) held.of_taps[lag] += d * held.past[lag];
      if (t >= taps - 1) put_block(d_x + (t - taps + 1) * channels, block, channels, held.owed[taps - 1]);
    }
    for (int64_t lag = 0; lag < taps - 1 && lag < length; lag++)
      put_block(d_x + (length - 1 - lag) * channels, block, channels, held.owed[lag]);
    for (int64_t lag = 0; lag < taps; lag++) {
      real *restrict tap = d_weight + (taps - 1 - lag) * channels;
      put_block(tap, block, channels, block_of(tap, block, channels) + held.of_taps[lag]);
    }
    put_block(d_bias, block, channels, block_of(d_bias, block, channels) + held.of_bias);
  }
}

// As many taps as models have by default are known to the compiler, which keeps what they hold in registers.
#define BY_TAPS(act, ...)                       \
  if (at->taps == 4) {                          \
    lanes held[4 * 4];                          \
    act(4, held, __VA_ARGS__);                  \
  } else if (at->taps == 3) {                   \
    lanes held[4 * 3];                          \
    act(3, held, __VA_ARGS__);                  \
  } else {                                      \
    act(at->taps, room[0], __VA_ARGS__);        \
  }

void conv_forward(const real *restrict x, const real *restrict weight, const real *restrict bias, real *restrict y,
                  const Sizes *at) {
  const int64_t channels = at->channels;
  lanes *room[1];
  rooms_for(1, (int64_t[]){4 * at->taps}, room);
  for (int64_t row = 0; row < at->replicas * at->batch; row++) {
    const int64_t replica = row / at->batch, first = row * at->length;
    BY_TAPS(forward_of, x + first * at->apart, weight + replica * at->taps * channels, bias + replica * channels,
            y + first * channels, at)
  }
  free(room[0]);
}

void conv_backward(const real *restrict d_y, const real *restrict x, const real *restrict weight,
                   const real *restrict bias, real *restrict d_x, real *restrict d_weight, real *restrict d_bias,
                   const Sizes *at) {
  const int64_t channels = at->channels;
  lanes *room[1];
  rooms_for(1, (int64_t[]){4 * at->taps}, room);
  for (int64_t row = 0; row < at->replicas * at->batch; row++) {
    const int64_t replica = row / at->batch, first = row * at->length, of_taps = replica * at->taps * channels;
    BY_TAPS(backward_of, d_y + first * channels, x + first * at->apart, weight + of_taps, bias + replica * channels,
            d_x + first * channels, d_weight + of_taps, d_bias + replica * channels, at)
  }
  free(room[0]);
}
