// What the kernels share: the number they compute with, and its elementary functions as straight lines of arithmetic,
// which compilers turn into vector instructions. REAL is float or double.

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#ifdef __AVX2__
#include <immintrin.h>
#endif
#ifdef __SSE__
#include <xmmintrin.h>
#endif

typedef REAL real;

#define SIMD _Pragma("omp simd")
#define ALWAYS static inline __attribute__((always_inline))

static inline real largest(real a, real b) { return a > b ? a : b; }

// y 2^n, where n + 1.5 * 2^23 is given: its last bits are n.
static inline float times_power(float y, float shifted) {
  uint32_t bits, power;
  memcpy(&bits, &y, 4);
  memcpy(&power, &shifted, 4);
  bits += power << 23;
  memcpy(&y, &bits, 4);
  return y;
}

// e^x in float to 2 units in the last place; beyond e^-87 and e^88 it stays where it is, and NaN stays NaN.
static inline float exp_float(float asked) {
  const float above = asked < -87.0f ? -87.0f : asked, x = above > 88.0f ? 88.0f : above;
  const float shifted = x * 1.44269504f + 12582912.0f;  // 1.5 * 2^23: the last bits are the nearest integer
  const float n = shifted - 12582912.0f;
  const float r = (x - n * 0.693145752f) - n * 1.42860677e-6f;
  float y = 1.98412698e-4f;
  y = y * r + 1.38888889e-3f;
  y = y * r + 8.33333333e-3f;
  y = y * r + 4.16666667e-2f;
  y = y * r + 1.66666667e-1f;
  y = y * r + 0.5f;
  y = y * r + 1.0f;
  y = y * r + 1.0f;
  return asked == asked ? times_power(y, shifted) : asked;
}

// 2^x in float to 2 units in the last place; beyond 2^-126 and 2^127 it stays where it is, and NaN stays NaN.
static inline float exp2_float(float asked) {
  const float above = asked < -126.0f ? -126.0f : asked, x = above > 127.0f ? 127.0f : above;
  const float shifted = x + 12582912.0f, r = x - (shifted - 12582912.0f);
  float y = 1.534581243e-4f;
  y = y * r + 1.339993090e-3f;
  y = y * r + 9.618489072e-3f;
  y = y * r + 5.550328642e-2f;
  y = y * r + 2.402264625e-1f;
  y = y * r + 6.931471825e-1f;
  y = y * r + 1.0f;
  return asked == asked ? times_power(y, shifted) : asked;
}

// log(1 + e) for e in [0, 1]: 2 atanh(e / (2 + e)).
static inline float log1p_float(float e) {
  const float s = e / (2.0f + e), q = s * s;
  float y = 1.0f / 15;
  y = y * q + 1.0f / 13;
  y = y * q + 1.0f / 11;
  y = y * q + 1.0f / 9;
  y = y * q + 1.0f / 7;
  y = y * q + 1.0f / 5;
  y = y * q + 1.0f / 3;
  y = y * q + 1.0f;
  return 2.0f * s * y;
}

// log x in float for x > 0: 2^n m with m in [sqrt(1/2), sqrt(2)), and 2 atanh((m - 1) / (m + 1)); of less than the least
// normal number some -88.
static inline float log_float(float x) {
  int32_t bits, n;
  float m;
  memcpy(&bits, &x, 4);
  n = (bits - 0x3f3504f3) >> 23;
  bits -= (int32_t)((uint32_t)n << 23);
  memcpy(&m, &bits, 4);
  const float s = (m - 1.0f) / (m + 1.0f), q = s * s;
  float y = 1.0f / 9;
  y = y * q + 1.0f / 7;
  y = y * q + 1.0f / 5;
  y = y * q + 1.0f / 3;
  y = y * q + 1.0f;
  return x == x ? (float)n * 0.693147181f + 2.0f * s * y : x;
}

static inline real exp_of(real x) { return sizeof(real) == 4 ? (real)exp_float((float)x) : (real)exp(x); }

