// State space duality in chunks of positions of R rows each, and the way back: `ssd_chunks` in models/scans/ssd.py.
//
//     M_ts = S_ts exp(l_t - l_s) w_s for rows s of earlier positions, S_ts o_s for those of t's own, and + D if s = t
//     Y = M U + e C h        h' = A h + B^T (f U)        S = C B^T        e = exp(l)        f = exp(l_P - l) w
//
// for a chunk from the state h, A = exp(l_P) what is left of it behind the chunk's last position P. U and Y are
// [X, L, H, R, K], B and C [X, L, G, R, N] with G = H or 1, log a, w and o [X, L, H], D one for each of H and as many X
// as there are of a replica, states [X, H, N, K]. U, B and C may stand apart from position to position.

#include "_native_ssd.h"

// h, `last` and `starts`, all chunks' first states in whole vectors, may be null.
void ssd_forward(const real *restrict u, const real *restrict log_a, const real *restrict B, const real *restrict C,
                 const real *restrict h, const real *restrict weight, const real *restrict own,
                 const real *restrict skip, real *restrict y, real *restrict last, real *restrict starts,
                 const Sizes *at) {
  NEXT_TO_NOTHING_IS_NOTHING
  const int64_t T = most_rows(at), N = at->states, wide = blocks(at->values), deep = blocks(N), chunks = chunks_of(at);
  const int64_t H = at->heads, per = H / at->groups, each = at->rank * at->values, state = N * wide;
  int64_t size[SHARED + 4];
  lanes *room[SHARED + 4];
  shared_sizes(at, size);
  const int64_t more[] = {T * wide, T * wide, T * deep, per * state};
  memcpy(size + SHARED, more, sizeof(more));
  rooms_for(SHARED + 4, size, room);
  lanes *restrict M = room[4], *restrict U = room[6], *restrict Y = room[7], *restrict written = room[8];
  lanes *restrict asked = room[9], *states = room[10];
  Head head = head_in(room[5], at);
  real *restrict e = (real *)(room[5] + 5 * blocks(T));
  for (int64_t x = 0; x < at->replicas * at->batch; x++)
    for (int64_t group = 0; group < at->groups; group++) {
      for (int64_t j = 0; j < per; j++)
        read_state(h, x * H + group * per + j, states + j * state, at);
      for (int64_t c = 0; c < chunks; c++) {
        const Chunk in = chunk_at(c, x, group, B, C, at, room);
        const int has_state = c > 0 || h, goes_on = c + 1 < chunks || last;
        for (int64_t j = 0; j < per; j++) {
          const int64_t of = group * per + j, row = x * at->length + in.first, places = x * at->length * H + of;
          lanes *restrict h_j = states + j * state;
          read_head(log_a + places, weight + places, own + places, &in, at, &head);
          put_in(u + row * at->u_apart + of * each, at->u_apart, at->values, &in, at, U);
          matrix_of(&in, &head, skip[x / at->batch * H + of], at, e, M);
          times_lower(M, U, wide, &in, at, Y, 0);
          if (has_state) {
            scaled(in.C, head.e, in.rows, deep, asked);
            times(asked, deep * LANES, 1, in.rows, N, h_j, wide, Y, 1);
          }
          put_out(Y, H * each, at->values, &in, at, y + row * H * each + of * each);
          if (starts) memcpy(starts + ((x * chunks + c) * H + of) * state * LANES, h_j, state * sizeof(lanes));
          if (goes_on) {
            scaled(U, head.f, in.rows, wide, written);
            for (int64_t i = 0; i < state; i++) h_j[i] *= head.left;
            times(in.B, 1, deep * LANES, N, in.rows, written, wide, h_j, 1);
          }
        }
      }
      for (int64_t j = 0; j < per && last; j++)
        take_rows(states + j * state, N, at->values, last + (x * H + group * per + j) * N * at->values);
    }
  free(room[0]);
}

typedef struct {
  real *l, *w, *o, skip;
} Found;

