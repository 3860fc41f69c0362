// The recurrence of PD-SSM and its way back: models/scans/one_hot.py has the equations.
//
// share is [R, T, K] of T = B L tokens, maps [R, K, N, N], and d, b and h are [R, B, L, N, 2], real and imaginary parts;
// place [R, B, L, N]. Of the scores M = sum_k share_k A_k, and of their gradient, there is one row of LANES tokens at a
// time: a lane is a token, so that the largest of a row, its softmax and the sums over it are all of whole vectors.
// What the maps' gradient sums over tokens has FEW maps for its lanes. Tokens and maps are padded with zeros.

#include "_native.h"

#define FEW 8

typedef real few __attribute__((vector_size(FEW * sizeof(real)), aligned(sizeof(real)), may_alias));

typedef struct {
  int64_t replicas, batch, length, places, maps;
  int64_t gathers;
} Sizes;

static inline int64_t parts(const Sizes *at) { return (at->maps + FEW - 1) / FEW; }

// Of lanes that are all ones or all zeros, as comparisons give them.
static inline whole chosen(whole where, whole one, whole other) { return (one & where) | (other & ~where); }

// From [K, N, N] to [N, parts, N, FEW], and back.
static void maps_by_row(const real *restrict maps, real *restrict A, const Sizes *at) {
  const int64_t N = at->places;
  for (int64_t k = 0; k < at->maps; k++)
    for (int64_t n = 0; n < N; n++)
      for (int64_t m = 0; m < N; m++)
        A[((n * parts(at) + k / FEW) * N + m) * FEW + k % FEW] = maps[(k * N + n) * N + m];
}

static void maps_by_map(const real *restrict A, real *restrict maps, const Sizes *at) {
  const int64_t N = at->places;
  for (int64_t k = 0; k < at->maps; k++)
    for (int64_t n = 0; n < N; n++)
      for (int64_t m = 0; m < N; m++)
        maps[(k * N + n) * N + m] = A[((n * parts(at) + k / FEW) * N + m) * FEW + k % FEW];
}

// M[m], of one row of the maps: share is [parts * FEW, LANES], A [parts, N, FEW].
static inline void scores(const lanes *restrict share, const real *restrict A, lanes *restrict M, const Sizes *at) {
  const int64_t N = at->places;
  for (int64_t part = 0; part < parts(at); part++) {
    lanes s[FEW];
    memcpy(s, share + part * FEW, sizeof(s));
    for (int64_t m = 0; m < N; m++) {
      const real *restrict a = A + (part * N + m) * FEW;
      lanes sum = {0};
      if (part) sum = M[m];
      for (int64_t k = 0; k < FEW; k++) sum += s[k] * a[k];
      M[m] = sum;
    }
  }
}

// Where the first of the largest is; one of what is no number is never larger than another.
static inline whole largest_of(const lanes *restrict M, int64_t count) {
  lanes best = M[0];
  whole where = {0};
  for (int64_t m = 1; m < count; m++) {
    const whole larger = (whole)(M[m] > best);
    where = chosen(larger, (whole){0} + (integer)m, where);
    best = (lanes)chosen(larger, (whole)M[m], (whole)best);
  }
  return where;
}

void one_hot_forward(const real *restrict share, const real *restrict maps, const real *restrict d,
                     const real *restrict b, const real *restrict first, real *restrict h, int32_t *restrict place,
                     const Sizes *at) {
  const int64_t N = at->places, K = at->maps, tokens = at->batch * at->length, row = parts(at) * FEW * N;
  lanes *room = calloc(parts(at) * FEW + N, sizeof(lanes));
  lanes *restrict s = room, *restrict M = s + parts(at) * FEW;
  real *restrict A = calloc(N * row, sizeof(real));
  for (int64_t replica = 0; replica < at->replicas; replica++) {
    const int64_t own = replica * tokens;
    maps_by_row(maps + replica * K * N * N, A, at);
    for (int64_t from = 0; from < tokens; from += LANES) {
      const int64_t count = tokens - from < LANES ? tokens - from : LANES;
      across(share + (own + from) * K, K, s, count, K);
      for (int64_t n = 0; n < N; n++) {
        scores(s, A + n * row, M, at);
        const whole where = largest_of(M, N);
        for (int64_t token = 0; token < count; token++) place[(own + from + token) * N + n] = (int32_t)where[token];
      }
    }
  }
  for (int64_t now = 0; now < at->replicas * tokens; now++) {
    const real *restrict d_t = d + now * 2 * N, *restrict b_t = b + now * 2 * N;
    const real *before = now % at->length ? h + (now - 1) * 2 * N : first + now / at->length * 2 * N;
    const int32_t *restrict p = place + now * N;
    real *h_t = h + now * 2 * N;
    if (!at->gathers) memcpy(h_t, b_t, 2 * N * sizeof(real));
    for (int64_t n = 0; n < N; n++) {
      const int64_t of = at->gathers ? p[n] : n, to = at->gathers ? n : p[n];
      const real re = before[2 * of], im = before[2 * of + 1], d_re = d_t[2 * n], d_im = d_t[2 * n + 1];
      const real was_re = at->gathers ? b_t[2 * n] : h_t[2 * to], was_im = at->gathers ? b_t[2 * n + 1] : h_t[2 * to + 1];
      h_t[2 * to] = was_re + d_re * re - d_im * im;
      h_t[2 * to + 1] = was_im + d_re * im + d_im * re;
    }
  }
  free(room);
  free(A);
}