static inline real exp2_of(real x) { return sizeof(real) == 4 ? (real)exp2_float((float)x) : (real)exp2(x); }

static inline real log_of(real x) { return sizeof(real) == 4 ? (real)log_float((float)x) : (real)log(x); }

static inline real log1p_of(real e) { return sizeof(real) == 4 ? (real)log1p_float((float)e) : (real)log1p(e); }

// s(x), given e^-|x|.
static inline real sigmoid_from(real x, real e) {
  const real s = 1 / (1 + e);
  return x >= 0 ? s : e * s;
}

// The same without a case: in float e^-x ends at e^88, in double 1 over infinity is 0.
static inline real gate_of(real x) { return 1 / (1 + exp_of(-x)); }

static inline real sigmoid(real x) { return sigmoid_from(x, exp_of(-(real)fabs(x))); }

// log(1 + e^x), given e^-|x|.
static inline real softplus_from(real x, real e) { return largest(x, 0) + log1p_of(e); }

// In float (1 - e) / (1 + e) with e = e^-2|x|, and below a quarter, where 1 - e loses digits, a series.
static inline real tanh_of(real x) {
  if (sizeof(real) > 4) return (real)tanh(x);
  const real q = x * x, e = exp_of(-2 * (real)fabs(x)), far = (1 - e) / (1 + e);
  real series = (real)0.0218694885;
  series = series * q - (real)0.0539682540;
  series = series * q + (real)0.133333333;
  series = series * q - (real)0.333333333;
  return q < (real)0.0625 ? x + x * q * series : x < 0 ? -far : far;
}

// What dies out over many steps ends as numbers below the least normal one, with which Intel's processors take far longer:
// to the end of the block in which this stands they are nothing.
#ifdef __SSE__
static inline __attribute__((unused)) void as_before(const unsigned *state) { _mm_setcsr(*state); }

static inline unsigned flushing(void) {
  const unsigned before = _mm_getcsr();
  _mm_setcsr(before | 0x8040);  // results and what is read
  return before;
}

#define NEXT_TO_NOTHING_IS_NOTHING \
  __attribute__((cleanup(as_before), unused)) const unsigned state_before = flushing();
#else
#define NEXT_TO_NOTHING_IS_NOTHING
#endif

// Rows of numbers as vectors, padded with zeros: as many numbers as a register of the processor holds, and four at least.
// Of wider vectors compilers make pieces that lie in memory.
#if defined(__AVX512DQ__)
#define LANES_OF_float 16
#define LANES_OF_double 8
#elif defined(__AVX__)
#define LANES_OF_float 8
#define LANES_OF_double 4
#else
#define LANES_OF_float 4
#define LANES_OF_double 4
#endif
#define LANES_OF_THE(number) LANES_OF_##number
#define LANES_OF(number) LANES_OF_THE(number)
#ifndef LANES
#define LANES LANES_OF(REAL)
#endif

typedef real lanes __attribute__((vector_size(LANES * sizeof(real)), aligned(sizeof(real)), may_alias));

// Whether they are the floats of a type of the processor's own.
#define ARE_FLOATS_OF(type) (sizeof(real) == 4 && sizeof(lanes) == sizeof(type))

#if defined(__AVX2__) && !defined(__AVX512DQ__)
static const int32_t first_lanes[16] = {-1, -1, -1, -1, -1, -1, -1, -1};  // from 8 - n on: n of them
#endif

static inline int64_t blocks(int64_t width) { return (width + LANES - 1) / LANES; }

