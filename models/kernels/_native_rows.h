// Rows of numbers as whole vectors, zero behind their width, one row behind the other, and their products.

#include "_native.h"

static inline __attribute__((unused)) void put_rows(const real *restrict x, int64_t count, int64_t width,
                                                    lanes *restrict found) {
  const int64_t wide = blocks(width);
  for (int64_t i = 0; i < count; i++)
    for (int64_t b = 0; b < wide; b++) found[i * wide + b] = block_of(x + i * width, b, width);
}

static inline __attribute__((unused)) void take_rows(const lanes *restrict found, int64_t count, int64_t width,
                                                     real *restrict x) {
  const int64_t wide = blocks(width);
  for (int64_t i = 0; i < count; i++)
    for (int64_t b = 0; b < wide; b++) put_block(x + i * width, b, width, found[i * wide + b]);
}

// a b, where b has `columns` rows of `wide` vectors and a_ij stands `down` i + `right` j numbers behind a; `adds` to c.
static inline __attribute__((unused)) void times(const lanes *restrict a, int64_t down, int64_t right, int64_t rows,
                                                 int64_t columns, const lanes *restrict b, int64_t wide,
                                                 lanes *restrict c, int adds) {
  for (int64_t v = 0; v < wide; v++)
    product((const real *)a, down, right, rows, columns, b + v, wide, c + v, wide, adds);
}

// a b^T of rows of `width` numbers, `count` of b's; `turned` is room for `width` vectors.
static __attribute__((unused)) void times_turned(const lanes *restrict a, int64_t rows, const lanes *restrict b,
                                                 int64_t count, int64_t width, lanes *restrict turned,
                                                 lanes *restrict c, int adds) {
  const int64_t apart = blocks(width) * LANES, wide = blocks(count);
  for (int64_t v = 0; v < wide; v++) {
    const int64_t left = count - v * LANES;
    across((const real *)b + v * LANES * apart, apart, turned, left < LANES ? left : LANES, width);
    product((const real *)a, apart, 1, rows, width, turned, 1, c + v, wide, adds);
  }
}