// From the last token of a row of strings to its first: g_t = dL/dh_t, which is b's gradient, and d's; `g` leaves as
// the gradient of the state at the start.
static void states_backward(const real *restrict d, const real *restrict first, const real *restrict h,
                            const int32_t *restrict place, const real *restrict d_h, real *restrict d_d,
                            real *restrict d_b, real *restrict g, const Sizes *at) {
  const int64_t N = at->places;
  memset(g, 0, 2 * N * sizeof(real));
  for (int64_t t = at->length - 1; t >= 0; t--) {
    const real *restrict before = t ? h + (t - 1) * 2 * N : first, *restrict d_t = d + t * 2 * N;
    const int32_t *restrict p = place + t * N;
    real *restrict g_t = d_b + t * 2 * N, *restrict d_d_t = d_d + t * 2 * N;
    SIMD for (int64_t i = 0; i < 2 * N; i++) g_t[i] = d_h[t * 2 * N + i] + g[i];
    if (at->gathers) memset(g, 0, 2 * N * sizeof(real));
    for (int64_t n = 0; n < N; n++) {
      const int64_t of = at->gathers ? p[n] : n, to = at->gathers ? n : p[n];
      const real re = g_t[2 * to], im = g_t[2 * to + 1], d_re = d_t[2 * n], d_im = d_t[2 * n + 1];
      const real h_re = before[2 * of], h_im = before[2 * of + 1];
      d_d_t[2 * n] = re * h_re + im * h_im;
      d_d_t[2 * n + 1] = im * h_re - re * h_im;
      const real was_re = at->gathers ? g[2 * of] : 0, was_im = at->gathers ? g[2 * of + 1] : 0;
      g[2 * of] = was_re + re * d_re + im * d_im;
      g[2 * of + 1] = was_im + im * d_re - re * d_im;
    }
  }
}

// dL/dM of a row in place of M, from its largest and dL/dP = Re(row conj(column)).
static inline void through_softmax(lanes *restrict M, lanes top, const lanes *restrict row,
                                   const lanes *restrict column, lanes *restrict of_P, int64_t N) {
  lanes sum = {0}, dot = {0};
  for (int64_t m = 0; m < N; m++) {
    lanes e = M[m] - top;
    real *restrict e_lane = (real *)&e;
    SIMD for (int64_t lane = 0; lane < LANES; lane++) e_lane[lane] = exp_of(e_lane[lane]);
    const lanes d = row[0] * column[2 * m] + row[1] * column[2 * m + 1];
    M[m] = e, of_P[m] = d;
    sum += e, dot += e * d;
  }
  const lanes scale = 1 / sum, mean = dot * scale;
  for (int64_t m = 0; m < N; m++) M[m] *= scale * (of_P[m] - mean);
}

// d_share += A G, and d_A += G share, over the tokens.
static inline void to_maps(const lanes *restrict G, const real *restrict A, const real *restrict share,
                           lanes *restrict d_share, few *restrict d_A, const Sizes *at) {
  const int64_t N = at->places, width = parts(at) * FEW;
  for (int64_t part = 0; part < parts(at); part++) {
    lanes sum[FEW];
    few s[LANES];
    memcpy(sum, d_share + part * FEW, sizeof(sum));
    for (int64_t token = 0; token < LANES; token++) memcpy(s + token, share + token * width + part * FEW, sizeof(few));
    for (int64_t m = 0; m < N; m++) {
      const real *restrict a = A + (part * N + m) * FEW;
      for (int64_t k = 0; k < FEW; k++) sum[k] += G[m] * a[k];
    }
    memcpy(d_share + part * FEW, sum, sizeof(sum));
    for (int64_t m = 0; m < N; m++) {
      const real *restrict g = (const real *)(G + m);
      few even = d_A[part * N + m], odd = {0};
      for (int64_t token = 0; token < LANES; token += 2) even += g[token] * s[token], odd += g[token + 1] * s[token + 1];
      d_A[part * N + m] = even + odd;
    }
  }
}

