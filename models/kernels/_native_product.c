// C = A B + c of many matrices: models/kernels/native_product.py.
//
// Where a number stands is said by strides, so that nothing has to be turned or put together first: of a matrix `down`
// its rows and `right` along them, C's rows in one piece; between matrices `outer` and `inner`, for batches and heads. c is
// one row. Sums are of DEPTH numbers in their order, and of those sums, whatever rows and columns there are beside.
// So many rows of B are laid out as strips of two vectors; beside a strip go twelve rows of A at a time, whose sums are
// registers.

#include "_native.h"

typedef struct {
  int64_t outer, inner, rows, depth, columns;
  int64_t a_outer, a_inner, a_down, a_right, b_outer, b_inner, b_down, b_right;
  int64_t c_outer, c_inner, c_down, bias_outer, bias_inner;
  int64_t adds;  // to what C holds
} Sizes;

#define TALL 12
#define WIDE 2
#define DEPTH 128
#define NEAR 96  // rows of A that stay in the cache while strips pass

// `tall` x `wide` vectors of sums of `depth` products each, into the first `width` numbers of rows of C.
static inline __attribute__((always_inline)) void tile(const int tall, const int wide, const real *restrict a,
                                                       int64_t down, int64_t right, int64_t depth,
                                                       const lanes *restrict strip, const real *restrict bias,
                                                       real *restrict c, int64_t c_down, int64_t width, int adds) {
  lanes sum[TALL][WIDE];
  _Pragma("GCC unroll 12") for (int i = 0; i < tall; i++)
    _Pragma("GCC unroll 2") for (int part = 0; part < wide; part++) sum[i][part] = (lanes){0};
  for (int64_t j = 0; j < depth; j++) {
    lanes b[WIDE];
    _Pragma("GCC unroll 2") for (int part = 0; part < wide; part++) b[part] = strip[j * wide + part];
    _Pragma("GCC unroll 12") for (int i = 0; i < tall; i++) {
      const real of = a[i * down + j * right];
      _Pragma("GCC unroll 2") for (int part = 0; part < wide; part++) sum[i][part] += of * b[part];
    }
  }
  _Pragma("GCC unroll 12") for (int i = 0; i < tall; i++)
    _Pragma("GCC unroll 2") for (int part = 0; part < wide; part++) {
      lanes found = sum[i][part];
      if (adds) found += block_of(c + i * c_down, part, width);
      if (bias) found += block_of(bias, part, width);
      put_block(c + i * c_down, part, width, found);
    }
}

// Rows of C beside one strip.
#define ROWS_OF(wide)                                                                                            \
  static __attribute__((noinline)) void rows_##wide(const real *restrict a, int64_t rows, int64_t depth,         \
                                                    const lanes *restrict strip, const real *restrict bias,      \
                                                    real *restrict c, int64_t width, int adds, const Sizes *at) { \
    const int64_t down = at->a_down, right = at->a_right, c_down = at->c_down;                                   \
    int64_t i = 0;                                                                                               \
    for (; i + 12 <= rows; i += 12)                                                                              \
      tile(12, wide, a + i * down, down, right, depth, strip, bias, c + i * c_down, c_down, width, adds);        \
    for (; i + 8 <= rows; i += 8)                                                                                \
      tile(8, wide, a + i * down, down, right, depth, strip, bias, c + i * c_down, c_down, width, adds);         \
    for (; i + 4 <= rows; i += 4)                                                                                \
      tile(4, wide, a + i * down, down, right, depth, strip, bias, c + i * c_down, c_down, width, adds);         \
    for (; i < rows; i++)                                                                                        \
      tile(1, wide, a + i * down, down, right, depth, strip, bias, c + i * c_down, c_down, width, adds);         \
  }
ROWS_OF(1)
ROWS_OF(2)

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
        if (width > LANES)
          rows_2(a, rows, depth, strip, start, c, width, from || at->adds, at);
        else
          rows_1(a, rows, depth, strip, start, c, width, from || at->adds, at);
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
