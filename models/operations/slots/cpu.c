// Linear attention that writes into slots with a decay each, token by token, and its way back: models/scans/slots.py.
//
//     S_t = S_{t-1} diag(w_t) + k_t s_t^T        y_t = q_t S_t
//
// Slots are what a row of S holds. Nothing is kept of the way there: states are found again from the first.

#include "_native_states.h"

static inline void move(const lanes *before, const real *restrict k_t, const lanes *restrict w_t,
                        const lanes *restrict s_t, lanes *next, const Sizes *at) {
  const int64_t wide = wide_of(at);
  for (int64_t i = 0; i < at->keys; i++)
    for (int64_t b = 0; b < wide; b++) next[i * wide + b] = w_t[b] * before[i * wide + b] + k_t[i] * s_t[b];
}

void slots_forward(const real *restrict q, const real *restrict k, const real *restrict s, const real *restrict decay,
                   const real *restrict first, real *restrict y, real *restrict last, const Sizes *at) {
  NEXT_TO_NOTHING_IS_NOTHING
  const int64_t K = at->keys, V = at->values, wide = wide_of(at);
  lanes *part[3];
  rooms_for(3, (int64_t[]){K * wide, wide, wide}, part);
  lanes *restrict S = part[0], *restrict w_t = part[1], *restrict s_t = part[2];
  for (int64_t row = 0; row < at->batch; row++)
    for (int64_t head = 0; head < at->heads; head++) {
      const int64_t place = row * at->heads + head;
      put_in(first + place * K * V, K, S, at);
      for (int64_t t = 0; t < at->length; t++) {
        const int64_t now = (row * at->length + t) * at->heads + head;
        put_in(decay + now * V, 1, w_t, at);
        put_in(s + now * V, 1, s_t, at);
        move(S, k + now * K, w_t, s_t, S, at);
        read_by(S, q + now * K, y + now * V, at);
      }
      put_out(S, K, last + place * K * V, at);
    }
  free(part[0]);
}

// d_S holds the gradient of the last state, and that of the first in the end.
void slots_backward(const real *restrict q, const real *restrict k, const real *restrict s, const real *restrict decay,
                    const real *restrict first, const real *restrict d_y, real *restrict d_q, real *restrict d_k,
                    real *restrict d_s, real *restrict d_decay, real *restrict d_S, const Sizes *at) {
  NEXT_TO_NOTHING_IS_NOTHING
  const int64_t K = at->keys, V = at->values, length = at->length, wide = wide_of(at), state = K * wide;
  lanes *part[5];
  rooms_for(5, (int64_t[]){(length + 1) * state, state, wide, wide, wide}, part);
  lanes *restrict S = part[0], *restrict G = part[1], *restrict w_t = part[2], *restrict s_t = part[3];
  lanes *restrict d_y_t = part[4];
  for (int64_t row = 0; row < at->batch; row++)
    for (int64_t head = 0; head < at->heads; head++) {
      const int64_t place = row * at->heads + head;
      put_in(first + place * K * V, K, S, at);
      for (int64_t t = 0; t < length; t++) {
        const int64_t now = (row * length + t) * at->heads + head;
        put_in(decay + now * V, 1, w_t, at);
        put_in(s + now * V, 1, s_t, at);
        move(S + t * state, k + now * K, w_t, s_t, S + (t + 1) * state, at);
      }
      put_in(d_S + place * K * V, K, G, at);
      for (int64_t t = length - 1; t >= 0; t--) {
        const int64_t now = (row * length + t) * at->heads + head;
        const real *restrict q_t = q + now * K, *restrict k_t = k + now * K;
        const lanes *restrict before = S + t * state;
        put_in(decay + now * V, 1, w_t, at);
        put_in(s + now * V, 1, s_t, at);
        put_in(d_y + now * V, 1, d_y_t, at);
        for (int64_t b = 0; b < wide; b++) {
          lanes of_s = {0}, of_w = {0};
          for (int64_t i = 0; i < K; i++) {
            const lanes G_i = G[i * wide + b] + q_t[i] * d_y_t[b];
            of_s += k_t[i] * G_i;
            of_w += before[i * wide + b] * G_i;
            G[i * wide + b] = G_i;
          }
          put_block(d_s + now * V, b, V, of_s);
          put_block(d_decay + now * V, b, V, of_w);
        }
        rows_by(before + state, d_y_t, d_q + now * K, at);
        rows_by(G, s_t, d_k + now * K, at);
        for (int64_t i = 0; i < K; i++)
          for (int64_t b = 0; b < wide; b++) G[i * wide + b] *= w_t[b];
      }
      put_out(G, K, d_S + place * K * V, at);
    }
  free(part[0]);
}
