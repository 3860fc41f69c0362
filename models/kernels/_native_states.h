// States of K rows of whole vectors, zero behind V, of one row of one head after the other.
//
// What is asked and written is [B, L, H, K] or [B, L, H, V], states are [B, H, K, V].

#include "_native_rows.h"

typedef struct {
  int64_t batch, length, heads, keys, values;
} Sizes;

static inline int64_t wide_of(const Sizes *at) { return blocks(at->values); }

static inline void put_in(const real *restrict rows, int64_t count, lanes *restrict found, const Sizes *at) {
  put_rows(rows, count, at->values, found);
}

static inline void put_out(const lanes *restrict found, int64_t count, real *restrict rows, const Sizes *at) {
  take_rows(found, count, at->values, rows);
}

// What is behind V in rows, which may be no number.
static inline void clear_behind(lanes *rows, int64_t count, const Sizes *at) {
  const int64_t wide = wide_of(at), last = wide - 1;
  for (int64_t i = 0; i < count && at->values % LANES; i++)
    rows[i * wide + last] = block_of((const real *)(rows + i * wide), last, at->values);
}

// q S: the rows of a state, each so many times.
static inline void read_by(const lanes *restrict rows, const real *restrict q, real *restrict found, const Sizes *at) {
  const int64_t wide = wide_of(at);
  for (int64_t b = 0; b < wide; b++) {
    lanes sum = {0};
    for (int64_t i = 0; i < at->keys; i++) sum += q[i] * rows[i * wide + b];
    put_block(found, b, at->values, sum);
  }
}

// S x: the product of each row with x.
static inline void rows_by(const lanes *restrict rows, const lanes *restrict x, real *restrict found, const Sizes *at) {
  const int64_t wide = wide_of(at);
  for (int64_t from = 0; from < at->keys; from += LANES) {
    lanes r[LANES];
    for (int64_t i = 0; i < LANES; i++) {
      r[i] = (lanes){0};
      for (int64_t b = 0; b < wide && from + i < at->keys; b++) r[i] += rows[(from + i) * wide + b] * x[b];
    }
    put_block(found, from / LANES, at->keys, sums_within(r));
  }
}
