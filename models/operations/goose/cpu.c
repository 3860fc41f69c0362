// The rule of RWKV-7 (models/scans/goose.py) of rows of heads, by the delta rule (_native_delta.h):
//
//     f = m * p / |m * p|        g = a * f        k = p * (1 + n * (a - 1))        present_t = r_t . u k_t
//
// p [B, H, L, K] stands in the place of k, the rate a in that of f; m, n and u are [3, R, H, K], of R replicas B / R rows.
// f, g and k are made of a row as its turn comes, and not kept. The present is [B, L, H]; the rest is as in
// _native_delta.c.

#include "_native_delta.h"

typedef struct {
  const real *m, *n, *u;
} Channels;

static Channels channels_of(const real *all, int64_t row, const Sizes *at) {
  const int64_t keys = at->keys, each = at->replicas * at->heads * keys;
  const int64_t replica = row / at->heads / (at->batch / at->replicas);
  const real *m = all + (replica * at->heads + row % at->heads) * keys;
  return (Channels){m, m + each, m + 2 * each};
}

// f, g and k of a row into `made`, [3, L, K], and 1 / |m * p| into `scales`.
static Row made_of(const real *r, const real *rate, const real *p, const real *v, const real *decay, Channels by,
                   const real *eps, real *made, real *scales, int64_t row, const Sizes *at) {
  const int64_t keys = at->keys, part_of = at->length * keys;
  const Part a = part(rate, at->f, row, at), of_p = part(p, at->k, row, at);
  for (int64_t t = 0; t < at->length; t++) {
    const real *restrict p_t = of_p.x + t * of_p.time, *restrict a_t = a.x + t * a.time;
    real *restrict f = made + t * keys, *restrict g = f + part_of, *restrict k = g + part_of, squares = 0;
    _Pragma("omp simd reduction(+ : squares)") for (int64_t i = 0; i < keys; i++) {
      f[i] = p_t[i] * by.m[i];
      squares += f[i] * f[i];
    }
    const real scale = scales[t] = 1 / (real)sqrt(squares + *eps);
    SIMD for (int64_t i = 0; i < keys; i++) {
      f[i] *= scale;
      g[i] = a_t[i] * f[i];
      k[i] = p_t[i] * (1 + by.n[i] * (a_t[i] - 1));
    }
  }
  return (Row){part(r, at->r, row, at), {made, keys},           {made + part_of, keys}, {made + 2 * part_of, keys},
               part(v, at->v, row, at), part(decay, at->decay, row, at)};
}

static inline real thrice(const real *restrict x, const real *restrict y, const real *restrict z, int64_t count) {
  real sum = 0;
  _Pragma("omp simd reduction(+ : sum)") for (int64_t i = 0; i < count; i++) sum += x[i] * y[i] * z[i];
  return sum;
}

void goose_forward(const real *r, const real *rate, const real *p, const real *v, const real *decay, const real *channels,
                   const real *first, const real *eps, real *y, real *present, real *last, real *u, real *starts,
                   const Sizes *at) {
  const int64_t keys = at->keys, values = at->values, state = keys * values, length = at->length;
  const int64_t kept = (length + at->chunk - 1) / at->chunk * state;
  real *made = malloc((3 * keys + 1) * length * sizeof(real));
  Room room = room_for(at);
  for (int64_t row = 0; row < at->batch * at->heads; row++) {
    const Channels by = channels_of(channels, row, at);
    const Row in = made_of(r, rate, p, v, decay, by, eps, made, made + 3 * keys * length, row, at);
    const Written now = heads_last(present, length, 1, row, at);
    forward_of(&in, first + row * state, heads_last(y, length, values, row, at), last + row * state,
               u + row * length * values, starts + row * kept, room, at);
    for (int64_t t = 0; t < length; t++)
      now.x[t * now.time] = thrice(in.r.x + t * in.r.time, by.u, in.k.x + t * keys, keys);
  }
  leave(room);
  free(made);
}