// The lanes of a block of a row that is `width` wide, zero behind its end. Of fewer numbers than a vector's the C
// library's copy is a call, and what is stored in parts waits until it can be read as a vector: where vectors have masks,
// no copy. Nor of a whole one: for Intel's processors compilers copy halves.
static inline lanes block_of(const real *restrict x, int64_t block, int64_t width) {
  lanes found = {0};
  const int64_t left = width - block * LANES;
  if (left >= LANES) return *(const lanes *)(x + block * LANES);
#ifdef __AVX512DQ__
  if (ARE_FLOATS_OF(__m512)) {
    const __m512 part = _mm512_maskz_loadu_ps((__mmask16)((1u << left) - 1), x + block * LANES);
    return *(const lanes *)&part;
  }
#elif defined(__AVX2__)
  if (ARE_FLOATS_OF(__m256)) {
    const __m256i mask = _mm256_loadu_si256((const __m256i *)(first_lanes + 8 - left));
    const __m256 part = _mm256_maskload_ps((const float *)(x + block * LANES), mask);
    return *(const lanes *)&part;
  }
#endif
  memcpy(&found, x + block * LANES, left * sizeof(real));
  return found;
}

static inline void put_block(real *restrict x, int64_t block, int64_t width, lanes found) {
  const int64_t left = width - block * LANES;
  if (left >= LANES) {
    *(lanes *)(x + block * LANES) = found;
    return;
  }
#ifdef __AVX512DQ__
  if (ARE_FLOATS_OF(__m512)) {
    _mm512_mask_storeu_ps(x + block * LANES, (__mmask16)((1u << left) - 1), *(const __m512_u *)&found);
    return;
  }
#endif
  memcpy(x + block * LANES, &found, left * sizeof(real));
}

// Parts of so many vectors each, of zeros; free the first.
static inline void rooms_for(int64_t parts, const int64_t *restrict sizes, lanes **restrict part) {
  int64_t count = 0;
  for (int64_t i = 0; i < parts; i++) count += sizes[i];
  lanes *all = aligned_alloc(sizeof(lanes), count * sizeof(lanes));
  memset(all, 0, count * sizeof(lanes));
  for (int64_t i = 0; i < parts; all += sizes[i++]) part[i] = all;
}

