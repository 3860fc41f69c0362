// Memories of cells that move, of which every action takes a share, and the way back: models/scans/moves.py.
//
// One memory a row: `cells` of `width` numbers, a new cell, and a share for each of `actions`. The cells lie behind the
// new one, all of them or, if it `replaces` the first, all others. A move is a run of them, one addition of a multiple.
// What is moved often by small shares dies out: next to nothing is nothing.

#include "_native.h"

typedef struct {
  int64_t action, to, source, count;
} Move;

typedef struct {
  int64_t rows, cells, width, actions;
  int64_t replaces, moves;
  Move move[];
} Sizes;

static void put_together(const real *restrict fresh, const real *restrict memory, real *restrict found,
                         const Sizes *at) {
  memcpy(found, fresh, at->width * sizeof(real));
  memcpy(found + at->width, memory + at->replaces * at->width, (at->cells - at->replaces) * at->width * sizeof(real));
}

void moves_forward(const real *restrict fresh, const real *restrict memory, const real *restrict shares,
                   real *restrict moved, const Sizes *at) {
  NEXT_TO_NOTHING_IS_NOTHING
  const int64_t width = at->width, whole = at->cells * width;
  real *restrict held = malloc((whole + width) * sizeof(real));
  for (int64_t row = 0; row < at->rows; row++) {
    real *restrict y = moved + row * whole;
    put_together(fresh + row * width, memory + row * whole, held, at);
    memset(y, 0, whole * sizeof(real));
    for (const Move *move = at->move; move < at->move + at->moves; move++) {
      const real share = shares[row * at->actions + move->action];
      const real *restrict x = held + move->source * width;
      real *restrict to = y + move->to * width;
      SIMD for (int64_t i = 0; i < move->count * width; i++) to[i] += share * x[i];
    }
  }
  free(held);
}

// All gradients are written.
void moves_backward(const real *restrict d_moved, const real *restrict fresh, const real *restrict memory,
                    const real *restrict shares, real *restrict d_fresh, real *restrict d_memory,
                    real *restrict d_shares, const Sizes *at) {
  NEXT_TO_NOTHING_IS_NOTHING
  const int64_t width = at->width, whole = at->cells * width, kept = at->replaces * width;
  real *restrict held = malloc((whole + width) * sizeof(real));
  real *restrict d_held = malloc((whole + width) * sizeof(real));
  memset(d_shares, 0, at->rows * at->actions * sizeof(real));
  for (int64_t row = 0; row < at->rows; row++) {
    const real *restrict d_y = d_moved + row * whole;
    put_together(fresh + row * width, memory + row * whole, held, at);
    memset(d_held, 0, (whole + width) * sizeof(real));
    for (const Move *move = at->move; move < at->move + at->moves; move++) {
      const real share = shares[row * at->actions + move->action];
      const real *restrict x = held + move->source * width, *restrict d_to = d_y + move->to * width;
      real *restrict d_x = d_held + move->source * width, sum = 0;
      _Pragma("omp simd reduction(+ : sum)") for (int64_t i = 0; i < move->count * width; i++) {
        sum += d_to[i] * x[i];
        d_x[i] += share * d_to[i];
      }
      d_shares[row * at->actions + move->action] += sum;
    }
    memcpy(d_fresh + row * width, d_held, width * sizeof(real));
    memset(d_memory + row * whole, 0, kept * sizeof(real));
    memcpy(d_memory + row * whole + kept, d_held + width, (whole - kept) * sizeof(real));
  }
  free(held);
  free(d_held);
}
