// What stands before u in a chunk of Mamba-2's and Mamba-3's, and the way back: `weighed` in models/scans/ssd.py.
//
//     M_ts = S_ts exp(l_t - l_s) w_s for the rows s of earlier positions, S_ts o_s for those of t's own, and + D if s = t
//
// scores S are [R, X, G, T, T] and matrices [R, X, H, T, T] for X chunks, with G = H or 1; l, w and o are [R, X, H, P] of
// P positions with T / P rows each, D [R, H]. Rows are padded to whole vectors; what is behind t's position is zero.

#include "_native.h"

typedef struct {
  int64_t replicas, chunks, groups, heads, rows, positions;
} Sizes;

static inline int64_t padded(int64_t rows) { return blocks(rows) * LANES; }

// Of positions as of rows, zero behind the end.
static void by_row(const real *restrict x, real *restrict found, const Sizes *at) {
  const int64_t rank = at->rows / at->positions;
  for (int64_t t = 0; t < padded(at->rows); t++) found[t] = t < at->rows ? x[t / rank] : 0;
}

static void by_position(const real *restrict x, real *restrict found, const Sizes *at) {
  const int64_t rank = at->rows / at->positions;
  for (int64_t p = 0; p < at->positions; p++) {
    found[p] = 0;
    for (int64_t r = 0; r < rank; r++) found[p] += x[p * rank + r];
  }
}

// exp(l_t - l_s) of all s in whole vectors: behind t's position they are not read.
static inline void decays(const real *restrict l, int64_t t, real *restrict e) {
  for (int64_t from = 0; from <= t; from += LANES)
    SIMD for (int64_t s = from; s < from + LANES; s++) {
      const real x = l[t] - l[s];
      e[s] = exp_of(x < 0 ? x : 0);
    }
}

void chunk_forward(const real *restrict scores, const real *restrict l, const real *restrict weight,
                   const real *restrict own, const real *restrict skip, real *restrict matrix, const Sizes *at) {
  const int64_t T = at->rows, P = at->positions, H = at->heads, rank = T / P, wide = padded(T);
  real *room = malloc(4 * wide * sizeof(real));
  real *restrict l_T = room, *restrict w_T = l_T + wide, *restrict o_T = w_T + wide, *restrict e = o_T + wide;
  for (int64_t x = 0; x < at->replicas * at->chunks * H; x++) {
    const real D = skip[x / (at->chunks * H) * H + x % H];
    const real *restrict S = scores + (at->groups == 1 ? x / H : x) * T * T;
    real *restrict M = matrix + x * T * T;
    by_row(l + x * P, l_T, at);
    by_row(weight + x * P, w_T, at);
    by_row(own + x * P, o_T, at);
    for (int64_t t = 0; t < T; t++) {
      const int64_t first = t / rank * rank;
      const real *restrict S_t = S + t * T;
      real *restrict M_t = M + t * T;
      decays(l_T, t, e);
      SIMD for (int64_t s = 0; s < first; s++) M_t[s] = S_t[s] * e[s] * w_T[s];
      for (int64_t s = first; s < first + rank; s++) M_t[s] = S_t[s] * o_T[s];
      M_t[t] += D;
      for (int64_t s = first + rank; s < T; s++) M_t[s] = 0;
    }
  }
  free(room);
}

// d_skip is added to; all others are written.
void chunk_backward(const real *restrict scores, const real *restrict l, const real *restrict weight,
                    const real *restrict own, const real *restrict d_matrix, real *restrict d_scores,
                    real *restrict d_l, real *restrict d_weight, real *restrict d_own, real *restrict d_skip,
                    const Sizes *at) {
  const int64_t T = at->rows, P = at->positions, H = at->heads, rank = T / P, wide = padded(T);
  real *room = malloc(7 * wide * sizeof(real));
  real *restrict l_T = room, *restrict w_T = l_T + wide, *restrict o_T = w_T + wide, *restrict e = o_T + wide;
  real *restrict of_l = e + wide, *restrict of_w = of_l + wide, *restrict of_o = of_w + wide;
  for (int64_t x = 0; x < at->replicas * at->chunks * H; x++) {
    const int64_t group = at->groups == 1 ? x / H : x, adds = at->groups == 1 && x % H;
    const real *restrict S = scores + group * T * T, *restrict d_M = d_matrix + x * T * T;
    real *restrict d_S = d_scores + group * T * T, of_D = 0;
    by_row(l + x * P, l_T, at);
    by_row(weight + x * P, w_T, at);
    by_row(own + x * P, o_T, at);
    memset(of_l, 0, 3 * wide * sizeof(real));
    if (!adds) memset(d_S, 0, T * T * sizeof(real));
    for (int64_t t = 0; t < T; t++) {
      const int64_t first = t / rank * rank;
      const real *restrict S_t = S + t * T, *restrict d_M_t = d_M + t * T;
      real *restrict d_S_t = d_S + t * T, of_t = 0;
      decays(l_T, t, e);
      _Pragma("omp simd reduction(+ : of_t)") for (int64_t s = 0; s < first; s++) {
        const real d = d_M_t[s] * e[s], of_weight = d * S_t[s], of_exponent = of_weight * w_T[s];
        d_S_t[s] += d * w_T[s];
        of_w[s] += of_weight;
        of_l[s] -= of_exponent;
        of_t += of_exponent;
      }
      of_l[t] += of_t;
      for (int64_t s = first; s < first + rank; s++) {
        d_S_t[s] += d_M_t[s] * o_T[s];
        of_o[s] += d_M_t[s] * S_t[s];
      }
      of_D += d_M_t[t];
    }
    d_skip[x / (at->chunks * H) * H + x % H] += of_D;
    by_position(of_l, d_l + x * P, at);
    by_position(of_w, d_weight + x * P, at);
    by_position(of_o, d_own + x * P, at);
  }
  free(room);
}
