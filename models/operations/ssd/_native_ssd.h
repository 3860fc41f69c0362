// What both ways of _native_ssd.c share: a chunk, its matrix, and products with matrices and their transposes.

#include "_native_rows.h"

typedef struct {
  int64_t replicas, batch, length, heads, groups, rank, states, values;
  int64_t chunk;                      // positions
  int64_t u_apart, b_apart, c_apart;  // numbers from position to position
} Sizes;

// A chunk's rows as whole vectors, `wide` of them, and what is found of it on the way.
typedef struct {
  int64_t positions, rows, first;  // its first position
  lanes *C, *B, *S;
} Chunk;

static inline int64_t chunks_of(const Sizes *at) { return (at->length + at->chunk - 1) / at->chunk; }
static inline int64_t most_rows(const Sizes *at) { return at->chunk * at->rank; }

// Rows of `each` numbers, R of every position: one follows the other, positions stand apart.
static void put_in(const real *restrict x, int64_t apart, int64_t each, const Chunk *in, const Sizes *at,
                   lanes *restrict found) {
  const int64_t wide = blocks(each);
  for (int64_t p = 0; p < in->positions; p++, x += apart)
    for (int64_t r = 0; r < at->rank; r++, found += wide)
      for (int64_t b = 0; b < wide; b++) found[b] = block_of(x + r * each, b, each);
}

static void put_out(const lanes *restrict found, int64_t apart, int64_t each, const Chunk *in, const Sizes *at,
                    real *restrict x) {
  const int64_t wide = blocks(each);
  for (int64_t p = 0; p < in->positions; p++, x += apart)
    for (int64_t r = 0; r < at->rank; r++, found += wide)
      for (int64_t b = 0; b < wide; b++) put_block(x + r * each, b, each, found[b]);
}

// Of state `place` of all, which may be none.
static void read_state(const real *restrict h, int64_t place, lanes *restrict found, const Sizes *at) {
  const int64_t wide = blocks(at->values);
  if (h) put_rows(h + place * at->states * at->values, at->states, at->values, found);
  else memset(found, 0, at->states * wide * sizeof(lanes));
}

static inline void scaled(const lanes *restrict rows, const real *restrict by, int64_t count, int64_t wide,
                          lanes *restrict found) {
  for (int64_t t = 0; t < count; t++)
    for (int64_t b = 0; b < wide; b++) found[t * wide + b] = by[t] * rows[t * wide + b];
}

// e^l of what is not above 0, and next to nothing is nothing.
static inline real decay(real l) {
  const real e = exp_of(l > 0 ? 0 : l);  // no number stays none
  return l < -87 ? 0 : e;
}

// Of a head's numbers, one a position, all that the chunk's rows ask: e, f, w and o, and A.
typedef struct {
  real *l, *e, *f, *w, *o, left;
} Head;

static void read_head(const real *restrict log_a, const real *restrict weight, const real *restrict own,
                      const Chunk *in, const Sizes *at, Head *to) {
  real sum = 0;
  int64_t t = 0;
  for (int64_t p = in->first; p < in->first + in->positions; p++) {
    sum += log_a[p * at->heads];
    for (int64_t r = 0; r < at->rank; r++, t++)
      to->l[t] = sum, to->w[t] = weight[p * at->heads], to->o[t] = own[p * at->heads];
  }
  for (; t < blocks(in->rows) * LANES; t++) to->l[t] = sum, to->w[t] = to->o[t] = 0;
  SIMD for (int64_t s = 0; s < blocks(in->rows) * LANES; s++) {
    to->e[s] = decay(to->l[s]);
    to->f[s] = decay(sum - to->l[s]) * to->w[s];
  }
  to->left = decay(sum);
}

