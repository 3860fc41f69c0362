// What a linear state space answers to a single 1, step by step, and the way back: models/scans/state_space.py has the
// equations. A channel's states fit into the first cache; the way back takes the steps again and keeps them.
//
// system [H, P, 2, M]: P = 3 of d, b, C, or 5 with q and r behind; of each the real parts, then the imaginary ones.
// response [H, L].

#include "_native.h"

typedef struct {
  int64_t channels, length, states, parts;
} Sizes;

enum { D, B, C, Q, R };

// s = Re(sum r x), and x_next = d x - q s.
static inline real carry(const real *restrict system, const real *x, real *next, int64_t M, int has_rank) {
  const real *restrict d = system + 2 * D * M, *restrict q = system + 2 * Q * M, *restrict r = system + 2 * R * M;
  real s = 0;
  if (has_rank) {
    _Pragma("omp simd reduction(+ : s)") for (int64_t m = 0; m < M; m++) s += r[m] * x[m] - r[M + m] * x[M + m];
  }
  SIMD for (int64_t m = 0; m < M; m++) {
    const real re = x[m], im = x[M + m];
    real next_re = d[m] * re - d[M + m] * im, next_im = d[m] * im + d[M + m] * re;
    if (has_rank) next_re -= q[m] * s, next_im -= q[M + m] * s;
    next[m] = next_re, next[M + m] = next_im;
  }
  return s;
}

void space_forward(const real *restrict systems, real *restrict response, const Sizes *at) {
  const int64_t M = at->states;
  real *restrict x = malloc(2 * M * sizeof(real));
  for (int64_t h = 0; h < at->channels; h++) {
    const real *restrict system = systems + h * at->parts * 2 * M, *restrict c = system + 2 * C * M;
    memcpy(x, system + 2 * B * M, 2 * M * sizeof(real));
    for (int64_t t = 0; t < at->length; t++) {
      real y = 0;
      _Pragma("omp simd reduction(+ : y)") for (int64_t m = 0; m < M; m++) y += c[m] * x[m] - c[M + m] * x[M + m];
      response[h * at->length + t] = 2 * y;
      carry(system, x, x, M, at->parts > 3);
    }
  }
  free(x);
}

void space_backward(const real *restrict systems, const real *restrict d_response, real *restrict d_systems,
                    const Sizes *at) {
  const int64_t M = at->states, L = at->length, size = 2 * M;
  const int has_rank = at->parts > 3;
  real *room = malloc((L * size + size + L) * sizeof(real));
  real *restrict xs = room, *restrict g = xs + L * size, *restrict s = g + size;
  for (int64_t h = 0; h < at->channels; h++) {
    const real *restrict system = systems + h * at->parts * size, *restrict d = system + 2 * D * M;
    const real *restrict c = system + 2 * C * M, *restrict q = system + 2 * Q * M, *restrict r = system + 2 * R * M;
    real *restrict d_system = d_systems + h * at->parts * size, *restrict d_d = d_system + 2 * D * M;
    real *restrict d_c = d_system + 2 * C * M, *restrict d_q = d_system + 2 * Q * M, *restrict d_r = d_system + 2 * R * M;
    memset(d_system, 0, at->parts * size * sizeof(real));
    memcpy(xs, system + 2 * B * M, size * sizeof(real));
    for (int64_t t = 0; t + 1 < L; t++) s[t] = carry(system, xs + t * size, xs + (t + 1) * size, M, has_rank);
    memset(g, 0, size * sizeof(real));  // of x_(t+1); none follows the last
    for (int64_t t = L - 1; t >= 0; t--) {
      const real *restrict x = xs + t * size, d_y = 2 * d_response[h * L + t];
      real d_s = 0;
      if (has_rank && t + 1 < L) {
        _Pragma("omp simd reduction(+ : d_s)") for (int64_t m = 0; m < M; m++) d_s -= q[m] * g[m] + q[M + m] * g[M + m];
        SIMD for (int64_t m = 0; m < M; m++) {
          d_q[m] -= s[t] * g[m], d_q[M + m] -= s[t] * g[M + m];
          d_r[m] += d_s * x[m], d_r[M + m] -= d_s * x[M + m];
        }
      }
      SIMD for (int64_t m = 0; m < M; m++) {
        const real re = x[m], im = x[M + m], g_re = g[m], g_im = g[M + m];
        d_d[m] += g_re * re + g_im * im, d_d[M + m] += g_im * re - g_re * im;
        d_c[m] += d_y * re, d_c[M + m] -= d_y * im;
        real of_re = d[m] * g_re + d[M + m] * g_im + d_y * c[m], of_im = d[m] * g_im - d[M + m] * g_re - d_y * c[M + m];
        if (has_rank) of_re += d_s * r[m], of_im -= d_s * r[M + m];
        g[m] = of_re, g[M + m] = of_im;
      }
    }
    memcpy(d_system + 2 * B * M, g, size * sizeof(real));
  }
  free(room);
}
