// Fast weights from the first token on, in mini-batches of C: `fast_weights_from` in models/scans/fast_weights.py.
//
//     u_s = k_s M + m        n_s = (u_s - E(u_s)) p_s        e_s = g (g n_s + b - (v_s - k_s))
//     d_s = (e_s - E(e_s) - n_s E(e_s n_s)) p_s        z_t = q_t M + m - r_t sum_{s <= t} c_s (q_t k_s + 1) d_s
//
// with E the mean of a row, p one over its deviation, g the norm's scale and b its shift; and behind a mini-batch M
// less r_C sum_s c_s k_s^T d_s, m less r_C sum_s c_s d_s. q, k, v and z are [X, H, L, K], rates c [X, H, L] and r
// [R, C], scale and shift [R, H, K], M [X, H, K + 1, K] with m its last row, and as many X as there are of a replica R.

#include "_native_rows.h"

typedef struct {
  int64_t replicas, batch, heads, length, width, size;
} Sizes;

static const real NORM_EPS = (real)1e-6;

// A mini-batch: rows in whole vectors, zero behind `width`, and numbers of its tokens.
typedef struct {
  int64_t tokens, wide;
  lanes *q, *k, *goal, *n, *e, *d, *scores, *scale, *shift, *is_there;
  real *p, *along, *rate, *sum;  // along: E(e n)
  const real *place_rate;
} Batch;

enum { ROOMS = 14 };

static int64_t mini_batches(const Sizes *at) { return (at->length + at->size - 1) / at->size; }

static Batch rooms_of(const Sizes *at, lanes **room) {
  const int64_t wide = blocks(at->width), rows = blocks(at->size) * LANES * wide, numbers = blocks(at->size);
  const int64_t size[ROOMS] = {rows, rows, rows, rows,    rows,    rows,    rows / wide * numbers,
                               wide, wide, wide, numbers, numbers, numbers, numbers};
  rooms_for(ROOMS, size, room);
  const Batch found = {0, wide, room[0], room[1], room[2], room[3], room[4], room[5], room[6], room[7], room[8],
                       room[9], (real *)room[10], (real *)room[11], (real *)room[12], (real *)room[13], NULL};
  for (int64_t k = 0; k < at->width; k++) ((real *)found.is_there)[k] = 1;
  return found;
}

// Of each row the sum of a b, or of a.
static void row_sums(const lanes *a, const lanes *b, int64_t count, int64_t wide, real *restrict found) {
  for (int64_t t = 0; t < count; t += LANES) {
    lanes r[LANES] = {{0}};
    for (int64_t i = 0; i < LANES && t + i < count; i++)
      for (int64_t v = (t + i) * wide; v < (t + i + 1) * wide; v++) {
        if (b) r[i] += a[v] * b[v];
        else r[i] += a[v];
      }
    *(lanes *)(found + t) = sums_within(r);
  }
}

static void less_mean(lanes *restrict a, const Batch *in, int64_t width) {
  row_sums(a, NULL, in->tokens, in->wide, in->sum);
  for (int64_t t = 0; t < in->tokens; t++)
    for (int64_t v = 0; v < in->wide; v++) a[t * in->wide + v] -= in->sum[t] / width * in->is_there[v];
}

// From u, where n is to be, to d.
static void descend(const Batch *in, int64_t width) {
  const int64_t tokens = in->tokens, wide = in->wide;
  less_mean(in->n, in, width);
  row_sums(in->n, in->n, tokens, wide, in->p);
  for (int64_t t = 0; t < tokens; t++) {
    in->p[t] = 1 / (real)sqrt(in->p[t] / width + NORM_EPS);
    for (int64_t v = 0, i = t * wide; v < wide; v++, i++) {
      in->n[i] *= in->p[t];
      in->e[i] = in->d[i] = in->scale[v] * (in->scale[v] * in->n[i] + in->shift[v] - in->goal[i]);
    }
  }
  less_mean(in->d, in, width);
  row_sums(in->e, in->n, tokens, wide, in->along);
  for (int64_t t = 0; t < tokens; t++) {
    in->along[t] /= width;
    for (int64_t i = t * wide; i < (t + 1) * wide; i++) in->d[i] = (in->d[i] - in->along[t] * in->n[i]) * in->p[t];
  }
}

