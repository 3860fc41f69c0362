// The mLSTM of every head over a short past, and its way back: models/scans/mlstm.py, mlstm_parallel.
//
//     P_ts = D_ts (q_t . c_s) / (max(|n_t|, e^-m_t) + eps)        D_ts = e^(log D_ts - m_t)        h_t = sum_s P_ts v_s
//
// with log D_ts = i_s + the sum of log s(f) over s < r <= t, m_t its largest, and n_t the sum of D_ts (q_t . c_s); c is
// what keys are a map of, which q has in it. q, c, v and h are [B, L, E] with E = H K, one number a position [B, H, L].
//
// A tile is sixteen queries, the lanes of vectors, one for each key that any of them sees, as in _native_attention.c.
// log D is a sum along the past and never a difference of two: gates may be as far from 0 as numbers reach.

#include "_native.h"

typedef struct {
  int64_t batch, length, inner, heads;
} Sizes;

static const real EPS = (real)1e-6, LARGEST = 80;

// Rows of K numbers as vectors, `apart` vectors from one another: in their places if K is whole vectors, else a copy.
typedef struct {
  lanes *c, *v, *q, *h, *d_c, *d_v, *d_q;
  int64_t apart;
} Rows;

typedef struct {
  Rows padded;
  lanes *shares, *decays, *d_shares;  // [L], of the tile's queries
  lanes *of_q, *of_d_h;               // [K], across the tile
  real *log_f, *later;                // [L]
} Room;

enum { PARTS = 14 };

static Room room_for(const Sizes *at) {
  const int64_t width = at->inner / at->heads, wide = blocks(width), rows = at->length * wide;
  const int64_t length = at->length, along = blocks(length);
  const int64_t sizes[PARTS] = {rows,   rows,   rows,   rows,  rows,  rows,  rows,
                                length, length, length, width, width, along, along};
  lanes *part[PARTS];
  rooms_for(PARTS, sizes, part);
  const Rows padded = {part[0], part[1], part[2], part[3], part[4], part[5], part[6], wide};
  return (Room){padded, part[7], part[8], part[9], part[10], part[11], (real *)part[12], (real *)part[13]};
}

static lanes *rows_of(const real *restrict x, lanes *restrict padded, const Sizes *at) {
  const int64_t width = at->inner / at->heads, wide = blocks(width);
  if (width % LANES == 0) return (lanes *)x;
  for (int64_t t = 0; t < at->length; t++) memcpy(padded + t * wide, x + t * at->inner, width * sizeof(real));
  return padded;
}

static void put_rows(const lanes *restrict padded, real *restrict x, const Sizes *at) {
  const int64_t width = at->inner / at->heads, wide = blocks(width);
  for (int64_t t = 0; t < at->length && width % LANES; t++)
    memcpy(x + t * at->inner, padded + t * wide, width * sizeof(real));
}

static void log_sigmoids(const real *restrict f, real *restrict log_f, int64_t length) {
  SIMD for (int64_t t = 0; t < length; t++) log_f[t] = -softplus_from(-f[t], exp_of(-(real)fabs(f[t])));
}

// log D of the queries from t on, -inf where a key lies behind its query; and where it is largest, and how large.
static void log_decays(const real *restrict i, const real *restrict log_f, int64_t t, int64_t queries,
                       lanes *restrict log_D, lanes *restrict most, lanes *restrict top) {
  lanes since = {0};
  for (int64_t k = queries - 1; k >= 0; k--) {
    const real next = k + 1 < queries ? log_f[t + k + 1] : 0;
    SIMD for (int64_t j = 0; j < LANES; j++) {
      since[j] += j > k ? next : 0;
      log_D[t + k][j] = j < k ? -INFINITY : i[t + k] + since[j];
    }
  }
  for (int64_t s = t - 1; s >= 0; s--) {
    since += log_f[s + 1];
    log_D[s] = i[s] + since;
  }
  *most = log_D[0];
  *top = (lanes){0};
  for (int64_t s = 1; s < t + queries; s++) {
    SIMD for (int64_t j = 0; j < LANES; j++) {
      (*top)[j] = log_D[s][j] > (*most)[j] ? (real)s : (*top)[j];
      (*most)[j] = largest(log_D[s][j], (*most)[j]);
    }
  }
}

