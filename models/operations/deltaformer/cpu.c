// DeltaFormer's two attentions of every head over the past, and their way back: models/deltaformer.py.
//
//     u_t = v_t - b_t sum over s < t of A_ts u_s        A = softmax(a . k / sqrt(K)), asked by a = k, or the other way by q
//     y_t = sum over s <= t of P_ts u_s                 P = softmax(q . k / sqrt(K))
//
// b is [B, L, H], u [B, H, L, K] and y [B, L, H, K]. Of a tile the past is read by sixteen at once, and its own u follow
// one another. Nothing stays for the way back but u: there it is the other way round, the gradient of u_t being whole
// once that of all u behind it is.

#include "_native_heads.h"

typedef struct {
  lanes *k, *u, *d_k, *d_u;             // [L, K blocks]
  lanes *seen, *d_seen, *taken, *d_taken;  // P, A and their scores' gradients, [L], of the tile's queries
  lanes *q, *asks, *d_y, *out;          // [tile, K blocks]
  lanes *across;                        // [K]
} Room;

enum { PARTS = 13 };

static Room room_for(const Sizes *at) {
  const int64_t wide = blocks(at->width), length = at->length, rows = length * wide, tile = LANES * wide;
  const int64_t sizes[PARTS] = {rows, rows, rows, rows, length, length, length, length, tile, tile, tile, tile, at->width};
  lanes *part[PARTS];
  rooms_for(PARTS, sizes, part);
  return (Room){part[0], part[1], part[2], part[3],  part[4],  part[5], part[6],
                part[7], part[8], part[9], part[10], part[11], part[12]};
}

static void load_keys(const real *restrict heads, const real *restrict turns, int64_t row, int64_t head, Room in,
                      const Sizes *at) {
  for (int64_t t = 0; t < at->length; t++)
    turned(heads + place_of(row, t, at->heads + head, at), (real *)(in.k + t * blocks(at->width)), turns, t, 1, 0, at);
}

// The queries of a tile and what asks for what is taken, divided by sqrt(K).
static void load_tile(const real *restrict heads, const real *restrict turns, int64_t row, int64_t head, int64_t t,
                      Tile tile, Room in, const Sizes *at) {
  const int64_t wide = blocks(at->width);
  const real scale = 1 / (real)sqrt((double)at->width);
  for (int64_t i = 0; i < tile.queries; i++)
    turned(heads + place_of(row, t + i, head, at), (real *)(in.q + i * wide), turns, t + i, scale, 0, at);
  if (at->other)
    memcpy(in.asks, in.q, tile.queries * wide * sizeof(lanes));
  else
    for (int64_t i = 0; i < tile.queries * wide; i++) in.asks[i] = scale * in.k[t * wide + i];
}

// Softmax over the keys up to each query, or up to the one before; who has none takes nothing.
static void softmax(const lanes *restrict asks, lanes *restrict shares, int before, int64_t t, Tile tile, Room in,
                    const Sizes *at) {
  const int64_t width = at->width, wide = blocks(width);
  across((const real *)asks, wide * LANES, in.across, tile.queries, width);
  product((const real *)in.k, wide * LANES, 1, tile.to, width, in.across, 1, shares, 1, 0);
  lanes most = {0}, sum = {0}, over;
  most -= INFINITY;
  for (int64_t s = 0; s < tile.to; s++)
    SIMD for (int64_t i = 0; i < LANES; i++) {
      const real score = s > t + i - before ? -INFINITY : shares[s][i];
      most[i] = largest(score, most[i]);
    }
  for (int64_t s = 0; s < tile.to; s++) {
    SIMD for (int64_t i = 0; i < LANES; i++)
      shares[s][i] = s > t + i - before ? 0 : exp_of(shares[s][i] - most[i]);
    sum += shares[s];
  }
  SIMD for (int64_t i = 0; i < LANES; i++) over[i] = sum[i] == 0 ? 0 : 1 / sum[i];
  for (int64_t s = 0; s < tile.to; s++) shares[s] *= over;
}

void deltaformer_forward(const real *restrict heads, const real *restrict turns, const real *restrict beta,
                         real *restrict y, real *restrict u, const Sizes *at) {
  const int64_t width = at->width, length = at->length, wide = blocks(width);
  const Room in = room_for(at);
  for (int64_t row = 0; row < at->rows; row++)
    for (int64_t head = 0; head < at->heads; head++) {
      load_keys(heads, turns, row, head, in, at);
      for (int64_t t = 0; t < length; t += LANES) {
        const Tile tile = tile_at(t, at);
        load_tile(heads, turns, row, head, t, tile, in, at);
        softmax(in.asks, in.taken, 1, t, tile, in, at);
        for (int64_t block = 0; block < wide; block++)
          product((real *)in.taken, 1, LANES, tile.queries, t, in.u + block, wide, in.out + block, wide, 0);
        for (int64_t i = 0; i < tile.queries; i++) {
          const real b = beta[(row * length + t + i) * at->heads + head];
          const real *restrict v = heads + place_of(row, t + i, 2 * at->heads + head, at);
          for (int64_t block = 0; block < wide; block++) {
            lanes taken = in.out[i * wide + block];
            for (int64_t s = 0; s < i; s++) taken += in.taken[t + s][i] * in.u[(t + s) * wide + block];
            in.u[(t + i) * wide + block] = block_of(v, block, width) - b * taken;
          }
          memcpy(u + ((row * at->heads + head) * length + t + i) * width, in.u + (t + i) * wide, width * sizeof(real));
        }
        softmax(in.q, in.seen, 0, t, tile, in, at);
        for (int64_t block = 0; block < wide; block++) {
          product((real *)in.seen, 1, LANES, tile.queries, tile.to, in.u + block, wide, in.out, 1, 0);
          for (int64_t i = 0; i < tile.queries; i++)
            put_block(y + ((row * length + t + i) * at->heads + head) * width, block, width, in.out[i]);
        }
      }
    }
  free(in.k);
}