// From the gradient of M: those of the scores, which are added to, of weights and of sums of log decays.
static void matrix_back(const Chunk *in, const Head *of, const lanes *restrict d_M, const Sizes *at, real *restrict e,
                        lanes *restrict d_S, Found *to) {
  const int64_t wide = blocks(in->rows), rank = at->rank;
  for (int64_t t = 0; t < in->rows; t++) {
    const int64_t before = t / rank * rank;
    const real *restrict S_t = (const real *)(in->S + t * wide), *restrict d_M_t = (const real *)(d_M + t * wide);
    real *restrict d_S_t = (real *)(d_S + t * wide), of_t = 0;
    decays(of->l, t, before, e);
    _Pragma("omp simd reduction(+ : of_t)") for (int64_t s = 0; s < before; s++) {
      const real d = d_M_t[s] * e[s], of_weight = d * S_t[s], of_exponent = of_weight * of->w[s];
      d_S_t[s] += d * of->w[s];
      to->w[s] += of_weight;
      to->l[s] -= of_exponent;
      of_t += of_exponent;
    }
    to->l[t] += of_t;
    for (int64_t s = before; s < before + rank; s++) {
      d_S_t[s] += d_M_t[s] * of->o[s];
      to->o[s] += d_M_t[s] * S_t[s];
    }
    to->skip += d_M_t[t];
  }
}

static inline real dot(const lanes *restrict a, const lanes *restrict b, int64_t count) {
  lanes sum = {0};
  for (int64_t i = 0; i < count; i++) sum += a[i] * b[i];
  return sum_of(sum);
}

// Of rows to positions; of sums of log decays to these.
static void write_head(const Found *from, const Chunk *in, const Sizes *at, real *restrict d_log_a,
                       real *restrict d_weight, real *restrict d_own) {
  real later = 0;
  for (int64_t p = in->positions - 1; p >= 0; p--) {
    real w = 0, o = 0;
    for (int64_t t = p * at->rank; t < (p + 1) * at->rank; t++) later += from->l[t], w += from->w[t], o += from->o[t];
    const int64_t to = (in->first + p) * at->heads;
    d_log_a[to] = later, d_weight[to] = w, d_own[to] = o;
  }
}