// From the gradients of f, g and k at a time to those of p and a, and of m and n, which are added to.
static inline void through_keys(const real *restrict p, const real *restrict a, Channels by, const real *restrict f,
                                real scale, const real *restrict d_f, const real *restrict d_g, const real *restrict d_k,
                                real *restrict d_p, real *restrict d_a, real *restrict d_m, real *restrict d_n,
                                int64_t keys) {
  real back = 0;
  _Pragma("omp simd reduction(+ : back)") for (int64_t i = 0; i < keys; i++) back += f[i] * (d_f[i] + a[i] * d_g[i]);
  SIMD for (int64_t i = 0; i < keys; i++) {
    const real of_long = scale * (d_f[i] + a[i] * d_g[i] - back * f[i]), of_gain = d_k[i] * p[i];
    d_p[i] = of_long * by.m[i] + d_k[i] * (1 + by.n[i] * (a[i] - 1));
    d_a[i] = d_g[i] * f[i] + of_gain * by.n[i];
    d_m[i] += of_long * p[i];
    d_n[i] += of_gain * (a[i] - 1);
  }
}

// `d_S` comes as the gradient of the last state and leaves as that of the first; `d_channels` are added to.
void goose_backward(const real *r, const real *rate, const real *p, const real *v, const real *decay,
                    const real *channels, const real *eps, const real *u, const real *starts, const real *d_y,
                    const real *d_present, real *d_S, real *d_r, real *d_rate, real *d_p, real *d_v, real *d_decay,
                    real *d_channels, const Sizes *at) {
  const int64_t keys = at->keys, values = at->values, length = at->length, part_of = length * keys;
  const int64_t kept = (length + at->chunk - 1) / at->chunk * keys * values;
  real *made = malloc((6 * keys + 1) * length * sizeof(real)), *scales = made + 6 * part_of;
  real *d_f = made + 3 * part_of, *d_g = d_f + part_of, *d_k = d_g + part_of;
  Room room = room_for(at);
  for (int64_t row = 0; row < at->batch * at->heads; row++) {
    const Channels by = channels_of(channels, row, at);
    real *d_m = d_channels + (by.m - channels), *d_n = d_channels + (by.n - channels);
    real *restrict of_u = d_channels + (by.u - channels);
    const Row in = made_of(r, rate, p, v, decay, by, eps, made, scales, row, at);
    const Part a = part(rate, at->f, row, at), of_p = part(p, at->k, row, at);
    const Written of_r = heads_last(d_r, length, keys, row, at), of_v = heads_last(d_v, length, values, row, at);
    const Written into_p = heads_last(d_p, length, keys, row, at), into_a = heads_last(d_rate, length, keys, row, at);
    const Gradients d = {of_r, {d_f, keys}, {d_g, keys}, {d_k, keys}, of_v, heads_last(d_decay, length, keys, row, at)};
    const Behind behind = {part(d_y, at->d_y, row, at), u + row * length * values, starts + row * kept,
                           d_S + row * keys * values};
    backward_of(&in, behind, &d, room, at);
    for (int64_t t = 0; t < length; t++) {
      const real *restrict r_t = in.r.x + t * in.r.time, *restrict k_t = in.k.x + t * keys;
      const real asked = d_present[(row / at->heads * length + t) * at->heads + row % at->heads];
      real *restrict d_r_t = of_r.x + t * of_r.time, *restrict d_k_t = d_k + t * keys;
      SIMD for (int64_t i = 0; i < keys; i++) {
        d_r_t[i] += asked * by.u[i] * k_t[i];
        d_k_t[i] += asked * by.u[i] * r_t[i];
        of_u[i] += asked * r_t[i] * k_t[i];
      }
      through_keys(of_p.x + t * of_p.time, a.x + t * a.time, by, made + t * keys, scales[t], d_f + t * keys,
                   d_g + t * keys, d_k_t, into_p.x + t * into_p.time, into_a.x + t * into_a.time, d_m, d_n, keys);
    }
  }
  leave(room);
  free(made);
}
