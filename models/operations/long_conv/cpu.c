// A causal convolution with as many taps as there are tokens, one filter a channel, and its way back:
// models/scans/long_convolution.py.
//
// z and y are [R, B, N, D], taps [R, T, D] with T <= N. Positions of z are `apart` numbers from one another. Sixteen
// channels at a time; all three sums, outputs, gradients of inputs and of taps, are of one form, `slid`.

#include "_native.h"

typedef struct {
  int64_t replicas, batch, length, channels;
  int64_t taps, apart;
} Sizes;

#define AT_ONCE 8  // sums, each of which waits for its last addition

// sum_i = sum over s < count of a_s b_{s+i}, for AT_ONCE places i. Of four s at once each b is read for several sums.
ALWAYS void slid(const lanes *restrict a, const lanes *restrict b, int64_t count, lanes *restrict sum) {
  lanes all[AT_ONCE];
  _Pragma("GCC unroll 8") for (int64_t i = 0; i < AT_ONCE; i++) all[i] = sum[i];
  int64_t s = 0;
  for (; s + 4 <= count; s += 4)
    _Pragma("GCC unroll 11") for (int64_t at = 0; at < AT_ONCE + 3; at++) {
      const lanes x = b[s + at];
      _Pragma("GCC unroll 4") for (int64_t k = 0; k < 4; k++)
        if (at - k >= 0 && at - k < AT_ONCE) all[at - k] += a[s + k] * x;
    }
  for (; s < count; s++)
    _Pragma("GCC unroll 8") for (int64_t i = 0; i < AT_ONCE; i++) all[i] += a[s] * b[s + i];
  _Pragma("GCC unroll 8") for (int64_t i = 0; i < AT_ONCE; i++) sum[i] = all[i];
}

// The rows of a block of channels, one behind the other.
ALWAYS void column_of(const real *restrict x, int64_t count, int64_t apart, int64_t block, int64_t channels,
                      lanes *restrict found) {
  for (int64_t n = 0; n < count; n++) found[n] = block_of(x + n * apart, block, channels);
}

static inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

// Behind the last row, and in front of the first, as many of zeros as sums run over.
void long_conv_forward(const real *restrict z, const real *restrict taps, real *restrict y, const Sizes *at) {
  const int64_t length = at->length, channels = at->channels, count = at->taps;
  lanes *room[3];
  rooms_for(3, (int64_t[]){count, AT_ONCE, length + AT_ONCE}, room);
  lanes *turned = room[0], *inputs = room[2];
  for (int64_t replica = 0; replica < at->replicas; replica++)
    for (int64_t block = 0; block < blocks(channels); block++) {
      for (int64_t t = 0; t < count; t++)
        turned[count - 1 - t] = block_of(taps + (replica * count + t) * channels, block, channels);
      for (int64_t row = replica * at->batch; row < (replica + 1) * at->batch; row++) {
        column_of(z + row * length * at->apart, length, at->apart, block, channels, inputs);
        for (int64_t n = 0; n < length; n += AT_ONCE) {
          const int64_t met = least(n + AT_ONCE, count);  // taps, the last of which meets z_{n + 1 - met}
          lanes sum[AT_ONCE] = {{0}};
          slid(turned + count - met, inputs + n + 1 - met, met, sum);
          for (int64_t i = 0; i < least(AT_ONCE, length - n); i++)
            put_block(y + (row * length + n + i) * channels, block, channels, sum[i]);
        }
      }
    }
  free(room[0]);
}

// Both gradients are written.
void long_conv_backward(const real *restrict d_y, const real *restrict z, const real *restrict taps,
                        real *restrict d_z, real *restrict d_taps, const Sizes *at) {
  const int64_t length = at->length, channels = at->channels, count = at->taps;
  lanes *room[5];
  rooms_for(5, (int64_t[]){count, length + AT_ONCE, AT_ONCE, length + AT_ONCE, count + AT_ONCE}, room);
  lanes *in_order = room[0], *outputs = room[1], *inputs = room[3], *of_taps = room[4];
  for (int64_t replica = 0; replica < at->replicas; replica++)
    for (int64_t block = 0; block < blocks(channels); block++) {
      column_of(taps + replica * count * channels, count, channels, block, channels, in_order);
      memset(of_taps, 0, (count + AT_ONCE) * sizeof(lanes));
      for (int64_t row = replica * at->batch; row < (replica + 1) * at->batch; row++) {
        column_of(z + row * length * at->apart, length, at->apart, block, channels, inputs);
        column_of(d_y + row * length * channels, length, channels, block, channels, outputs);
        for (int64_t n = 0; n < length; n += AT_ONCE) {
          lanes sum[AT_ONCE] = {{0}};
          slid(in_order, outputs + n, least(count, length - n), sum);
          for (int64_t i = 0; i < least(AT_ONCE, length - n); i++)
            put_block(d_z + (row * length + n + i) * channels, block, channels, sum[i]);
        }
        for (int64_t t = 0; t < count; t += AT_ONCE)  // of taps t + 7 .. t
          slid(outputs + t, inputs + 1 - AT_ONCE, length - t, of_taps + t);
      }
      for (int64_t t = 0; t < count; t++) {
        const int64_t first = t / AT_ONCE * AT_ONCE;
        put_block(d_taps + (replica * count + t) * channels, block, channels, of_taps[2 * first + AT_ONCE - 1 - t]);
      }
    }
  free(room[0]);
}