// D and q . c of the queries from t on, and n.
static lanes score(Rows in, Room room, const real *restrict q, int64_t t, int64_t queries, lanes most,
                   const Sizes *at) {
  const int64_t width = at->inner / at->heads, seen = t + queries;
  across(q + t * at->inner, at->inner, room.of_q, queries, width);
  product((const real *)in.c, in.apart * LANES, 1, seen, width, room.of_q, 1, room.shares, 1, 0);
  lanes n = {0};
  for (int64_t s = 0; s < seen; s++) {
    SIMD for (int64_t j = 0; j < LANES; j++) {
      room.decays[s][j] = t + j < s ? 0 : exp_of(room.decays[s][j] - most[j]);
      room.shares[s][j] = t + j < s ? 0 : room.shares[s][j];
    }
    n += room.shares[s] * room.decays[s];
  }
  return n;
}

// One over what h is divided by; the sign of n where it is the divisor, and eps' share in that.
static inline lanes divisor(lanes n, lanes most, lanes *restrict sign, lanes *restrict share) {
  lanes over;
  for (int64_t j = 0; j < LANES; j++) {
    const real size = (real)fabs(n[j]), floor = exp_of(-most[j] < LARGEST ? -most[j] : LARGEST);
    over[j] = 1 / (largest(size, floor) + EPS);
    (*sign)[j] = size > floor ? (n[j] > 0 ? (real)1 : (real)-1) : (real)0;
    (*share)[j] = over[j] * EPS;
  }
  return over;
}

void mlstm_attend(const real *restrict q, const real *restrict c, const real *restrict v, const real *restrict i,
                  const real *restrict f, real *restrict h, const Sizes *at) {
  const int64_t length = at->length, width = at->inner / at->heads, wide = blocks(width), copies = width % LANES;
  const Room room = room_for(at);
  Rows in = room.padded;
  if (!copies) in.apart = at->inner / LANES;
  for (int64_t b = 0; b < at->batch; b++)
    for (int64_t head = 0; head < at->heads; head++) {
      const int64_t from = b * length * at->inner + head * width, along = (b * at->heads + head) * length;
      in.c = rows_of(c + from, room.padded.c, at);
      in.v = rows_of(v + from, room.padded.v, at);
      in.h = copies ? room.padded.h : (lanes *)(h + from);
      log_sigmoids(f + along, room.log_f, length);
      for (int64_t t = 0; t < length; t += LANES) {
        const int64_t queries = length - t < LANES ? length - t : LANES, seen = t + queries;
        lanes most, top, sign, share;
        log_decays(i + along, room.log_f, t, queries, room.decays, &most, &top);
        const lanes n = score(in, room, q + from, t, queries, most, at), over = divisor(n, most, &sign, &share);
        for (int64_t s = 0; s < seen; s++) room.shares[s] *= room.decays[s] * over;
        for (int64_t block = 0; block < wide; block++)
          product((real *)room.shares, 1, LANES, queries, seen, in.v + block, in.apart, in.h + t * in.apart + block,
                  in.apart, 0);
      }
      put_rows(in.h, h + from, at);
    }
  free(room.padded.c);
}