// exp(l_t - l_s) of earlier s in whole vectors: from t's position on they are not read.
static inline void decays(const real *restrict l, int64_t t, int64_t before, real *restrict found) {
  for (int64_t from = 0; from < before; from += LANES)
    SIMD for (int64_t s = from; s < from + LANES; s++) found[s] = decay(l[t] - l[s]);
}

static void matrix_of(const Chunk *in, const Head *of, real skip, const Sizes *at, real *restrict e,
                      lanes *restrict M) {
  const int64_t wide = blocks(in->rows), rank = at->rank;
  for (int64_t t = 0; t < in->rows; t++) {
    const int64_t before = t / rank * rank;
    const real *restrict S_t = (const real *)(in->S + t * wide);
    real *restrict M_t = (real *)(M + t * wide);
    decays(of->l, t, before, e);
    SIMD for (int64_t s = 0; s < before; s++) M_t[s] = S_t[s] * e[s] * of->w[s];
    for (int64_t s = before; s < before + rank; s++) M_t[s] = S_t[s] * of->o[s];
    M_t[t] += skip;
    for (int64_t s = before + rank; s < wide * LANES; s++) M_t[s] = 0;
  }
}

// M x and M^T x of a matrix that is zero from a position behind the row's on.
static void times_lower(const lanes *restrict M, const lanes *restrict x, int64_t wide, const Chunk *in,
                        const Sizes *at, lanes *restrict y, int adds) {
  const int64_t down = blocks(in->rows);
  for (int64_t t = 0; t < in->rows; t += 8) {
    const int64_t end = t + 8 < in->rows ? t + 8 : in->rows, seen = (end + at->rank - 1) / at->rank * at->rank;
    times(M + t * down, down * LANES, 1, end - t, seen, x, wide, y + t * wide, adds);
  }
}

static void times_upper(const lanes *restrict M, const lanes *restrict x, int64_t wide, const Chunk *in,
                        const Sizes *at, lanes *restrict y, int adds) {
  const int64_t down = blocks(in->rows);
  for (int64_t s = 0; s < in->rows; s += 8) {
    const int64_t end = s + 8 < in->rows ? s + 8 : in->rows, first = s / at->rank * at->rank;
    const real *from = (const real *)(M + first * down) + s;
    times((const lanes *)from, 1, down * LANES, end - s, in->rows - first, x + first * wide, wide, y + s * wide, adds);
  }
}

static Chunk chunk_at(int64_t c, int64_t x, int64_t group, const real *restrict B, const real *restrict C,
                      const Sizes *at, lanes *restrict *room) {
  const int64_t first = c * at->chunk, left = at->length - first, positions = left < at->chunk ? left : at->chunk;
  const Chunk found = {positions, positions * at->rank, first, room[0], room[1], room[2]};
  const int64_t row = x * at->length + first, head = group * at->rank * at->states;
  put_in(C + row * at->c_apart + head, at->c_apart, at->states, &found, at, found.C);
  put_in(B + row * at->b_apart + head, at->b_apart, at->states, &found, at, found.B);
  times_turned(found.C, found.rows, found.B, found.rows, at->states, room[3], found.S, 0);
  return found;
}

// The first rooms of both ways: C, B, S, what is turned, M, numbers of a head, U and what else is as wide.
enum { OF_HEAD = 6, SHARED = 7 };

static void shared_sizes(const Sizes *at, int64_t *restrict size) {
  const int64_t T = most_rows(at), N = blocks(at->states), K = blocks(at->values);
  const int64_t widest = at->states > at->values ? at->states : at->values;
  const int64_t asked[SHARED] = {T * N, T * N, T * blocks(T), widest, T * blocks(T), OF_HEAD * blocks(T), T * K};
  memcpy(size, asked, sizeof(asked));
}

static Head head_in(lanes *room, const Sizes *at) {
  const int64_t wide = blocks(most_rows(at)) * LANES;
  real *restrict from = (real *)room;
  return (Head){from, from + wide, from + 2 * wide, from + 3 * wide, from + 4 * wide, 0};
}
