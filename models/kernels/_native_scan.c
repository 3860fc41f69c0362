// The selective scan of Mamba-1 and its way back, a row after another: models/_selective_scan.py has the equations.
//
// u, dt and y are [R, B, L, E], B and C [R, B, L, N], A [R, N, E], states [R, B, N, E]. Forward keeps the state that
// every `chunk` starts from, [R, B, K, N, E]; the way back finds the states in between again, a chunk at a time.

#include "_native.h"

typedef struct {
  int64_t replicas, batch, length, states, channels, chunk;
  int64_t is_signed;
} Sizes;

// a = e^(dt A) of a position, or 2 e^(dt A) - 1, and h = a h_before + B u.
static inline void advance(const real *restrict u, const real *restrict dt, const real *restrict A,
                           const real *restrict B, const real *before, real *restrict a, real *h, const Sizes *at) {
  for (int64_t n = 0; n < at->states; n++) {
    const int64_t row = n * at->channels;
    SIMD for (int64_t e = 0; e < at->channels; e++) {
      const real decay = exp_of(dt[e] * A[row + e]), a_e = at->is_signed ? 2 * decay - 1 : decay;
      a[row + e] = a_e;
      h[row + e] = a_e * before[row + e] + B[n] * u[e];
    }
  }
}

void scan_forward(const real *restrict u, const real *restrict dt, const real *restrict A, const real *restrict B,
                  const real *restrict C, const real *restrict first, real *restrict y, real *restrict last,
                  real *restrict starts, const Sizes *at) {
  const int64_t states = at->states, channels = at->channels, size = states * channels;
  const int64_t chunks = (at->length + at->chunk - 1) / at->chunk;
  real *restrict a = malloc(size * sizeof(real));
  for (int64_t row = 0; row < at->replicas * at->batch; row++) {
    const real *restrict A_row = A + row / at->batch * size;
    real *restrict h = last + row * size;
    memcpy(h, first + row * size, size * sizeof(real));
    for (int64_t t = 0; t < at->length; t++) {
      const int64_t now = row * at->length + t;
      if (t % at->chunk == 0) memcpy(starts + (row * chunks + t / at->chunk) * size, h, size * sizeof(real));
      advance(u + now * channels, dt + now * channels, A_row, B + now * states, h, a, h, at);
      real *restrict y_now = y + now * channels;
      memset(y_now, 0, channels * sizeof(real));
      for (int64_t n = 0; n < states; n++) {
        const real C_n = C[now * states + n];
        SIMD for (int64_t e = 0; e < channels; e++) y_now[e] += C_n * h[n * channels + e];
      }
    }
  }
  free(a);
}

// `d_h` comes as the gradient of the last state and leaves as that of the first; d_A [R, N, E] is added to.
void scan_backward(const real *restrict u, const real *restrict dt, const real *restrict A, const real *restrict B,
                   const real *restrict C, const real *restrict starts, const real *restrict d_y, real *restrict d_h,
                   real *restrict d_u, real *restrict d_dt, real *restrict d_A, real *restrict d_B,
                   real *restrict d_C, const Sizes *at) {
  const int64_t states = at->states, channels = at->channels, size = states * channels, length = at->length;
  const int64_t chunks = (length + at->chunk - 1) / at->chunk, held = at->chunk < length ? at->chunk : length;
  real *room = malloc((2 * held + 2) * size * sizeof(real));
  real *restrict a = room, *restrict h = a + held * size, *restrict of_A = h + (held + 1) * size;  // h from before t = 0
  for (int64_t row = 0; row < at->replicas * at->batch; row++) {
    const real *restrict A_row = A + row / at->batch * size;
    real *restrict g = d_h + row * size, *restrict d_A_row = d_A + row / at->batch * size;
    memset(of_A, 0, size * sizeof(real));
    for (int64_t k = chunks - 1; k >= 0; k--) {
      const int64_t begin = k * at->chunk, end = begin + at->chunk < length ? begin + at->chunk : length;
      memcpy(h, starts + (row * chunks + k) * size, size * sizeof(real));
      for (int64_t t = begin; t < end; t++) {
        const int64_t now = row * length + t, own = (t - begin) * size;
        advance(u + now * channels, dt + now * channels, A_row, B + now * states, h + own, a + own, h + own + size, at);
      }
      for (int64_t t = end - 1; t >= begin; t--) {
        const int64_t now = row * length + t, own = (t - begin) * size;
        const real *restrict u_now = u + now * channels, *restrict dt_now = dt + now * channels;
        const real *restrict d_y_now = d_y + now * channels;
        real *restrict d_u_now = d_u + now * channels, *restrict d_dt_now = d_dt + now * channels;
        memset(d_u_now, 0, channels * sizeof(real));
        memset(d_dt_now, 0, channels * sizeof(real));
        for (int64_t n = 0; n < states; n++) {
          const real *restrict a_n = a + own + n * channels, *restrict A_n = A_row + n * channels;
          const real *restrict before = h + own + n * channels, *restrict after = before + size;
          real *restrict g_n = g + n * channels, *restrict of_A_n = of_A + n * channels;
          const real B_n = B[now * states + n], C_n = C[now * states + n];
          real of_B = 0, of_C = 0;
          _Pragma("omp simd reduction(+ : of_B, of_C)") for (int64_t e = 0; e < channels; e++) {
            const real g_e = g_n[e] + C_n * d_y_now[e];
            // Of the exponent dt A: a signed a has the slope 2 e^(dt A) = a + 1, a positive one a.
            const real d = g_e * before[e] * (at->is_signed ? a_n[e] + 1 : a_n[e]);
            of_C += d_y_now[e] * after[e];
            of_B += u_now[e] * g_e;
            d_u_now[e] += B_n * g_e;
            d_dt_now[e] += d * A_n[e];
            of_A_n[e] += d * dt_now[e];
            g_n[e] = a_n[e] * g_e;
          }
          d_B[now * states + n] = of_B;
          d_C[now * states + n] = of_C;
        }
      }
    }
    SIMD for (int64_t i = 0; i < size; i++) d_A_row[i] += of_A[i];
  }
  free(room);
}
