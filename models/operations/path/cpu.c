// PaTH attention, query by query, and its way back: models/path_attention.py, path_attention.
//
//     k_s -> k_s - b_t w_t p_s for all s < t, with p_s = w_t . k_s        z_s = (q_t . k_s + c_t - c_s) / sqrt(K), s <= t
//     y_t = sum_s softmax_s(z) v_s
//
// q, k, v, w and y are [B, L, H, K], b [B, L, H], c [B, L, H] or null. The lanes of vectors are keys: those of a row and
// head lie as [K, L blocks], as they are by now, zero from the next query on. The way back goes forward once more and
// keeps all p of a row and head, by which it then takes each turn back.

#include "_native_heads.h"

typedef struct {
  lanes *k, *v, *d_k, *d_v;  // [K, L blocks]
  lanes *p;                  // [L, L blocks] on the way back, else [L blocks]
  lanes *shares, *d_z, *r;   // [L blocks]
  lanes *level, *d_level;    // [L blocks]
  lanes *of_q, *of_w;        // [K]
  int64_t across;            // L blocks
} Room;

static Room room_for(int back, const Sizes *at) {
  const int64_t across = blocks(at->length), rows = at->width * across;
  lanes *part[12];
  rooms_for(12, (int64_t[]){rows, rows, rows, rows, back ? at->length * across : across, across, across, across, across,
                            across, at->width, at->width}, part);
  return (Room){part[0], part[1], part[2], part[3], part[4], part[5], part[6], part[7],
                part[8], part[9], part[10], part[11], across};
}

static inline int64_t now_of(int64_t row, int64_t t, int64_t head, const Sizes *at) {
  return (row * at->length + t) * at->heads + head;
}

// Column s of keys or values.
static inline void put_column(lanes *rows, int64_t s, const real *restrict x, Room in, const Sizes *at) {
  for (int64_t i = 0; i < at->width; i++) ((real *)(rows + i * in.across))[s] = x ? x[i] : 0;
}

static inline void take_column(const lanes *rows, int64_t s, real *restrict found, Room in, const Sizes *at) {
  for (int64_t i = 0; i < at->width; i++) found[i] = ((const real *)(rows + i * in.across))[s];
}

// sum_i x_i times row i, for so many blocks.
static inline void seen_by(const real *restrict x, const lanes *rows, int64_t count, lanes *restrict found, Room in,
                           const Sizes *at) {
  for (int64_t b = 0; b < count; b++) {
    lanes sum = {0};
    for (int64_t i = 0; i < at->width; i++) sum += x[i] * rows[i * in.across + b];
    found[b] = sum;
  }
}

// Row i plus x_i times what every lane has.
static inline void spread(real factor, const real *restrict x, const lanes *restrict each, int64_t count, lanes *rows,
                          Room in, const Sizes *at) {
  for (int64_t i = 0; i < at->width; i++)
    for (int64_t b = 0; b < count; b++) rows[i * in.across + b] += factor * x[i] * each[b];
}

// The keys before query t pass its reflection, and its own comes to them.
static inline void turn(const real *restrict k_t, const real *restrict w_t, real beta, int64_t t, lanes *restrict p,
                        Room in, const Sizes *at) {
  seen_by(w_t, in.k, blocks(t), p, in, at);
  spread(-beta, w_t, p, blocks(t), in.k, in, at);
  put_column(in.k, t, k_t, in, at);
}

static void load_level(const real *restrict level, int64_t row, int64_t head, Room in, const Sizes *at) {
  for (int64_t t = 0; t < at->length && level; t++) ((real *)in.level)[t] = level[now_of(row, t, head, at)];
}

// The shares of the keys up to t.
static inline void share_out(const real *restrict q_t, int64_t t, int has_level, Room in, const Sizes *at) {
  const int64_t count = blocks(t + 1);
  const real scale = 1 / (real)sqrt((double)at->width), level = ((const real *)in.level)[t];
  real *restrict share = (real *)in.shares, most = -INFINITY, sum = 0;
  seen_by(q_t, in.k, count, in.shares, in, at);
  for (int64_t b = 0; b < count; b++) {
    if (has_level) in.shares[b] += level - in.level[b];
    in.shares[b] *= scale;
  }
  for (int64_t s = t + 1; s < count * LANES; s++) share[s] = -INFINITY;
  _Pragma("omp simd reduction(max : most)") for (int64_t s = 0; s < count * LANES; s++) most = largest(share[s], most);
  lanes tops = {0};
  tops += most;
  for (int64_t b = 0; b < count; b++) into_shares(in.shares + b, &tops);
  _Pragma("omp simd reduction(+ : sum)") for (int64_t s = 0; s < count * LANES; s++) sum += share[s];
  for (int64_t b = 0; b < count; b++) in.shares[b] /= sum;
}