// sum_i c_i S_i, as four sums: each has to wait for its last addition.
static inline lanes weighted(const real *restrict c, const lanes *restrict S, int64_t count) {
  lanes sum[4] = {{0}};
  int64_t i = 0;
  for (; i + 4 <= count; i += 4)
    for (int64_t part = 0; part < 4; part++) sum[part] += c[i + part] * S[i + part];
  for (; i < count; i++) sum[0] += c[i] * S[i];
  return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

// `count` rows of what follows.
ALWAYS void rows_of_product(const int64_t count, const real *restrict a, int64_t down, int64_t right, int64_t columns,
                            const lanes *restrict B, int64_t below, lanes *restrict C, int64_t apart, int adds) {
  lanes sum[8];
  _Pragma("GCC unroll 8") for (int64_t i = 0; i < count; i++) sum[i] = adds ? C[i * apart] : (lanes){0};
  for (int64_t j = 0; j < columns; j++)
    _Pragma("GCC unroll 8") for (int64_t i = 0; i < count; i++) sum[i] += a[i * down + j * right] * B[j * below];
  _Pragma("GCC unroll 8") for (int64_t i = 0; i < count; i++) C[i * apart] = sum[i];
}

// sum_i c_i S_i for rows of numbers c: C_i = sum_j a_ij B_j, or that added to C_i, where a_ij stands `down` i + `right` j
// numbers behind a, B_j and C_i `below` j and `apart` i vectors behind theirs. Eight at once: a sum waits for its last
// addition four times as long as for the next.
static inline void product(const real *restrict a, int64_t down, int64_t right, int64_t rows, int64_t columns,
                           const lanes *restrict B, int64_t below, lanes *restrict C, int64_t apart, int adds) {
  int64_t i = 0;
  for (; i + 8 <= rows; i += 8)
    rows_of_product(8, a + i * down, down, right, columns, B, below, C + i * apart, apart, adds);
  for (; i + 4 <= rows; i += 4)
    rows_of_product(4, a + i * down, down, right, columns, B, below, C + i * apart, apart, adds);
  for (; i < rows; i++) rows_of_product(1, a + i * down, down, right, columns, B, below, C + i * apart, apart, adds);
}

// Integers as wide as the numbers.
typedef __typeof__(__builtin_choose_expr(sizeof(real) == 4, (int32_t)0, (int64_t)0)) integer;
typedef integer whole __attribute__((vector_size(LANES * sizeof(real)), aligned(sizeof(real)), may_alias));

// Lanes of two vectors, the second's from LANES on.
#ifdef __clang__
#define PICKED(x, y, ...) __builtin_shufflevector(x, y, __VA_ARGS__)
#else
#define PICKED(x, y, ...) __builtin_shuffle(x, y, (whole){__VA_ARGS__})
#endif

// Rows r_i and r_{i + D}: the lanes of the first with bit D for those of the second without.
#define FROM_ONE(l, D) ((l) & (D) ? LANES + (l) - (D) : (l))
#define FROM_OTHER(l, D) ((l) & (D) ? LANES + (l) : (l) + (D))
#define OF_FOUR(PICK, from, D) PICK(from, D), PICK(from + 1, D), PICK(from + 2, D), PICK(from + 3, D)
#if LANES == 16
#define OF_ALL(PICK, D) OF_FOUR(PICK, 0, D), OF_FOUR(PICK, 4, D), OF_FOUR(PICK, 8, D), OF_FOUR(PICK, 12, D)
#elif LANES == 8
#define OF_ALL(PICK, D) OF_FOUR(PICK, 0, D), OF_FOUR(PICK, 4, D)
#else
#define OF_ALL(PICK, D) OF_FOUR(PICK, 0, D)
#endif
#define SWAPPED(r, D)                                              \
  _Pragma("GCC unroll 16") for (int64_t i = 0; i < LANES; i++) {   \
    if (i & (D)) continue;                                         \
    const lanes one = r[i], other = r[i + (D)];                    \
    r[i] = PICKED(one, other, OF_ALL(FROM_ONE, D));                \
    r[i + (D)] = PICKED(one, other, OF_ALL(FROM_OTHER, D));        \
  }

// The sum of a vector.
static inline real sum_of(lanes x) {
  real sum = 0;
  for (int64_t i = 0; i < LANES; i++) sum += x[i];
  return sum;
}

// The sums within each of as many vectors as they have lanes, as one: r[0].
static inline lanes sums_within(lanes *restrict r) {
#define HALVED(D)                                                                                                   \
  _Pragma("GCC unroll 16") for (int64_t i = 0; i < LANES; i += 2 * (D)) r[i] =                                      \
      PICKED(r[i], r[i + (D)], OF_ALL(FROM_ONE, D)) + PICKED(r[i], r[i + (D)], OF_ALL(FROM_OTHER, D));
  HALVED(1)
  HALVED(2)
#if LANES > 4
  HALVED(4)
#endif
#if LANES > 8
  HALVED(8)
#endif
  return r[0];
}

// Up to LANES rows, `apart` numbers from one another, across vectors: found[k] holds the k-th number of each, and 0.
// Not inline, where it would take the compiler longer than all else.
static __attribute__((noinline, unused)) void across(const real *restrict rows, int64_t apart, lanes *restrict found,
                                                     int64_t count, int64_t width) {
  int64_t k = 0;
  for (; k + LANES <= width; k += LANES) {
    lanes r[LANES];
    for (int64_t i = 0; i < LANES; i++) r[i] = i < count ? block_of(rows + i * apart + k, 0, LANES) : (lanes){0};
    SWAPPED(r, 1)
    SWAPPED(r, 2)
#if LANES > 4
    SWAPPED(r, 4)
#endif
#if LANES > 8
    SWAPPED(r, 8)
#endif
    for (int64_t i = 0; i < LANES; i++) found[k + i] = r[i];
  }
  memset(found + k, 0, (width - k) * sizeof(lanes));
  for (int64_t i = 0; i < count; i++)
    for (int64_t of = k; of < width; of++) ((real *)found)[of * LANES + i] = rows[i * apart + of];
}