// All of a mini-batch that both ways need: what was asked and given, q_t k_s + 1, and the descent from M.
static void read_batch(Batch *in, int64_t first, int64_t head, const real *restrict q, const real *restrict k,
                       const real *restrict v, const real *restrict rate, const lanes *restrict M,
                       lanes *restrict turned, const Sizes *at) {
  const int64_t left = at->length - first, width = at->width, wide = in->wide, row = head * at->length + first;
  in->tokens = left < at->size ? left : at->size;
  put_rows(q + row * width, in->tokens, width, in->q);
  put_rows(k + row * width, in->tokens, width, in->k);
  put_rows(v + row * width, in->tokens, width, in->goal);
  for (int64_t i = 0; i < in->tokens * wide; i++) in->goal[i] -= in->k[i];
  memcpy(in->rate, rate + row, in->tokens * sizeof(real));
  times_turned(in->q, in->tokens, in->k, in->tokens, width, turned, in->scores, 0);
  for (int64_t i = 0; i < in->tokens * blocks(in->tokens); i++) in->scores[i] += 1;
  for (int64_t t = 0; t < in->tokens; t++) memcpy(in->n + t * wide, M + width * wide, wide * sizeof(lanes));
  times(in->k, wide * LANES, 1, in->tokens, width, M, wide, in->n, 1);
  descend(in, width);
}

// - r_t c_s (q_t k_s + 1), or nothing behind t.
static void shares(const Batch *in, lanes *restrict found) {
  const int64_t wide = blocks(in->tokens);
  const real *restrict score = (const real *)in->scores;
  real *restrict share = (real *)found;
  for (int64_t t = 0; t < in->tokens; t++, score += wide * LANES, share += wide * LANES)
    for (int64_t s = 0; s < wide * LANES; s++) share[s] = s <= t ? -in->place_rate[t] * in->rate[s] * score[s] : 0;
}

static void scaled_keys(const Batch *in, real by, lanes *found) {
  for (int64_t t = 0; t < in->tokens; t++)
    for (int64_t i = t * in->wide; i < (t + 1) * in->wide; i++) found[i] = by * in->rate[t] * in->k[i];
}

static void norm_of(const real *restrict scale, const real *restrict shift, int64_t x, int64_t head, Batch *to,
                    const real *restrict place_rate, const Sizes *at) {
  const int64_t replica = x / at->batch, row = (replica * at->heads + head) * at->width;
  put_rows(scale + row, 1, at->width, to->scale);
  put_rows(shift + row, 1, at->width, to->shift);
  to->place_rate = place_rate + replica * at->size;
}

// `starts`, M before every mini-batch in whole vectors, may be null.
void fast_weights_forward(const real *restrict q, const real *restrict k, const real *restrict v,
                          const real *restrict rate, const real *restrict place_rate, const real *restrict scale,
                          const real *restrict shift, const real *restrict begin, real *restrict z,
                          real *restrict starts, const Sizes *at) {
  const int64_t width = at->width, wide = blocks(width), state = (width + 1) * wide, count = mini_batches(at);
  const int64_t rows = blocks(at->size) * LANES * wide;
  lanes *room[ROOMS], *more[4];
  Batch in = rooms_of(at, room);
  rooms_for(4, (int64_t[]){state, rows, width > at->size ? width : at->size, rows / wide * blocks(at->size)}, more);
  lanes *restrict M = more[0], *restrict rows_of_z = more[1], *restrict turned = more[2], *restrict share = more[3];
  for (int64_t x = 0; x < at->replicas * at->batch; x++)
    for (int64_t head = 0; head < at->heads; head++) {
      const int64_t place = x * at->heads + head;
      norm_of(scale, shift, x, head, &in, place_rate, at);
      put_rows(begin + place * (width + 1) * width, width + 1, width, M);
      for (int64_t b = 0; b < count; b++) {
        if (starts) memcpy(starts + (place * count + b) * state * LANES, M, state * sizeof(lanes));
        read_batch(&in, b * at->size, place, q, k, v, rate, M, turned, at);
        for (int64_t t = 0; t < in.tokens; t++) memcpy(rows_of_z + t * wide, M + width * wide, wide * sizeof(lanes));
        times(in.q, wide * LANES, 1, in.tokens, width, M, wide, rows_of_z, 1);
        shares(&in, share);
        times(share, blocks(in.tokens) * LANES, 1, in.tokens, in.tokens, in.d, wide, rows_of_z, 1);
        take_rows(rows_of_z, in.tokens, width, z + (place * at->length + b * at->size) * width);
        if (b + 1 == count) continue;
        const real last = -in.place_rate[at->size - 1];
        scaled_keys(&in, last, in.k);
        times(in.k, 1, wide * LANES, width, in.tokens, in.d, wide, M, 1);
        for (int64_t t = 0; t < in.tokens; t++)
          for (int64_t v = 0; v < wide; v++) M[width * wide + v] += last * in.rate[t] * in.d[t * wide + v];
      }
    }
  free(more[0]);
  free(room[0]);
}

