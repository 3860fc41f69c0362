// The delta rule (_native_delta.h) of queries and keys q and p of any length, decays w, and three factors, a, b and m:
//
//     q' = q / |q|, p' = p / |p|        r = c (q' - m p')        f = w * a * p'        g = k = b p'
//
// where the first step of a token has its w, a later one 1, and r has the p' of the last. a is [B, H, M, K] or, as b is,
// [B, H, M, 1], and m [B, H, L, 1]; missing, a and b are 1 and m is 0. What else comes and what is written is as in
// _native_delta.c. r, f and k are made of a row as its turn comes, and not kept.

#include "_native_delta.h"

// The distances of q, a, b and p stand in the places of r, f, g and k.
typedef struct {
  Part q, share, beta, p, v, decay, less;
} Raw;

static Raw raw_of(const real *q, const real *share, const real *beta, const real *p, const real *v, const real *decay,
                  const real *less, int64_t row, const Sizes *at) {
  return (Raw){part(q, at->r, row, at),         part(share, at->f, row, at), part(beta, at->g, row, at),
               part(p, at->k, row, at),         part(v, at->v, row, at),     part(decay, at->decay, row, at),
               part(less, at->less, row, at)};
}

static inline real total(lanes x) {
#ifdef __AVX512DQ__
  if (ARE_FLOATS_OF(__m512)) {
    __m512 all;
    memcpy(&all, &x, sizeof all);
    return (real)_mm512_reduce_add_ps(all);
  }
#endif
  real sum = 0;
  for (int64_t i = 0; i < LANES; i++) sum += x[i];
  return sum;
}

// x . y of rows of numbers.
static inline real along(const real *restrict x, const real *restrict y, int64_t width) {
  lanes sum = {0};
  for (int64_t block = 0; block < blocks(width); block++) sum += block_of(x, block, width) * block_of(y, block, width);
  return total(sum);
}

static inline real scale_of(const real *x, real eps, int64_t width) {
  return 1 / (real)sqrt(along(x, x, width) + eps);
}

static inline real beta_of(Part beta, int64_t m) { return beta.x ? beta.x[m * beta.time] : 1; }

static inline lanes all(real x) { return (lanes){0} + x; }

// w and a at a step.
static inline lanes w_of(const Raw *in, int64_t m, int64_t block, const Sizes *at) {
  if (!in->decay.x || m % at->steps) return all(1);
  const real *restrict now = in->decay.x + m / at->steps * in->decay.time;
  return at->decays == 1 ? all(*now) : block_of(now, block, at->keys);
}

static inline lanes share_of(const Raw *in, int64_t m, int64_t block, const Sizes *at) {
  if (!in->share.x) return all(1);
  const real *restrict now = in->share.x + m * in->share.time;
  return at->shares == 1 ? all(*now) : block_of(now, block, at->keys);
}

// r, f and k of a row into `made`, [3, M, K], 1 / |q| and 1 / |p| into `scales`; c and what is added to squares are given.
static Row made_of(const Raw *in, const real *constants, real *made, real *scales, const Sizes *at) {
  const int64_t keys = at->keys, moves = at->length * at->steps, part = moves * keys;
  for (int64_t m = 0; m < moves; m++) {
    const real *restrict p_t = in->p.x + m * in->p.time, beta = beta_of(in->beta, m);
    const real scale = scales[at->length + m] = scale_of(p_t, constants[1], keys);
    for (int64_t block = 0; block < blocks(keys); block++) {
      const lanes k = scale * block_of(p_t, block, keys);
      put_block(made + part + m * keys, block, keys, w_of(in, m, block, at) * share_of(in, m, block, at) * k);
      put_block(made + 2 * part + m * keys, block, keys, beta * k);
    }
  }
  for (int64_t t = 0; t < at->length; t++) {
    const int64_t last = (t + 1) * at->steps - 1;
    const real *restrict q_t = in->q.x + t * in->q.time, *restrict p_t = in->p.x + last * in->p.time;
    const real by = constants[0] * (scales[t] = scale_of(q_t, constants[1], keys));
    const real less = in->less.x ? constants[0] * in->less.x[t * in->less.time] * scales[at->length + last] : 0;
    for (int64_t block = 0; block < blocks(keys); block++) {
      lanes r = by * block_of(q_t, block, keys);
      if (in->less.x) r -= less * block_of(p_t, block, keys);
      put_block(made + t * keys, block, keys, r);
    }
  }
  return (Row){{made, keys}, {made + part, keys}, {0}, {made + 2 * part, keys}, in->v, in->decay};
}

void unit_delta_forward(const real *q, const real *share, const real *beta, const real *p, const real *v,
                        const real *decay, const real *less, const real *first, const real *constants, real *y, real *last, real *u,
                        real *starts, const Sizes *at) {
  const int64_t keys = at->keys, state = keys * at->values, moves = at->length * at->steps;
  const int64_t kept = (moves + at->chunk - 1) / at->chunk * state;
  real *made = malloc((3 * keys + 2) * moves * sizeof(real));
  Room room = room_for(at);
  for (int64_t row = 0; row < at->batch * at->heads; row++) {
    const Raw raw = raw_of(q, share, beta, p, v, decay, less, row, at);
    const Row in = made_of(&raw, constants, made, made + 3 * keys * moves, at);
    forward_of(&in, first + row * state, heads_last(y, at->length, at->values, row, at), last + row * state,
               u + row * moves * at->values, starts + row * kept, room, at);
  }
  leave(room);
  free(made);
}