void one_hot_backward(const real *restrict share, const real *restrict maps, const real *restrict d,
                      const real *restrict first, const real *restrict h, const int32_t *restrict place,
                      const real *restrict d_h, real *restrict d_share, real *restrict d_maps, real *restrict d_d,
                      real *restrict d_b, real *restrict d_first, const Sizes *at) {
  const int64_t N = at->places, K = at->maps, L = at->length, tokens = at->batch * L, width = parts(at) * FEW;
  lanes *room = calloc(2 * width + 6 * N, sizeof(lanes));
  lanes *restrict s = room, *restrict d_s = s + width, *restrict M = d_s + width, *restrict of_P = M + N;
  lanes *restrict row = of_P + N, *restrict column = row + 2 * N;
  real *maps_room = calloc(2 * N * width * N + LANES * (width + 4 * N), sizeof(real));
  real *restrict A = maps_room, *restrict d_A = A + N * width * N, *restrict s_by_token = d_A + N * width * N;
  real *restrict rows = s_by_token + LANES * width, *restrict columns = rows + LANES * 2 * N;
  for (int64_t replica = 0; replica < at->replicas; replica++) {
    maps_by_row(maps + replica * K * N * N, A, at);
    memset(d_A, 0, N * width * N * sizeof(real));
    for (int64_t string = replica * at->batch; string < (replica + 1) * at->batch; string++) {
      const int64_t here = string * L * 2 * N, start = string * 2 * N;
      states_backward(d + here, first + start, h + here, place + string * L * N, d_h + here, d_d + here, d_b + here,
                      d_first + start, at);
    }
    for (int64_t from = replica * tokens; from < (replica + 1) * tokens; from += LANES) {
      const int64_t left = (replica + 1) * tokens - from, count = left < LANES ? left : LANES;
      for (int64_t token = 0; token < count; token++) {
        const int64_t now = from + token;
        const real *restrict before = now % L ? h + (now - 1) * 2 * N : first + now / L * 2 * N;
        const real *restrict g = d_b + now * 2 * N, *restrict d_t = d + now * 2 * N;
        memcpy(s_by_token + token * width, share + now * K, K * sizeof(real));
        memcpy(columns + token * 2 * N, at->gathers ? before : g, 2 * N * sizeof(real));
        real *restrict row_t = rows + token * 2 * N;
        const real *restrict x = at->gathers ? g : before, sign = at->gathers ? -1 : 1;
        for (int64_t n = 0; n < N; n++) {  // g conj(d), or d h
          row_t[2 * n] = x[2 * n] * d_t[2 * n] - sign * x[2 * n + 1] * d_t[2 * n + 1];
          row_t[2 * n + 1] = x[2 * n + 1] * d_t[2 * n] + sign * x[2 * n] * d_t[2 * n + 1];
        }
      }
      for (int64_t token = count; token < LANES; token++) memset(s_by_token + token * width, 0, width * sizeof(real));
      across(s_by_token, width, s, count, width);
      across(rows, 2 * N, row, count, 2 * N);
      across(columns, 2 * N, column, count, 2 * N);
      memset(d_s, 0, width * sizeof(lanes));
      for (int64_t n = 0; n < N; n++) {
        const int64_t own = n * width * N;
        scores(s, A + own, M, at);
        lanes top = {0};
        for (int64_t token = 0; token < count; token++) top[token] = M[place[(from + token) * N + n]][token];
        through_softmax(M, top, row + 2 * n, column, of_P, N);
        to_maps(M, A + own, s_by_token, d_s, (few *)(d_A + own), at);
      }
      for (int64_t token = 0; token < count; token++)
        for (int64_t k = 0; k < K; k++) d_share[(from + token) * K + k] = d_s[k][token];
    }
    maps_by_map(d_A, d_maps + replica * K * N * N, at);
  }
  free(room);
  free(maps_room);
}