// From the gradient of h to those of q, v, i and f, and added to that of c.
void mlstm_attend_back(const real *restrict q, const real *restrict c, const real *restrict v, const real *restrict i,
                       const real *restrict f, const real *restrict d_h, real *restrict d_q, real *restrict d_c,
                       real *restrict d_v, real *restrict d_i, real *restrict d_f, const Sizes *at) {
  const int64_t length = at->length, width = at->inner / at->heads, wide = blocks(width), copies = width % LANES;
  const Room room = room_for(at);
  Rows in = room.padded;
  if (!copies) in.apart = at->inner / LANES;
  for (int64_t b = 0; b < at->batch; b++)
    for (int64_t head = 0; head < at->heads; head++) {
      const int64_t from = b * length * at->inner + head * width, along = (b * at->heads + head) * length;
      in.c = rows_of(c + from, room.padded.c, at);
      in.v = rows_of(v + from, room.padded.v, at);
      in.q = rows_of(q + from, room.padded.q, at);
      in.h = rows_of(d_h + from, room.padded.h, at);
      in.d_c = rows_of(d_c + from, room.padded.d_c, at);
      in.d_v = copies ? room.padded.d_v : (lanes *)(d_v + from);
      in.d_q = copies ? room.padded.d_q : (lanes *)(d_q + from);
      log_sigmoids(f + along, room.log_f, length);
      real *restrict later = room.later;  // the gradient of log D_ts, summed over the queries t of later tiles
      memset(later, 0, length * sizeof(real));
      const int64_t last = (length - 1) / LANES * LANES;
      for (int64_t t = last; t >= 0; t -= LANES) {
        const int64_t queries = length - t < LANES ? length - t : LANES, seen = t + queries;
        lanes most, top, sign, share, along_h = {0};
        log_decays(i + along, room.log_f, t, queries, room.decays, &most, &top);
        const lanes n = score(in, room, q + from, t, queries, most, at), over = divisor(n, most, &sign, &share);
        across(d_h + from + t * at->inner, at->inner, room.of_d_h, queries, width);
        product((const real *)in.v, in.apart * LANES, 1, seen, width, room.of_d_h, 1, room.d_shares, 1, 0);
        for (int64_t s = 0; s < seen; s++) {
          room.decays[s] *= over;
          room.shares[s] *= room.decays[s];
          along_h += room.shares[s] * room.d_shares[s];
        }
        const lanes level = along_h * sign;
        const real *shares = (real *)room.shares, *d_scores = (real *)room.decays;
        for (int64_t block = 0; block < wide; block++)
          product(shares, LANES, 1, seen, queries, in.h + t * in.apart + block, in.apart, in.d_v + block, in.apart,
                  t != last);
        for (int64_t s = 0; s < seen; s++) {
          const lanes d = room.d_shares[s] - level;
          room.decays[s] *= d;
          room.shares[s] *= d;
        }
        for (int64_t j = 0; j < queries; j++) room.shares[(int64_t)top[j]][j] -= along_h[j] * share[j];
        for (int64_t block = 0; block < wide; block++) {
          product(d_scores, 1, LANES, queries, seen, in.c + block, in.apart, in.d_q + t * in.apart + block, in.apart, 0);
          product(d_scores, LANES, 1, seen, queries, in.q + t * in.apart + block, in.apart, in.d_c + block, in.apart, 1);
        }
        // log s(f_r) is in log D_ts of all s < r <= t.
        lanes before = {0};
        real of_later = 0;
        for (int64_t s = 0; s < t; s++) {
          before += room.shares[s];
          of_later += later[s];
        }
        for (int64_t k = 0; k < queries; k++) {
          real sum = of_later;
          for (int64_t j = k; j < queries; j++) sum += before[j];
          d_f[along + t + k] = sum * sigmoid(-f[along + t + k]);
          before += room.shares[t + k];
          of_later += later[t + k];
        }
        for (int64_t s = 0; s < seen; s++) {
          real sum = 0;
          for (int64_t j = 0; j < queries; j++) sum += room.shares[s][j];
          later[s] += sum;
        }
      }
      memcpy(d_i + along, later, length * sizeof(real));
      put_rows(in.d_q, d_q + from, at);
      put_rows(in.d_c, d_c + from, at);
      put_rows(in.d_v, d_v + from, at);
    }
  free(room.padded.c);
}