// d x of y = x / |x| times `by`, from d y and 1 / |x|.
static inline void through_length(const real *restrict x, real scale, real by, const real *restrict d_y,
                                  real *restrict d_x, int64_t keys) {
  const real back = scale * scale * along(d_y, x, keys);
  for (int64_t block = 0; block < blocks(keys); block++)
    put_block(d_x, block, keys, by * scale * (block_of(d_y, block, keys) - back * block_of(x, block, keys)));
}

// From the gradients of f and k at a step, which it uses up, and of r where that has the step's p', to those of p, a, b, w.
static inline void through_keys(const Raw *in, int64_t m, real scale, const real *restrict d_f, real *restrict d_k,
                                const real *restrict d_r, real less, Written d_p, Written d_share, Written d_beta,
                                Written d_decay, const Sizes *at) {
  const int64_t keys = at->keys, decays = in->decay.x && m % at->steps == 0;
  const real *restrict p_t = in->p.x + m * in->p.time, beta = beta_of(in->beta, m);
  real *restrict of_decay = decays ? d_decay.x + m / at->steps * d_decay.time : 0;
  lanes of_w = {0}, of_a = {0};
  if (in->beta.x) d_beta.x[m * d_beta.time] = scale * along(d_k, p_t, keys);
  for (int64_t block = 0; block < blocks(keys); block++) {
    const lanes w = w_of(in, m, block, at), share = share_of(in, m, block, at), d_f_b = block_of(d_f, block, keys);
    const lanes of_factor = d_f_b * scale * block_of(p_t, block, keys);
    lanes d_unit = beta * block_of(d_k, block, keys) + d_f_b * w * share;
    if (d_r) d_unit -= less * block_of(d_r, block, keys);
    put_block(d_k, block, keys, d_unit);
    if (in->share.x && at->shares > 1) put_block(d_share.x + m * d_share.time, block, keys, of_factor * w);
    of_a += of_factor * w;
    of_w += of_factor * share;
    if (decays && at->decays > 1)
      put_block(of_decay, block, keys, block_of(of_decay, block, keys) + of_factor * share);
  }
  if (in->share.x && at->shares == 1) d_share.x[m * d_share.time] = total(of_a);
  if (decays && at->decays == 1) *of_decay += total(of_w);
  through_length(p_t, scale, 1, d_k, d_p.x + m * d_p.time, keys);
}

void unit_delta_backward(const real *q, const real *share, const real *beta, const real *p, const real *v,
                         const real *decay, const real *less, const real *constants, const real *u, const real *starts, const real *d_y,
                         real *d_S, real *d_q, real *d_share, real *d_beta, real *d_p, real *d_v, real *d_decay, real *d_less,
                         const Sizes *at) {
  const int64_t keys = at->keys, values = at->values, moves = at->length * at->steps, part_of = moves * keys;
  const int64_t kept = (moves + at->chunk - 1) / at->chunk * keys * values;
  real *made = malloc((6 * keys + 2) * moves * sizeof(real)), *d_made = made + 3 * part_of;
  real *scales = made + 6 * part_of;
  Room room = room_for(at);
  for (int64_t row = 0; row < at->batch * at->heads; row++) {
    const Raw raw = raw_of(q, share, beta, p, v, decay, less, row, at);
    const Row in = made_of(&raw, constants, made, scales, at);
    const Written of_q = heads_last(d_q, at->length, keys, row, at), of_p = heads_last(d_p, moves, keys, row, at);
    const Written of_share = heads_last(d_share, moves, at->shares, row, at), of_beta = heads_last(d_beta, moves, 1, row, at);
    const Written of_decay = heads_last(d_decay, at->length, at->decays, row, at);
    const Written of_v = heads_last(d_v, moves, values, row, at), of_less = heads_last(d_less, at->length, 1, row, at);
    const Gradients d = {{d_made, keys}, {d_made + part_of, keys}, {0}, {d_made + 2 * part_of, keys}, of_v, of_decay};
    const Behind behind = {part(d_y, at->d_y, row, at), u + row * moves * values, starts + row * kept,
                           d_S + row * keys * values};
    backward_of(&in, behind, &d, room, at);
    for (int64_t m = 0; m < moves; m++) {
      const int64_t t = m / at->steps;
      const real *d_r = less && m % at->steps == at->steps - 1 ? d_made + t * keys : 0, scale = scales[at->length + m];
      if (d_r) of_less.x[t * of_less.time] = -constants[0] * scale * along(d_r, raw.p.x + m * raw.p.time, keys);
      through_keys(&raw, m, scale, d_made + part_of + m * keys, d_made + 2 * part_of + m * keys, d_r,
                   d_r ? constants[0] * raw.less.x[t * raw.less.time] : 0, of_p, of_share, of_beta, of_decay, at);
    }
    for (int64_t t = 0; t < at->length; t++)
      through_length(raw.q.x + t * raw.q.time, scales[t], constants[0], d_made + t * keys, of_q.x + t * of_q.time, keys);
  }
  leave(room);
  free(made);
}