// From the gradient of shares to that of scores, in its place.
static void softmax_back(const lanes *restrict shares, lanes *restrict d, int64_t count) {
  lanes mean = {0};
  for (int64_t s = 0; s < count; s++) mean += shares[s] * d[s];
  for (int64_t s = 0; s < count; s++) d[s] = shares[s] * (d[s] - mean);
}

void deltaformer_backward(const real *restrict heads, const real *restrict turns, const real *restrict beta,
                          const real *restrict u, const real *restrict d_y, real *restrict d_heads,
                          real *restrict d_beta, const Sizes *at) {
  const int64_t width = at->width, length = at->length, wide = blocks(width), last = (length - 1) / LANES * LANES;
  const real scale = 1 / (real)sqrt((double)width);
  const Room in = room_for(at);
  for (int64_t row = 0; row < at->rows; row++)
    for (int64_t head = 0; head < at->heads; head++) {
      load_keys(heads, turns, row, head, in, at);
      for (int64_t t = 0; t < length; t++)
        memcpy(in.u + t * wide, u + ((row * at->heads + head) * length + t) * width, width * sizeof(real));
      memset(in.d_k, 0, length * wide * sizeof(lanes));
      memset(in.d_u, 0, length * wide * sizeof(lanes));
      for (int64_t t = last; t >= 0; t -= LANES) {
        const Tile tile = tile_at(t, at);
        load_tile(heads, turns, row, head, t, tile, in, at);
        for (int64_t i = 0; i < tile.queries; i++)
          memcpy(in.d_y + i * wide, d_y + ((row * length + t + i) * at->heads + head) * width, width * sizeof(real));
        softmax(in.q, in.seen, 0, t, tile, in, at);
        across((real *)in.d_y, wide * LANES, in.across, tile.queries, width);
        product((real *)in.u, wide * LANES, 1, tile.to, width, in.across, 1, in.d_seen, 1, 0);
        softmax_back(in.seen, in.d_seen, tile.to);
        softmax(in.asks, in.taken, 1, t, tile, in, at);
        for (int64_t block = 0; block < wide; block++)
          product((real *)in.seen, LANES, 1, tile.to, tile.queries, in.d_y + block, wide, in.d_u + block, wide, 1);
        lanes b = {0}, d_b = {0};
        for (int64_t i = tile.queries - 1; i >= 0; i--) {
          b[i] = beta[(row * length + t + i) * at->heads + head];
          for (int64_t s = 0; s < i; s++)
            for (int64_t block = 0; block < wide; block++)
              in.d_u[(t + s) * wide + block] -= b[i] * in.taken[t + s][i] * in.d_u[(t + i) * wide + block];
          memcpy(d_heads + place_of(row, t + i, 2 * at->heads + head, at), in.d_u + (t + i) * wide, width * sizeof(real));
        }
        across((real *)(in.d_u + t * wide), wide * LANES, in.across, tile.queries, width);
        product((real *)in.u, wide * LANES, 1, tile.to, width, in.across, 1, in.d_taken, 1, 0);
        for (int64_t s = 0; s < tile.to; s++) {
          d_b -= in.taken[s] * in.d_taken[s];
          in.d_taken[s] *= -b;
        }
        softmax_back(in.taken, in.d_taken, tile.to);
        for (int64_t i = 0; i < tile.queries; i++) d_beta[(row * length + t + i) * at->heads + head] = d_b[i];
        for (int64_t s = 0; s < t; s++) in.taken[s] *= -b;
        for (int64_t block = 0; block < wide; block++) {
          const lanes *k = in.k + block;
          product((real *)in.taken, LANES, 1, t, tile.queries, in.d_u + t * wide + block, wide, in.d_u + block, wide, 1);
          product((real *)in.d_seen, LANES, 1, tile.to, tile.queries, in.q + block, wide, in.d_k + block, wide, 1);
          product((real *)in.d_taken, LANES, 1, tile.to, tile.queries, in.asks + block, wide, in.d_k + block, wide, 1);
          product((real *)in.d_seen, 1, LANES, tile.queries, tile.to, k, wide, in.d_y + block, wide, 0);
          product((real *)in.d_taken, 1, LANES, tile.queries, tile.to, k, wide, in.out + block, wide, 0);
        }
        for (int64_t i = 0; i < tile.queries * wide; i++) {
          if (at->other)
            in.d_y[i] += in.out[i];
          else
            in.d_k[t * wide + i] += scale * in.out[i];
        }
        for (int64_t i = 0; i < tile.queries; i++)
          turned((real *)(in.d_y + i * wide), d_heads + place_of(row, t + i, head, at), turns, t + i, scale, 1, at);
      }
      for (int64_t t = 0; t < length; t++)
        turned((real *)(in.d_k + t * wide), d_heads + place_of(row, t, at->heads + head, at), turns, t, 1, 1, at);
    }
  free(in.k);
}
