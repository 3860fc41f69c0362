// The delta rule with momentum, token by token, and its way back: models/scans/momentum_delta.py.
//
//     e_t = k_t M_{t-1} - v_t        S_t = h_t S_{t-1} - r_t k_t^T e_t        M_t = a_t M_{t-1} + S_t        y_t = q_t M_t
//
// r, a and h are [B, L, H]; M and S lie behind each other, [B, H, 2, K, V]. Nothing is kept of the way there: states are
// found again from the first.

#include "_native_states.h"

// What M has wrong about v, and the next M and S.
static inline void move(const lanes *M, const lanes *S, const real *restrict k_t, const real *restrict v_t, real r,
                        real a, real h, lanes *restrict e, lanes *next_M, lanes *next_S, const Sizes *at) {
  const int64_t wide = wide_of(at);
  for (int64_t b = 0; b < wide; b++) {
    lanes sum = -block_of(v_t, b, at->values);
    for (int64_t i = 0; i < at->keys; i++) sum += k_t[i] * M[i * wide + b];
    e[b] = sum;
    for (int64_t i = 0; i < at->keys; i++) {
      const int64_t n = i * wide + b;
      const lanes S_n = h * S[n] - k_t[i] * (r * sum);
      next_M[n] = a * M[n] + S_n;
      next_S[n] = S_n;
    }
  }
}

void momentum_forward(const real *restrict q, const real *restrict k, const real *restrict v, const real *restrict r,
                      const real *restrict a, const real *restrict h, const real *restrict first, real *restrict y,
                      real *restrict last, const Sizes *at) {
  NEXT_TO_NOTHING_IS_NOTHING
  const int64_t K = at->keys, V = at->values, state = K * wide_of(at);
  lanes *part[2];
  rooms_for(2, (int64_t[]){2 * state, wide_of(at)}, part);
  lanes *M = part[0], *S = M + state;
  for (int64_t row = 0; row < at->batch; row++)
    for (int64_t head = 0; head < at->heads; head++) {
      const int64_t place = (row * at->heads + head) * 2 * K * V;
      put_in(first + place, 2 * K, M, at);
      for (int64_t t = 0; t < at->length; t++) {
        const int64_t now = (row * at->length + t) * at->heads + head;
        move(M, S, k + now * K, v + now * V, r[now], a[now], h[now], part[1], M, S, at);
        read_by(M, q + now * K, y + now * V, at);
      }
      put_out(M, 2 * K, last + place, at);
    }
  free(part[0]);
}

// d_state holds the gradients of the last M and S, and those of the first in the end.
void momentum_backward(const real *restrict q, const real *restrict k, const real *restrict v, const real *restrict r,
                       const real *restrict a, const real *restrict h, const real *restrict first,
                       const real *restrict d_y, real *restrict d_q, real *restrict d_k, real *restrict d_v,
                       real *restrict d_r, real *restrict d_a, real *restrict d_h, real *restrict d_state,
                       const Sizes *at) {
  NEXT_TO_NOTHING_IS_NOTHING
  const int64_t K = at->keys, V = at->values, length = at->length, wide = wide_of(at), state = K * wide;
  lanes *part[5];
  rooms_for(5, (int64_t[]){2 * (length + 1) * state, length * wide, 2 * state, wide, wide}, part);
  lanes *states = part[0], *errors = part[1], *G = part[2], *N = G + state;
  lanes *restrict d_e = part[3], *restrict d_y_t = part[4];
  for (int64_t row = 0; row < at->batch; row++)
    for (int64_t head = 0; head < at->heads; head++) {
      const int64_t place = (row * at->heads + head) * 2 * K * V;
      put_in(first + place, 2 * K, states, at);
      for (int64_t t = 0; t < length; t++) {
        const int64_t now = (row * length + t) * at->heads + head;
        const lanes *M = states + 2 * t * state;
        lanes *next = states + 2 * (t + 1) * state;
        move(M, M + state, k + now * K, v + now * V, r[now], a[now], h[now], errors + t * wide, next, next + state, at);
      }
      put_in(d_state + place, 2 * K, G, at);
      for (int64_t t = length - 1; t >= 0; t--) {
        const int64_t now = (row * length + t) * at->heads + head;
        const real *restrict q_t = q + now * K, *restrict k_t = k + now * K;
        const lanes *M = states + 2 * t * state, *S = M + state, *e = errors + t * wide;
        lanes of_a = {0}, of_h = {0}, of_r = {0};
        put_in(d_y + now * V, 1, d_y_t, at);
        for (int64_t b = 0; b < wide; b++) {
          lanes of_written = {0};
          for (int64_t i = 0; i < K; i++) {
            const int64_t n = i * wide + b;
            const lanes G_n = G[n] + q_t[i] * d_y_t[b], N_n = N[n] + G_n;
            of_a += G_n * M[n];
            of_h += N_n * S[n];
            of_written -= k_t[i] * N_n;
            G[n] = G_n;
            N[n] = N_n;
          }
          of_r += of_written * e[b];
          d_e[b] = r[now] * of_written;
          put_block(d_v + now * V, b, V, -d_e[b]);
        }
        d_a[now] = sum_of(of_a);
        d_h[now] = sum_of(of_h);
        d_r[now] = sum_of(of_r);
        rows_by(states + 2 * (t + 1) * state, d_y_t, d_q + now * K, at);
        for (int64_t from = 0; from < K; from += LANES) {
          lanes of_k[LANES];
          for (int64_t i = 0; i < LANES; i++) {
            of_k[i] = (lanes){0};
            for (int64_t b = 0; b < wide && from + i < K; b++) {
              const int64_t n = (from + i) * wide + b;
              of_k[i] += M[n] * d_e[b] - r[now] * N[n] * e[b];
              G[n] = a[now] * G[n] + k_t[from + i] * d_e[b];
              N[n] *= h[now];
            }
          }
          put_block(d_k + now * K, from / LANES, K, sums_within(of_k));
        }
      }
      put_out(G, 2 * K, d_state + place, at);
    }
  free(part[0]);
}
