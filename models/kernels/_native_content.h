// What is found by what it holds: c = softmax_n(b k . M[n] / (|k| |M[n]|)), models/scans/addressing.py, and the way back.
//
// A memory is `width` rows of numbers of its `cells`, of `wide` whole vectors, of zeros behind the last cell.

#include "_native_rows.h"

#define LENGTH_EPS (real)1e-6

typedef struct {
  int64_t width, cells, wide;
} Shape;

static inline Shape shape_of(int64_t width, int64_t cells) { return (Shape){width, cells, blocks(cells)}; }

// One key and what it found.
typedef struct {
  const real *key;
  real strength, by_length;
  lanes *dot, *found;  // k . M[n] and c
  lanes *d;            // of c, and after `find_back` of the dots
  real *d_key, d_strength;
} Sought;

// y = sum_i c_i x_i of rows.
static inline void mixed_rows(const real *restrict c, const lanes *restrict x, const Shape *at, lanes *restrict y) {
  for (int64_t b = 0; b < at->wide; b++) product(c, 0, 1, 1, at->width, x + b, at->wide, y + b, 1, 0);
}

// s_i = x_i . y of rows; `s` has room for whole vectors.
static inline void dots_of_rows(const lanes *restrict x, const lanes *restrict y, const Shape *at, lanes *restrict s) {
  for (int64_t first = 0; first < at->width; first += LANES) {
    const int64_t left = at->width - first;
    lanes part[LANES] = {{0}};
    for (int64_t i = 0; i < (left < LANES ? left : LANES); i++) {
      const lanes *row = x + (first + i) * at->wide;
      for (int64_t b = 0; b < at->wide; b++) part[i] += row[b] * y[b];
    }
    s[first / LANES] = sums_within(part);
  }
}

static inline real dot_of(const lanes *restrict x, const lanes *restrict y, int64_t wide) {
  lanes sum = {0};
  for (int64_t b = 0; b < wide; b++) sum += x[b] * y[b];
  return sum_of(sum);
}

// 1 / |M[n]|.
static inline void one_by_lengths(const lanes *restrict memory, const Shape *at, lanes *restrict inverse) {
  memset(inverse, 0, at->wide * sizeof(lanes));
  for (int64_t i = 0; i < at->width; i++)
    for (int64_t b = 0; b < at->wide; b++) inverse[b] += memory[i * at->wide + b] * memory[i * at->wide + b];
  real *restrict each = (real *)inverse;
  SIMD for (int64_t n = 0; n < at->wide * LANES; n++) each[n] = 1 / (real)sqrt(each[n] + LENGTH_EPS);
}

static inline void softmax_of(real *restrict x, int64_t count) {
  real most = x[0], sum = 0;
  _Pragma("omp simd reduction(max : most)") for (int64_t n = 0; n < count; n++) most = largest(most, x[n]);
  SIMD for (int64_t n = 0; n < count; n++) x[n] = exp_of(x[n] - most);
  _Pragma("omp simd reduction(+ : sum)") for (int64_t n = 0; n < count; n++) sum += x[n];
  const real share = 1 / sum;
  SIMD for (int64_t n = 0; n < count; n++) x[n] *= share;
}

// d becomes the gradient of what y = softmax was taken of.
static inline void softmax_back(const real *restrict y, real *restrict d, int64_t count) {
  real sum = 0;
  _Pragma("omp simd reduction(+ : sum)") for (int64_t n = 0; n < count; n++) sum += y[n] * d[n];
  SIMD for (int64_t n = 0; n < count; n++) d[n] = y[n] * (d[n] - sum);
}

static inline void find(Sought *one, const lanes *restrict memory, const lanes *restrict inverse, const Shape *at) {
  real squares = LENGTH_EPS;
  for (int64_t i = 0; i < at->width; i++) squares += one->key[i] * one->key[i];
  one->by_length = 1 / (real)sqrt(squares);
  mixed_rows(one->key, memory, at, one->dot);
  const real scale = one->strength * one->by_length;
  for (int64_t b = 0; b < at->wide; b++) one->found[b] = one->dot[b] * inverse[b] * scale;
  softmax_of((real *)one->found, at->cells);
}

// Adds to d_memory; writes d_key and d_strength. `room` is as long as a row and a column.
static inline void find_back(Sought *sought, int64_t count, const lanes *restrict memory,
                             const lanes *restrict inverse, const Shape *at, lanes *restrict d_memory,
                             lanes *restrict room) {
  lanes *restrict shrink = room, *restrict sums = room + at->wide;  // by its length a cell loses of itself
  memset(shrink, 0, at->wide * sizeof(lanes));
  for (Sought *one = sought; one < sought + count; one++) {
    const real scale = one->strength * one->by_length;
    softmax_back((const real *)one->found, (real *)one->d, at->cells);
    lanes along = {0};
    for (int64_t b = 0; b < at->wide; b++) {
      const lanes d_cosine = one->d[b] * inverse[b];
      along += d_cosine * one->dot[b];
      shrink[b] -= one->d[b] * one->dot[b] * scale;
      one->d[b] = d_cosine * scale;
    }
    const real d_scale = sum_of(along);
    one->d_strength = d_scale * one->by_length;
    dots_of_rows(memory, one->d, at, sums);
    const real from_length = -d_scale * scale * one->by_length * one->by_length;
    for (int64_t i = 0; i < at->width; i++) one->d_key[i] = ((real *)sums)[i] + from_length * one->key[i];
  }
  for (int64_t b = 0; b < at->wide; b++) shrink[b] *= inverse[b] * inverse[b] * inverse[b];
  for (int64_t i = 0; i < at->width; i++)
    for (int64_t b = 0; b < at->wide; b++) {
      lanes sum = shrink[b] * memory[i * at->wide + b];
      for (int64_t k = 0; k < count; k++) sum += sought[k].key[i] * sought[k].d[b];
      d_memory[i * at->wide + b] += sum;
    }
}
