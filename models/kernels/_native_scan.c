// The selective scan of Mamba-1 from its projections to its gate, and its way back: models/scans/selective.py.
//
//   step = softplus(dt + bias)      a = e^(step A), or 2 e^(step A) - 1      h = a h + B (step v)
//   y = (sum_n C_n h_n + D v) z sigmoid(z)
//
// v, dt, z and y are [R, B, L, E], bias and D [R, E], A [R, N, E] and times log2(e), B and C [R, B, L, N], states
// [R, B, N, E]. Sixteen channels go through time together, so that their states stay at hand. Forward keeps the state
// that every `chunk` starts from, [R, B, K, N, E]; the way back finds the states in between again, a chunk at a time.

#include "_native.h"

typedef struct {
  int64_t replicas, batch, length, states, channels, chunk;
  int64_t is_signed;
  int64_t z_apart, B_apart, C_apart;  // numbers from a position to the next
} Sizes;

static inline lanes exp2_all(lanes x) {
  SIMD for (int64_t i = 0; i < LANES; i++) x[i] = exp2_of(x[i]);
  return x;
}

static inline lanes sigmoid_all(lanes x) {
  SIMD for (int64_t i = 0; i < LANES; i++) x[i] = gate_of(x[i]);
  return x;
}

static inline lanes softplus_all(lanes x) {
  SIMD for (int64_t i = 0; i < LANES; i++) x[i] = softplus_from(x[i], exp_of(-(real)fabs(x[i])));
  return x;
}

static inline real sum_of(const lanes x) {
  real sum = 0;
  for (int64_t i = 0; i < LANES; i++) sum += x[i];
  return sum;
}

static inline lanes transition(lanes step, lanes A, const Sizes *at) {
  const real is_signed = at->is_signed;
  return (1 + is_signed) * exp2_all(step * A) - is_signed;
}

static inline void get_states(lanes *restrict h, const real *restrict from, int64_t block, const Sizes *at) {
  for (int64_t n = 0; n < at->states; n++) h[n] = block_of(from + n * at->channels, block, at->channels);
}

static inline void put_states(real *restrict to, const lanes *restrict h, int64_t block, const Sizes *at) {
  for (int64_t n = 0; n < at->states; n++) put_block(to + n * at->channels, block, at->channels, h[n]);
}

static lanes *room_for(int64_t count) { return aligned_alloc(sizeof(lanes), count * sizeof(lanes)); }

void scan_forward(const real *restrict v, const real *restrict dt, const real *restrict bias, const real *restrict A,
                  const real *restrict B, const real *restrict C, const real *restrict D, const real *restrict z,
                  const real *restrict first, real *restrict y, real *restrict last, real *restrict starts,
                  const Sizes *at) {
  const int64_t states = at->states, channels = at->channels, size = states * channels;
  const int64_t chunks = (at->length + at->chunk - 1) / at->chunk;
  lanes *restrict h = room_for(2 * states), *restrict A_b = h + states;
  for (int64_t row = 0; row < at->replicas * at->batch; row++) {
    const int64_t replica = row / at->batch;
    for (int64_t block = 0; block < blocks(channels); block++) {
      get_states(A_b, A + replica * size, block, at);
      get_states(h, first + row * size, block, at);
      const lanes bias_b = block_of(bias + replica * channels, block, channels);
      const lanes D_b = block_of(D + replica * channels, block, channels);
      for (int64_t t = 0; t < at->length; t++) {
        const int64_t now = row * at->length + t;
        if (t % at->chunk == 0) put_states(starts + (row * chunks + t / at->chunk) * size, h, block, at);
        const real *restrict B_t = B + now * at->B_apart, *restrict C_t = C + now * at->C_apart;
        const lanes step = softplus_all(block_of(dt + now * channels, block, channels) + bias_b);
        const lanes v_t = block_of(v + now * channels, block, channels), u = step * v_t;
        const lanes z_t = block_of(z + now * at->z_apart, block, channels);
        lanes sum = D_b * v_t;
        for (int64_t n = 0; n < states; n++) {
          h[n] = transition(step, A_b[n], at) * h[n] + B_t[n] * u;
          sum += C_t[n] * h[n];
        }
        put_block(y + now * channels, block, channels, sum * z_t * sigmoid_all(z_t));
      }
      put_states(last + row * size, h, block, at);
    }
  }
  free(h);
}

