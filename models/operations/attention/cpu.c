// Attention of every head over the past, and its way back: models/layers/attention.py, causal_attention.
//
//     y_t = sum_s softmax_s(q_t . k_s / sqrt(K) + c_t - c_s) v_s      t - window < s <= t, or s <= t where window is 0
//
// or, in the other way, with sticks that break (models/stick_breaking.py): s < t, and of the same scores z the shares
// sigma(z_ts) prod over s < l < t of sigma(-z_tl), whose error grows as slowly as that of sums of their logarithms.
//
// c is [B, L, H] or null; y [B, L, H, K]. Pairs (x_k, x_{k + K/2}) of queries and keys are turned as they are read: turns
// are cosines and sines [2, L, K/2], or null. For the way back the largest score and one over the sum stay, [B, H, 2, L].
//
// What a query does not see has a score of -inf.

#include "_native_heads.h"

typedef struct {
  lanes *k, *v, *d_k, *d_v;    // [L, K blocks]
  lanes *shares, *d_scores;    // [L], of the tile's queries
  lanes *taken, *left;         // [L], where sticks break: sigma(z) and sigma(-z)
  lanes *q, *d_y, *out;        // [tile, K blocks]
  lanes *of_q, *of_d_y;        // [K], across the tile
  lanes *level, *d_level;      // [L blocks]
} Room;

enum { PARTS = 15 };

static Room room_for(const Sizes *at) {
  const int64_t wide = blocks(at->width), length = at->length, rows = length * wide, tile = LANES * wide;
  const int64_t sizes[PARTS] = {rows, rows, rows, rows, length, length, length, length, tile, tile, tile,
                                at->width, at->width, blocks(length), blocks(length)};
  lanes *part[PARTS];
  rooms_for(PARTS, sizes, part);
  return (Room){part[0], part[1], part[2], part[3],  part[4],  part[5],  part[6], part[7],
                part[8], part[9], part[10], part[11], part[12], part[13], part[14]};
}

static void load_keys(const real *restrict heads, const real *restrict turns, int64_t row, int64_t group, Room in,
                      const Sizes *at) {
  const int64_t wide = blocks(at->width);
  for (int64_t t = 0; t < at->length; t++) {
    turned(heads + place_of(row, t, at->heads + group, at), (real *)(in.k + t * wide), turns, t, 1, 0, at);
    memcpy(in.v + t * wide, heads + place_of(row, t, at->heads + at->key_heads + group, at), at->width * sizeof(real));
  }
}

static void load_level(const real *restrict level, int64_t row, int64_t head, Room in, const Sizes *at) {
  for (int64_t t = 0; t < at->length && level; t++)
    ((real *)in.level)[t] = level[(row * at->length + t) * at->heads + head];
}

// The turned queries of a tile, and their scores.
static void score(const real *restrict heads, const real *restrict turns, int has_level, int64_t row, int64_t head,
                  int64_t t, Tile tile, Room in, const Sizes *at) {
  const int64_t width = at->width, wide = blocks(width);
  const real scale = 1 / (real)sqrt((double)width);
  for (int64_t i = 0; i < tile.queries; i++)
    turned(heads + place_of(row, t + i, head, at), (real *)(in.q + i * wide), turns, t + i, scale, 0, at);
  across((real *)in.q, wide * LANES, in.of_q, tile.queries, width);
  product((real *)(in.k + tile.from * wide), wide * LANES, 1, tile.to - tile.from, width, in.of_q, 1,
          in.shares + tile.from, 1, 0);
  for (int64_t s = tile.from; s < tile.to && has_level; s++)
    in.shares[s] += in.level[t / LANES] - ((const real *)in.level)[s];
  for (int64_t s = t + 1; s < tile.to; s++)
    for (int64_t i = 0; i < s - t; i++) in.shares[s][i] = -INFINITY;
  for (int64_t s = tile.from; s < tile.to && at->window; s++) {
    const int64_t last = s - t + at->window;  // from this query on it is too far behind
    for (int64_t i = last > 0 ? last : 0; i < LANES; i++) in.shares[s][i] = -INFINITY;
  }
}

// From scores to what each breaks off, the nearest first; a query breaks nothing for itself and what is behind it.
static void into_sticks(int64_t t, Tile tile, Room in) {
  lanes stick = {0};
  stick += 1;
  for (int64_t s = tile.to - 1; s >= tile.from; s--) {
    SIMD for (int64_t i = 0; i < LANES; i++) {
      const real z = in.shares[s][i], e = exp_of(-(real)fabs(z)), one = 1 / (1 + e), other = e * one;
      const int sees = s < t + i;
      in.taken[s][i] = !sees ? 0 : z >= 0 ? one : other;
      in.left[s][i] = !sees ? 1 : z >= 0 ? other : one;
    }
    in.shares[s] = in.taken[s] * stick;
    stick *= in.left[s];
  }
}

// The gradient of the scores in place of that of the shares.
static void sticks_back(Tile tile, Room in) {
  lanes farther = {0};
  for (int64_t s = tile.from; s < tile.to; s++) {
    const lanes of_share = in.shares[s] * in.d_scores[s];
    in.d_scores[s] = of_share * in.left[s] - in.taken[s] * farther;
    farther += of_share;
  }
}

