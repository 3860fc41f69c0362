// M2RNN's recurrence and its way back, of one row of one head after the other: models/scans/matrix_rnn.py.
//
//     z_t = tanh(h_{t-1} W + k_t v_t^T)        h_t = f_t h_{t-1} + (1 - f_t) z_t        y_t = q_t h_t
//
// f is [B, L, H], W [H, V, V]. Of the way there z is kept, as rows of [B, H, L]; the states are found again from it.

#include "_native_states.h"

// h_t from h_{t-1} and z_t.
static inline void move(const lanes *h, const lanes *z, real f, lanes *next, int64_t count) {
  for (int64_t n = 0; n < count; n++) next[n] = z[n] + f * (h[n] - z[n]);
}

void matrix_rnn_forward(const real *restrict q, const real *restrict k, const real *restrict v, const real *restrict f,
                        const real *restrict W, const real *restrict first, real *restrict y, real *restrict last,
                        lanes *restrict kept, const Sizes *at) {
  NEXT_TO_NOTHING_IS_NOTHING
  const int64_t K = at->keys, V = at->values, wide = wide_of(at), state = K * wide;
  lanes *part[4];
  rooms_for(4, (int64_t[]){state, state, V * wide, wide}, part);
  lanes *restrict h = part[0], *restrict W_h = part[2], *restrict v_t = part[3];
  for (int64_t head = 0; head < at->heads; head++) {
    put_in(W + head * V * V, V, W_h, at);
    for (int64_t row = 0; row < at->batch; row++) {
      const int64_t place = row * at->heads + head;
      put_in(first + place * K * V, K, h, at);
      for (int64_t t = 0; t < at->length; t++) {
        const int64_t now = (row * at->length + t) * at->heads + head;
        const real *restrict k_t = k + now * K;
        lanes *restrict z = kept ? kept + (place * at->length + t) * state : part[1];
        put_in(v + now * V, 1, v_t, at);
        times(h, wide * LANES, 1, K, V, W_h, wide, z, 0);
        for (int64_t i = 0; i < K; i++)
          for (int64_t b = 0; b < wide; b++) z[i * wide + b] += k_t[i] * v_t[b];
        real *each = (real *)z;
        SIMD for (int64_t n = 0; n < state * LANES; n++) each[n] = tanh_of(each[n]);
        clear_behind(z, K, at);  // of an infinite k times nothing
        move(h, z, f[now], h, state);
        read_by(h, q + now * K, y + now * V, at);
      }
      put_out(h, K, last + place * K * V, at);
    }
  }
  free(part[0]);
}

// d_h holds the gradient of the last state, and that of the first in the end.
void matrix_rnn_backward(const real *restrict q, const real *restrict k, const real *restrict v, const real *restrict f,
                         const real *restrict W, const real *restrict first, const lanes *restrict kept,
                         const real *restrict d_y, real *restrict d_q, real *restrict d_k, real *restrict d_v,
                         real *restrict d_f, real *restrict d_W, real *restrict d_h, const Sizes *at) {
  NEXT_TO_NOTHING_IS_NOTHING
  const int64_t K = at->keys, V = at->values, length = at->length, wide = wide_of(at), state = K * wide;
  lanes *part[8];
  rooms_for(8, (int64_t[]){(length + 1) * state, state, state, V * wide, V * wide, V * wide, wide, wide}, part);
  lanes *restrict h = part[0], *restrict g = part[1], *restrict d = part[2], *restrict back = part[3];
  lanes *restrict of_row = part[4], *restrict of_head = part[5], *restrict v_t = part[6], *restrict d_y_t = part[7];
  for (int64_t head = 0; head < at->heads; head++) {
    for (int64_t i = 0; i < V; i++)
      for (int64_t j = 0; j < V; j++) ((real *)back)[i * wide * LANES + j] = W[(head * V + j) * V + i];
    memset(of_head, 0, V * wide * sizeof(lanes));
    for (int64_t row = 0; row < at->batch; row++) {
      const int64_t place = row * at->heads + head;
      const lanes *restrict kept_row = kept + place * length * state;
      put_in(first + place * K * V, K, h, at);
      for (int64_t t = 0; t < length; t++)
        move(h + t * state, kept_row + t * state, f[(row * length + t) * at->heads + head], h + (t + 1) * state, state);
      put_in(d_h + place * K * V, K, g, at);
      memset(of_row, 0, V * wide * sizeof(lanes));
      for (int64_t t = length - 1; t >= 0; t--) {
        const int64_t now = (row * length + t) * at->heads + head;
        const real *restrict q_t = q + now * K, *restrict k_t = k + now * K, keeps = f[now];
        const lanes *restrict before = h + t * state, *restrict z = kept_row + t * state;
        put_in(v + now * V, 1, v_t, at);
        put_in(d_y + now * V, 1, d_y_t, at);
        lanes of_f = {0};
        for (int64_t b = 0; b < wide; b++) {
          lanes of_v = {0};
          for (int64_t i = 0; i < K; i++) {
            const int64_t n = i * wide + b;
            const lanes g_n = g[n] + q_t[i] * d_y_t[b], d_n = (1 - keeps) * g_n * (1 - z[n] * z[n]);
            of_f += (before[n] - z[n]) * g_n;
            of_v += k_t[i] * d_n;
            d[n] = d_n;
            g[n] = keeps * g_n;
          }
          put_block(d_v + now * V, b, V, of_v);
        }
        d_f[now] = sum_of(of_f);
        rows_by(before + state, d_y_t, d_q + now * K, at);
        rows_by(d, v_t, d_k + now * K, at);
        times(before, 1, wide * LANES, V, K, d, wide, of_row, 1);
        times(d, wide * LANES, 1, K, V, back, wide, g, 1);
      }
      for (int64_t n = 0; n < V * wide; n++) of_head[n] += of_row[n];
      put_out(g, K, d_h + place * K * V, at);
    }
    put_out(of_head, V, d_W + head * V * V, at);
  }
  free(part[0]);
}