// `d_h` comes as the gradient of the last state and leaves as that of the first; d_bias, d_A and d_D are added to. d_A
// is that of A without its factor.
void scan_backward(const real *restrict v, const real *restrict dt, const real *restrict bias, const real *restrict A,
                   const real *restrict B, const real *restrict C, const real *restrict D, const real *restrict z,
                   const real *restrict starts, const real *restrict d_y, real *restrict d_h, real *restrict d_v,
                   real *restrict d_dt, real *restrict d_bias, real *restrict d_A, real *restrict d_B,
                   real *restrict d_C, real *restrict d_D, real *restrict d_z, const Sizes *at) {
  const int64_t states = at->states, channels = at->channels, size = states * channels, length = at->length;
  const int64_t chunks = (length + at->chunk - 1) / at->chunk, held = at->chunk < length ? at->chunk : length;
  const real is_signed = at->is_signed, natural = (real)0.6931471805599453;  // what is left of the factor of A
  lanes *restrict room = room_for((4 * held + 4) * states + 2 * held);
  lanes *restrict a = room, *restrict h = a + held * states, *restrict of_B = h + (held + 1) * states;
  lanes *restrict of_C = of_B + held * states, *restrict g = of_C + held * states, *restrict A_b = g + states;
  lanes *restrict of_A = A_b + states, *restrict step = of_A + states, *restrict plain = step + held;
  for (int64_t row = 0; row < at->replicas * at->batch; row++) {
    const int64_t replica = row / at->batch;
    real *restrict d_A_r = d_A + replica * size, *restrict d_h_r = d_h + row * size;
    for (int64_t k = chunks - 1; k >= 0; k--) {
      const int64_t begin = k * at->chunk, count = begin + at->chunk < length ? at->chunk : length - begin;
      memset(of_B, 0, 2 * held * states * sizeof(lanes));  // and of_C
      for (int64_t block = 0; block < blocks(channels); block++) {
        get_states(A_b, A + replica * size, block, at);
        get_states(h, starts + (row * chunks + k) * size, block, at);
        get_states(g, d_h_r, block, at);
        get_states(of_A, d_A_r, block, at);
        const lanes bias_b = block_of(bias + replica * channels, block, channels);
        const lanes D_b = block_of(D + replica * channels, block, channels);
        lanes of_bias = {0}, of_D = {0};
        for (int64_t t = 0; t < count; t++) {
          const int64_t now = row * length + begin + t;
          const real *restrict B_t = B + now * at->B_apart, *restrict C_t = C + now * at->C_apart;
          const lanes v_t = block_of(v + now * channels, block, channels);
          const lanes *restrict before = h + t * states;
          lanes *restrict a_t = a + t * states, *restrict after = h + (t + 1) * states;
          step[t] = softplus_all(block_of(dt + now * channels, block, channels) + bias_b);
          const lanes u = step[t] * v_t;
          lanes sum = D_b * v_t;
          for (int64_t n = 0; n < states; n++) {
            a_t[n] = transition(step[t], A_b[n], at);
            after[n] = a_t[n] * before[n] + B_t[n] * u;
            sum += C_t[n] * after[n];
          }
          plain[t] = sum;
        }
        for (int64_t t = count - 1; t >= 0; t--) {
          const int64_t now = row * length + begin + t;
          const real *restrict B_t = B + now * at->B_apart, *restrict C_t = C + now * at->C_apart;
          const lanes v_t = block_of(v + now * channels, block, channels), u = step[t] * v_t;
          const lanes z_t = block_of(z + now * at->z_apart, block, channels), s = sigmoid_all(z_t);
          const lanes of_out = block_of(d_y + now * channels, block, channels) * s, of_y = of_out * z_t;
          put_block(d_z + now * channels, block, channels, of_out * plain[t] * (1 + z_t * (1 - s)));
          const lanes *restrict a_t = a + t * states, *restrict before = h + t * states, *restrict after = before + states;
          lanes *restrict of_B_t = of_B + t * states, *restrict of_C_t = of_C + t * states, of_u = {0}, of_step = {0};
          for (int64_t n = 0; n < states; n++) {
            const lanes g_n = g[n] + C_t[n] * of_y;
            // Of the exponent step A: a signed a has the slope 2 e^(step A) = a + 1, a positive one a.
            const lanes d = g_n * before[n] * (a_t[n] + is_signed);
            of_C_t[n] += of_y * after[n];
            of_B_t[n] += u * g_n;
            of_u += B_t[n] * g_n;
            of_step += d * A_b[n];
            of_A[n] += d * step[t];
            g[n] = a_t[n] * g_n;
          }
          const lanes of_dt = (of_step * natural + of_u * v_t) *
                              sigmoid_all(block_of(dt + now * channels, block, channels) + bias_b);
          put_block(d_dt + now * channels, block, channels, of_dt);
          put_block(d_v + now * channels, block, channels, of_u * step[t] + of_y * D_b);
          of_bias += of_dt;
          of_D += of_y * v_t;
        }
        put_states(d_h_r, g, block, at);
        put_states(d_A_r, of_A, block, at);
        real *restrict d_bias_r = d_bias + replica * channels, *restrict d_D_r = d_D + replica * channels;
        put_block(d_bias_r, block, channels, block_of(d_bias_r, block, channels) + of_bias);
        put_block(d_D_r, block, channels, block_of(d_D_r, block, channels) + of_D);
      }
      for (int64_t i = 0; i < count * states; i++) {
        const int64_t at_B = (row * length + begin) * states + i;
        d_B[at_B] = sum_of(of_B[i]);
        d_C[at_B] = sum_of(of_C[i]);
      }
    }
  }
  free(room);
}