void attention_forward(const real *restrict heads, const real *restrict turns, const real *restrict level,
                       real *restrict y, real *restrict kept, const Sizes *at) {
  NEXT_TO_NOTHING_IS_NOTHING
  const int64_t width = at->width, length = at->length, copies = at->heads / at->key_heads, wide = blocks(width);
  const Room in = room_for(at);
  for (int64_t row = 0; row < at->rows; row++)
    for (int64_t head = 0; head < at->heads; head++) {
      real *restrict most_of = kept + (row * at->heads + head) * 2 * length, *restrict over_of = most_of + length;
      if (head % copies == 0) load_keys(heads, turns, row, head / copies, in, at);
      load_level(level, row, head, in, at);
      for (int64_t t = 0; t < length; t += LANES) {
        const Tile tile = tile_at(t, at);
        score(heads, turns, level != NULL, row, head, t, tile, in, at);
        lanes most = in.shares[tile.from], sum = {0};
        if (at->other) {
          into_sticks(t, tile, in);
          sum += 1;
        } else {
          for (int64_t s = tile.from + 1; s < tile.to; s++)
            SIMD for (int64_t i = 0; i < LANES; i++) most[i] = largest(in.shares[s][i], most[i]);
          for (int64_t s = tile.from; s < tile.to; s++) {
            into_shares(in.shares + s, &most);
            sum += in.shares[s];
          }
        }
        const lanes over = 1 / sum;
        put_block(most_of + t, 0, tile.queries, most);
        put_block(over_of + t, 0, tile.queries, over);
        for (int64_t block = 0; block < wide; block++) {
          product((real *)(in.shares + tile.from), 1, LANES, tile.queries, tile.to - tile.from,
                  in.v + tile.from * wide + block, wide, in.out, 1, 0);
          for (int64_t i = 0; i < tile.queries; i++)
            put_block(y + ((row * length + t + i) * at->heads + head) * width, block, width, in.out[i] * over[i]);
        }
      }
    }
  free(in.k);
}

// d_heads is written, and d_level where there is a level.
void attention_backward(const real *restrict heads, const real *restrict turns, const real *restrict level,
                        const real *restrict kept, const real *restrict d_y, real *restrict d_heads,
                        real *restrict d_level, const Sizes *at) {
  NEXT_TO_NOTHING_IS_NOTHING
  const int64_t width = at->width, length = at->length, copies = at->heads / at->key_heads, wide = blocks(width);
  const real scale = 1 / (real)sqrt((double)width);
  const Room in = room_for(at);
  real *restrict of_level = (real *)in.d_level;
  for (int64_t row = 0; row < at->rows; row++)
    for (int64_t head = 0; head < at->heads; head++) {
      const int64_t group = head / copies;
      const real *restrict most_of = kept + (row * at->heads + head) * 2 * length, *restrict over_of = most_of + length;
      if (head % copies == 0) {
        load_keys(heads, turns, row, group, in, at);
        memset(in.d_k, 0, wide * length * sizeof(lanes));
        memset(in.d_v, 0, wide * length * sizeof(lanes));
      }
      load_level(level, row, head, in, at);
      memset(of_level, 0, length * sizeof(real));
      for (int64_t t = 0; t < length; t += LANES) {
        const Tile tile = tile_at(t, at);
        const int64_t seen = tile.to - tile.from, first = tile.from * wide;
        const lanes most = block_of(most_of + t, 0, tile.queries), over = block_of(over_of + t, 0, tile.queries);
        score(heads, turns, level != NULL, row, head, t, tile, in, at);
        for (int64_t i = 0; i < tile.queries; i++)
          memcpy(in.d_y + i * wide, d_y + ((row * length + t + i) * at->heads + head) * width, width * sizeof(real));
        across((real *)in.d_y, wide * LANES, in.of_d_y, tile.queries, width);
        product((real *)(in.v + first), wide * LANES, 1, seen, width, in.of_d_y, 1, in.d_scores + tile.from, 1, 0);
        lanes mean = {0}, total = {0};  // of what shares ask for
        if (at->other) {
          into_sticks(t, tile, in);
          sticks_back(tile, in);
        } else {
          for (int64_t s = tile.from; s < tile.to; s++) {
            into_shares(in.shares + s, &most);
            in.shares[s] *= over;
            mean += in.shares[s] * in.d_scores[s];
          }
          for (int64_t s = tile.from; s < tile.to; s++) in.d_scores[s] = in.shares[s] * (in.d_scores[s] - mean);
        }
        for (int64_t s = tile.from; s < tile.to && level; s++) {
          for (int64_t i = 0; i < tile.queries; i++) of_level[s] -= in.d_scores[s][i];
          total += in.d_scores[s];
        }
        for (int64_t i = 0; i < tile.queries && level; i++) of_level[t + i] += total[i];
        const real *shares = (real *)(in.shares + tile.from), *d_scores = (real *)(in.d_scores + tile.from);
        for (int64_t block = 0; block < wide; block++) {
          const int64_t from = first + block;
          product(d_scores, 1, LANES, tile.queries, seen, in.k + from, wide, in.out + block, wide, 0);
          product(d_scores, LANES, 1, seen, tile.queries, in.q + block, wide, in.d_k + from, wide, 1);
          product(shares, LANES, 1, seen, tile.queries, in.d_y + block, wide, in.d_v + from, wide, 1);
        }
        for (int64_t i = 0; i < tile.queries; i++)
          turned((real *)(in.out + i * wide), d_heads + place_of(row, t + i, head, at), turns, t + i, scale, 1, at);
      }
      for (int64_t t = 0; t < length && level; t++) d_level[(row * length + t) * at->heads + head] = of_level[t];
      for (int64_t t = 0; t < length && (head + 1) % copies == 0; t++) {
        turned((real *)(in.d_k + t * wide), d_heads + place_of(row, t, at->heads + group, at), turns, t, 1, 1, at);
        memcpy(d_heads + place_of(row, t, at->heads + at->key_heads + group, at), in.d_v + t * wide, width * sizeof(real));
      }
    }
  free(in.k);
}