// The way back through `descend`: from the gradient D of d, in whose place that of u is left, to those of goal, which
// takes its place, and of scale and shift, which are added to. `w` is room.
static void descend_back(const Batch *in, int64_t width, lanes *restrict D, lanes *restrict w, lanes *restrict d_scale,
                         lanes *restrict d_shift, real *restrict of_p) {
  const int64_t tokens = in->tokens, wide = in->wide;
  row_sums(D, in->d, tokens, wide, of_p);
  for (int64_t t = 0; t < tokens; t++)
    for (int64_t i = t * wide; i < (t + 1) * wide; i++) D[i] *= in->p[t], w[i] = D[i];
  less_mean(w, in, width);
  row_sums(D, in->n, tokens, wide, in->sum);
  for (int64_t t = 0; t < tokens; t++)
    for (int64_t v = 0, i = t * wide; v < wide; v++, i++) {
      const lanes g = in->scale[v], off = g * in->n[i] + in->shift[v] - in->goal[i];
      const lanes d_e = w[i] - in->n[i] * (in->sum[t] / width);
      d_scale[v] += d_e * (off + g * in->n[i]);
      d_shift[v] += g * d_e;
      in->goal[i] = -g * d_e;
      D[i] = g * g * d_e - in->along[t] * D[i] - in->sum[t] / width * in->e[i];
    }
  row_sums(D, in->n, tokens, wide, in->sum);
  for (int64_t t = 0; t < tokens; t++)
    for (int64_t i = t * wide; i < (t + 1) * wide; i++)
      D[i] = in->p[t] * (D[i] - in->n[i] * ((of_p[t] + in->sum[t]) / width));
  less_mean(D, in, width);
}

// The way back through the shares: from their gradient to that of q_t k_s + 1, in its place, and of both rates.
static void shares_back(const Batch *in, lanes *restrict d_share, real *restrict d_rate, real *restrict d_place_rate) {
  const int64_t wide = blocks(in->tokens) * LANES;
  for (int64_t t = 0; t < in->tokens; t++) {
    real *restrict d = (real *)d_share + t * wide, of_t = 0;
    const real *restrict score = (const real *)in->scores + t * wide;
    for (int64_t s = 0; s <= t; s++) {
      const real of_both = d[s] * score[s];
      of_t -= of_both * in->rate[s];
      d_rate[s] -= of_both * in->place_rate[t];
      d[s] *= -in->place_rate[t] * in->rate[s];
    }
    for (int64_t s = t + 1; s < wide; s++) d[s] = 0;
    d_place_rate[t] += of_t;
  }
}

