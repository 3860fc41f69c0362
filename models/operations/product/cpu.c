// C = A B + c of many matrices: models/kernels/native_product.py.
//
// Where a number stands is said by strides, so that nothing has to be turned or put together first: of a matrix `down`
// its rows and `right` along them, C's rows in one piece; between matrices `outer` and `inner`, for batches and heads. c is
// one row. Sums are of DEPTH numbers in their order, and of those sums, whatever rows and columns there are beside.
// So many rows of B are laid out as strips of two vectors; beside a strip go as many rows of A at a time as there are
// registers for their sums.

#include "_native_tile.h"

typedef struct {
  int64_t outer, inner, rows, depth, columns;
  int64_t a_outer, a_inner, a_down, a_right, b_outer, b_inner, b_down, b_right;
  int64_t c_outer, c_inner, c_down, bias_outer, bias_inner;
  int64_t adds;  // to what C holds
} Sizes;

enum { DEPTH = 128, NEAR = 96 };  // numbers of a sum; rows of A that stay in the cache while strips pass

// Rows of B as strips of up to two vectors, the columns behind the last zero.
static void laid_out(const real *restrict b, int64_t depth, int64_t columns, lanes *restrict strips, lanes *restrict turned,
                     const Sizes *at) {
  for (int64_t k = 0; k < columns; k += WIDE * LANES) {
    const int64_t width = columns - k < WIDE * LANES ? columns - k : WIDE * LANES, wide = blocks(width);
    for (int64_t part = 0; part < wide; part++) {
      const real *restrict of = b + (k + part * LANES) * at->b_right;
      const int64_t here = width - part * LANES < LANES ? width - part * LANES : LANES;
      if (at->b_right == 1) {
        for (int64_t j = 0; j < depth; j++) strips[j * wide + part] = block_of(of + j * at->b_down, 0, here);
      } else if (at->b_down == 1) {
        across(of, at->b_right, turned, here, depth);
        for (int64_t j = 0; j < depth; j++) strips[j * wide + part] = turned[j];
      } else {
        for (int64_t j = 0; j < depth; j++) {
          strips[j * wide + part] = (lanes){0};
          for (int64_t i = 0; i < here; i++) strips[j * wide + part][i] = of[j * at->b_down + i * at->b_right];
        }
      }
    }
    strips += wide * depth;
  }
}

static void one_product(const real *restrict A, const real *restrict B, const real *restrict bias, real *restrict C,
                        lanes *restrict strips, lanes *restrict turned, const Sizes *at) {
  for (int64_t from = 0; from < at->depth; from += DEPTH) {
    const int64_t depth = at->depth - from < DEPTH ? at->depth - from : DEPTH;
    laid_out(B + from * at->b_down, depth, at->columns, strips, turned, at);
    for (int64_t i = 0; i < at->rows; i += NEAR) {
      const int64_t rows = at->rows - i < NEAR ? at->rows - i : NEAR;
      const real *restrict a = A + i * at->a_down + from * at->a_right;
      const lanes *restrict strip = strips;
      for (int64_t k = 0; k < at->columns; k += WIDE * LANES) {
        const int64_t left = at->columns - k, width = left < WIDE * LANES ? left : WIDE * LANES;
        const real *restrict start = bias && !from ? bias + k : NULL;
        real *restrict c = C + i * at->c_down + k;
        (width > LANES ? rows_2 : rows_1)(a, at->a_down, at->a_right, rows, depth, strip, start, c, at->c_down, width,
                                          from || at->adds);
        strip += blocks(width) * depth;
      }
    }
  }
}

void products(const real *restrict A, const real *restrict B, const real *restrict bias, real *restrict C,
              const Sizes *at) {
  const int64_t deepest = at->depth < DEPTH ? at->depth : DEPTH;
  lanes *part[2];
  rooms_for(2, (int64_t[]){deepest * blocks(at->columns), deepest}, part);
  for (int64_t n = 0; n < at->outer; n++)
    for (int64_t m = 0; m < at->inner; m++)
      one_product(A + n * at->a_outer + m * at->a_inner, B + n * at->b_outer + m * at->b_inner,
                  bias ? bias + n * at->bias_outer + m * at->bias_inner : NULL,
                  C + n * at->c_outer + m * at->c_inner, part[0], part[1], at);
  free(part[0]);
}