// The products of each row with x, a number of each lane.
static inline void rows_by(const lanes *rows, const lanes *restrict x, int64_t count, real *restrict found, Room in,
                           const Sizes *at) {
  for (int64_t from = 0; from < at->width; from += LANES) {
    lanes r[LANES];
    for (int64_t i = 0; i < LANES; i++) {
      r[i] = (lanes){0};
      for (int64_t b = 0; b < count && from + i < at->width; b++) r[i] += rows[(from + i) * in.across + b] * x[b];
    }
    put_block(found, from / LANES, at->width, sums_within(r));
  }
}

void path_forward(const real *restrict q, const real *restrict k, const real *restrict v, const real *restrict w,
                  const real *restrict beta, const real *restrict level, real *restrict y, const Sizes *at) {
  const Room in = room_for(0, at);
  const int64_t K = at->width;
  for (int64_t row = 0; row < at->rows; row++)
    for (int64_t head = 0; head < at->heads; head++) {
      memset(in.k, 0, K * in.across * sizeof(lanes));
      memset(in.v, 0, K * in.across * sizeof(lanes));
      load_level(level, row, head, in, at);
      for (int64_t t = 0; t < at->length; t++) {
        const int64_t now = now_of(row, t, head, at);
        turn(k + now * K, w + now * K, beta[now], t, in.p, in, at);
        put_column(in.v, t, v + now * K, in, at);
        share_out(q + now * K, t, level != NULL, in, at);
        rows_by(in.v, in.shares, blocks(t + 1), y + now * K, in, at);
      }
    }
  free(in.k);
}

// All gradients are written; d_level where there is a level.
void path_backward(const real *restrict q, const real *restrict k, const real *restrict v, const real *restrict w,
                   const real *restrict beta, const real *restrict level, const real *restrict d_y, real *restrict d_q,
                   real *restrict d_k, real *restrict d_v, real *restrict d_w, real *restrict d_beta,
                   real *restrict d_level, const Sizes *at) {
  const Room in = room_for(1, at);
  const int64_t K = at->width, length = at->length, rows = K * in.across;
  const real scale = 1 / (real)sqrt((double)K);
  real *restrict of_level = (real *)in.d_level;
  for (int64_t row = 0; row < at->rows; row++)
    for (int64_t head = 0; head < at->heads; head++) {
      memset(in.k, 0, 4 * rows * sizeof(lanes));
      memset(in.d_level, 0, in.across * sizeof(lanes));
      load_level(level, row, head, in, at);
      for (int64_t t = 0; t < length; t++) {
        const int64_t now = now_of(row, t, head, at);
        turn(k + now * K, w + now * K, beta[now], t, in.p + t * in.across, in, at);
        put_column(in.v, t, v + now * K, in, at);
      }
      for (int64_t t = length - 1; t >= 0; t--) {
        const int64_t now = now_of(row, t, head, at), count = blocks(t + 1), before = blocks(t);
        const real *restrict q_t = q + now * K, *restrict w_t = w + now * K, *restrict d_y_t = d_y + now * K;
        const lanes *restrict p = in.p + t * in.across;
        lanes mean = {0}, total = {0}, of_beta = {0};
        share_out(q_t, t, level != NULL, in, at);
        seen_by(d_y_t, in.v, count, in.d_z, in, at);
        spread(1, d_y_t, in.shares, count, in.d_v, in, at);
        for (int64_t b = 0; b < count; b++) mean += in.shares[b] * in.d_z[b];
        const real asked = sum_of(mean);
        for (int64_t b = 0; b < count; b++) {
          in.d_z[b] = scale * in.shares[b] * (in.d_z[b] - asked);
          in.d_level[b] -= in.d_z[b];
          total += in.d_z[b];
        }
        of_level[t] += sum_of(total);
        rows_by(in.k, in.d_z, count, d_q + now * K, in, at);
        spread(1, q_t, in.d_z, count, in.d_k, in, at);
        take_column(in.d_k, t, d_k + now * K, in, at);
        put_column(in.d_k, t, NULL, in, at);
        put_column(in.k, t, NULL, in, at);
        seen_by(w_t, in.d_k, before, in.r, in, at);
        spread(beta[now], w_t, p, before, in.k, in, at);
        for (int64_t b = 0; b < before; b++) of_beta -= p[b] * in.r[b];
        d_beta[now] = sum_of(of_beta);
        rows_by(in.d_k, p, before, (real *)in.of_q, in, at);
        rows_by(in.k, in.r, before, (real *)in.of_w, in, at);
        for (int64_t i = 0; i < K; i++)
          d_w[now * K + i] = -beta[now] * (((const real *)in.of_q)[i] + ((const real *)in.of_w)[i]);
        spread(-beta[now], w_t, in.r, before, in.d_k, in, at);
      }
      for (int64_t t = 0; t < length; t++) {
        take_column(in.d_v, t, d_v + now_of(row, t, head, at) * K, in, at);
        if (level) d_level[now_of(row, t, head, at)] = of_level[t];
      }
    }
  free(in.k);
}