// Gradients of place rates, scales and shifts are added to, all others written.
void fast_weights_backward(const real *restrict q, const real *restrict k, const real *restrict v,
                           const real *restrict rate, const real *restrict place_rate, const real *restrict scale,
                           const real *restrict shift, const real *restrict starts, const real *restrict d_z,
                           real *restrict d_q, real *restrict d_k, real *restrict d_v, real *restrict d_rate,
                           real *restrict d_place_rate, real *restrict d_scale, real *restrict d_shift,
                           real *restrict d_begin, const Sizes *at) {
  const int64_t width = at->width, wide = blocks(width), state = (width + 1) * wide, count = mini_batches(at);
  const int64_t rows = blocks(at->size) * LANES * wide, square = rows / wide * blocks(at->size);
  enum { MORE = 12 };
  lanes *room[ROOMS], *more[MORE];
  Batch in = rooms_of(at, room);
  const int64_t size[MORE] = {state, rows, rows, rows, rows, rows, square, square, width > at->size ? width : at->size,
                              blocks(at->size), wide, wide};
  rooms_for(MORE, size, more);
  lanes *restrict d_M = more[0], *restrict of_z = more[1], *restrict D = more[2], *restrict of_q = more[3];
  lanes *restrict of_k = more[4], *restrict free_rows = more[5], *restrict share = more[6], *restrict d_share = more[7];
  lanes *restrict turned = more[8], *restrict of_scale = more[10], *restrict of_shift = more[11];
  real *restrict of_p = (real *)more[9];
  for (int64_t x = 0; x < at->replicas * at->batch; x++)
    for (int64_t head = 0; head < at->heads; head++) {
      const int64_t place = x * at->heads + head, replica = x / at->batch;
      real *restrict of_places = d_place_rate + replica * at->size;
      norm_of(scale, shift, x, head, &in, place_rate, at);
      memset(d_M, 0, state * sizeof(lanes));
      memset(of_scale, 0, wide * sizeof(lanes));
      memset(of_shift, 0, wide * sizeof(lanes));
      for (int64_t b = count - 1; b >= 0; b--) {
        const lanes *restrict M = (const lanes *)starts + (place * count + b) * state;
        const int64_t row = place * at->length + b * at->size;
        read_batch(&in, b * at->size, place, q, k, v, rate, M, turned, at);
        put_rows(d_z + row * width, in.tokens, width, of_z);
        memset(D, 0, in.tokens * wide * sizeof(lanes));
        memset(of_k, 0, in.tokens * wide * sizeof(lanes));
        real *restrict of_rate = d_rate + row;
        memset(of_rate, 0, in.tokens * sizeof(real));
        if (b + 1 < count) {  // what was written into the next M
          const real last = -in.place_rate[at->size - 1];
          for (int64_t t = 0; t < in.tokens; t++) memcpy(D + t * wide, d_M + width * wide, wide * sizeof(lanes));
          times(in.k, wide * LANES, 1, in.tokens, width, d_M, wide, D, 1);
          row_sums(D, in.d, in.tokens, wide, in.sum);
          times_turned(in.d, in.tokens, d_M, width, width, turned, of_k, 0);
          for (int64_t t = 0; t < in.tokens; t++) {
            of_rate[t] = last * in.sum[t];
            of_places[at->size - 1] -= in.rate[t] * in.sum[t];
            for (int64_t i = t * wide; i < (t + 1) * wide; i++) D[i] *= last * in.rate[t], of_k[i] *= last * in.rate[t];
          }
        }
        shares(&in, share);
        times(share, 1, blocks(in.tokens) * LANES, in.tokens, in.tokens, of_z, wide, D, 1);
        times_turned(of_z, in.tokens, in.d, in.tokens, width, turned, d_share, 0);
        shares_back(&in, d_share, of_rate, of_places);
        times_turned(of_z, in.tokens, M, width, width, turned, of_q, 0);
        times(d_share, blocks(in.tokens) * LANES, 1, in.tokens, in.tokens, in.k, wide, of_q, 1);
        times(d_share, 1, blocks(in.tokens) * LANES, in.tokens, in.tokens, in.q, wide, of_k, 1);
        descend_back(&in, width, D, free_rows, of_scale, of_shift, of_p);
        for (int64_t i = 0; i < in.tokens * wide; i++) of_k[i] -= in.goal[i];
        times_turned(D, in.tokens, M, width, width, turned, of_k, 1);
        times(in.q, 1, wide * LANES, width, in.tokens, of_z, wide, d_M, 1);
        times(in.k, 1, wide * LANES, width, in.tokens, D, wide, d_M, 1);
        for (int64_t t = 0; t < in.tokens; t++)
          for (int64_t v = 0; v < wide; v++) d_M[width * wide + v] += of_z[t * wide + v] + D[t * wide + v];
        take_rows(of_q, in.tokens, width, d_q + row * width);
        take_rows(of_k, in.tokens, width, d_k + row * width);
        take_rows(in.goal, in.tokens, width, d_v + row * width);
      }
      take_rows(d_M, width + 1, width, d_begin + place * (width + 1) * width);
      for (int64_t i = 0, to = (replica * at->heads + head) * width; i < width; i++, to++)
        d_scale[to] += ((real *)of_scale)[i], d_shift[to] += ((real *)of_shift)[i];
    }
  free(more[0]);
  free(room[0]);
}