// All gradients are written, but skip's, which is added to, and that of h, where that of the last state is found and
// that of the first is left. Without h no last state was asked for.
void ssd_backward(const real *restrict u, const real *restrict log_a, const real *restrict B, const real *restrict C,
                  const real *restrict h, const real *restrict weight, const real *restrict own,
                  const real *restrict skip, const real *restrict starts, const real *restrict d_y,
                  real *restrict d_u, real *restrict d_log_a, real *restrict d_B, real *restrict d_C,
                  real *restrict d_h, real *restrict d_weight, real *restrict d_own, real *restrict d_skip,
                  const Sizes *at) {
  NEXT_TO_NOTHING_IS_NOTHING
  const int64_t T = most_rows(at), N = at->states, wide = blocks(at->values), deep = blocks(N), chunks = chunks_of(at);
  const int64_t H = at->heads, per = H / at->groups, each = at->rank * at->values, state = N * wide;
  int64_t size[SHARED + 11];
  lanes *room[SHARED + 11];
  shared_sizes(at, size);
  const int64_t more[] = {T * wide, T * wide, T * deep, T * deep, T * deep, T * deep, T * blocks(T), T * blocks(T),
                          3 * blocks(T), per * state, T * wide};
  memcpy(size + SHARED, more, sizeof(more));
  rooms_for(SHARED + 11, size, room);
  lanes *restrict M = room[4], *restrict U = room[6], *restrict d_Y = room[7], *restrict d_U = room[8];
  lanes *restrict of_C = room[9], *restrict of_B = room[10], *restrict seen = room[11], *restrict asked = room[12];
  lanes *restrict d_M = room[13], *restrict d_S = room[14], *states = room[16], *restrict from_state = room[17];
  Head head = head_in(room[5], at);
  real *restrict e = (real *)(room[5] + 5 * blocks(T)), *restrict sums = (real *)room[15];
  for (int64_t x = 0; x < at->replicas * at->batch; x++)
    for (int64_t group = 0; group < at->groups; group++) {
      for (int64_t j = 0; j < per; j++)
        read_state(h ? d_h : NULL, x * H + group * per + j, states + j * state, at);
      for (int64_t c = chunks - 1; c >= 0; c--) {
        const Chunk in = chunk_at(c, x, group, B, C, at, room);
        const int has_state = c > 0 || h, goes_on = c + 1 < chunks || h;
        memset(d_S, 0, in.rows * blocks(in.rows) * sizeof(lanes));
        memset(of_B, 0, in.rows * deep * sizeof(lanes));
        memset(of_C, 0, in.rows * deep * sizeof(lanes));
        for (int64_t j = 0; j < per; j++) {
          const int64_t of = group * per + j, row = x * at->length + in.first, places = x * at->length * H + of;
          const lanes *restrict h_j = (const lanes *)starts + ((x * chunks + c) * H + of) * state;
          lanes *restrict d_h_j = states + j * state;
          Found found = {sums, sums + T, sums + 2 * T, 0};
          memset(sums, 0, 3 * T * sizeof(real));
          read_head(log_a + places, weight + places, own + places, &in, at, &head);
          put_in(u + row * at->u_apart + of * each, at->u_apart, at->values, &in, at, U);
          put_in(d_y + row * H * each + of * each, H * each, at->values, &in, at, d_Y);
          matrix_of(&in, &head, skip[x / at->batch * H + of], at, e, M);
          times_turned(d_Y, in.rows, U, in.rows, at->values, room[3], d_M, 0);
          matrix_back(&in, &head, d_M, at, e, d_S, &found);
          times_upper(M, d_Y, wide, &in, at, d_U, 0);
          real of_end = 0;
          if (goes_on) {
            times(in.B, deep * LANES, 1, in.rows, N, d_h_j, wide, from_state, 0);
            times_turned(U, in.rows, d_h_j, N, at->values, room[3], seen, 0);
            for (int64_t t = 0; t < in.rows; t++) {
              for (int64_t b = 0; b < wide; b++) d_U[t * wide + b] += head.f[t] * from_state[t * wide + b];
              for (int64_t b = 0; b < deep; b++) of_B[t * deep + b] += head.f[t] * seen[t * deep + b];
              const real of_f = dot(in.B + t * deep, seen + t * deep, deep);
              found.w[t] += of_f * decay(head.l[in.rows - 1] - head.l[t]);
              found.l[t] -= of_f * head.f[t];
              of_end += of_f * head.f[t];
            }
            if (has_state) of_end += head.left * dot(h_j, d_h_j, state);
            for (int64_t i = 0; i < state; i++) d_h_j[i] *= head.left;
          }
          if (has_state) {
            times_turned(d_Y, in.rows, h_j, N, at->values, room[3], seen, 0);
            for (int64_t t = 0; t < in.rows; t++) {
              for (int64_t b = 0; b < deep; b++) of_C[t * deep + b] += head.e[t] * seen[t * deep + b];
              found.l[t] += head.e[t] * dot(in.C + t * deep, seen + t * deep, deep);
            }
            scaled(in.C, head.e, in.rows, deep, asked);
            times(asked, 1, deep * LANES, N, in.rows, d_Y, wide, d_h_j, 1);
          }
          found.l[in.rows - 1] += of_end;
          write_head(&found, &in, at, d_log_a + places, d_weight + places, d_own + places);
          d_skip[x / at->batch * H + of] += found.skip;
          put_out(d_U, H * each, at->values, &in, at, d_u + row * H * each + of * each);
        }
        times_lower(d_S, in.B, deep, &in, at, of_C, 1);
        times_upper(d_S, in.C, deep, &in, at, of_B, 1);
        const int64_t to = (x * at->length + in.first) * at->groups + group, wider = at->rank * N;
        put_out(of_B, at->groups * wider, N, &in, at, d_B + to * wider);
        put_out(of_C, at->groups * wider, N, &in, at, d_C + to * wider);
      }
      for (int64_t j = 0; j < per && h; j++)
        take_rows(states + j * state, N, at->values, d_h + (x * H + group * per + j) * N * at->values);
    }
  free(room[0]);
}
