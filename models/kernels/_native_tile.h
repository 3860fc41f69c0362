// Rows of numbers times a strip of up to two vectors of columns, TALL rows at a time, whose sums are registers.

#include "_native.h"

// Of 32 registers, or of 16: sums, the strip's vectors, and the number they are multiplied with.
#if defined(__AVX512DQ__) || defined(__aarch64__)
#define TALL 12
#define MIDDLE 8
#define LOW 4
#else
#define TALL 6
#define MIDDLE 4
#define LOW 2
#endif
#define WIDE 2

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

// All rows of C beside one strip.
#define ROWS_OF(wide)                                                                                              \
  static __attribute__((noinline)) void rows_##wide(const real *restrict a, int64_t down, int64_t right,            \
                                                    int64_t rows, int64_t depth, const lanes *restrict strip,       \
                                                    const real *restrict bias, real *restrict c, int64_t c_down,    \
                                                    int64_t width, int adds) {                                      \
    int64_t i = 0;                                                                                                 \
    for (; i + TALL <= rows; i += TALL)                                                                            \
      tile(TALL, wide, a + i * down, down, right, depth, strip, bias, c + i * c_down, c_down, width, adds);        \
    for (; i + MIDDLE <= rows; i += MIDDLE)                                                                        \
      tile(MIDDLE, wide, a + i * down, down, right, depth, strip, bias, c + i * c_down, c_down, width, adds);      \
    for (; i + LOW <= rows; i += LOW)                                                                              \
      tile(LOW, wide, a + i * down, down, right, depth, strip, bias, c + i * c_down, c_down, width, adds);         \
    for (; i < rows; i++)                                                                                          \
      tile(1, wide, a + i * down, down, right, depth, strip, bias, c + i * c_down, c_down, width, adds);           \
  }
ROWS_OF(1)
ROWS_OF(2)
