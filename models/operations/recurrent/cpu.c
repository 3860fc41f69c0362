// The recurrences of models/scans/recurrences.py behind their input products, and their way back.
//
// gates are [R, B, L, G K], G of them a step, h before the first [R, B, K], U [R, G K, K]; h [R, B, L, K] is written. R is
// of replicas. Up to ROWS rows go through all steps together; U lies in strips of two vectors, and what rows give with it
// in whole vectors.

#include "_native_tile.h"

typedef struct {
  int64_t replicas, batch, length, width, relu;
} Sizes;

enum { ROWS = 64 };

typedef struct {
  int64_t deep, wide;            // numbers along a strip; vectors of all
  lanes *strips, *found, *rest;  // U or its transpose; what rows give with it, [ROWS, wide]; [ROWS, as asked]
} Room;

static Room room_for(int64_t deep, int64_t columns, int64_t rest) {
  const int64_t wide = blocks(columns);
  lanes *part[3];
  rooms_for(3, (int64_t[]){deep * wide, ROWS * wide, ROWS * rest}, part);
  return (Room){deep, wide, part[0], part[1], part[2]};
}

// A matrix [deep, columns] whose numbers stand `down` and `right` apart.
static void lay_out(const real *restrict matrix, int64_t down, int64_t right, int64_t columns, Room in) {
  for (int64_t from = 0; from < in.wide; from += WIDE) {
    const int64_t wide = in.wide - from < WIDE ? in.wide - from : WIDE, left = columns - from * LANES;
    real *restrict strip = (real *)(in.strips + from * in.deep);
    for (int64_t j = 0; j < in.deep; j++)
      for (int64_t k = 0; k < wide * LANES && k < left; k++)
        strip[j * wide * LANES + k] = matrix[j * down + (from * LANES + k) * right];
  }
}

// Rows [deep], `down` numbers apart, times the matrix, or that added to what was found.
static void multiply(const real *restrict rows, int64_t down, int64_t count, int adds, Room in) {
  for (int64_t from = 0; from < in.wide; from += WIDE) {
    const int64_t wide = in.wide - from < WIDE ? 1 : WIDE;
    (wide == 1 ? rows_1 : rows_2)(rows, down, 1, count, in.deep, in.strips + from * in.deep, NULL,
                                  (real *)(in.found + from), in.wide * LANES, wide * LANES, adds);
  }
}

typedef struct {
  int64_t count;        // rows of a batch
  int64_t from, state;  // the first one's first step among all steps, and its state among all states
} Part;

static Part part_of(int64_t replica, int64_t first, const Sizes *at) {
  const int64_t left = at->batch - first, row = replica * at->batch + first;
  return (Part){left < ROWS ? left : ROWS, row * at->length, row};
}

// What was found last, to where the states of a part stand.
static void put_found(real *restrict states, Part part, int64_t width, Room in) {
  for (int64_t row = 0; row < part.count; row++)
    memcpy(states + (part.state + row) * width, in.found + row * in.wide, width * sizeof(real));
}

#define EACH_PART                                                                             \
  for (int64_t replica = 0; replica < at->replicas; replica++)                                \
    for (int64_t first = 0; first < at->batch; first += ROWS)

// h = f(gates + U h).
void rnn_forward(const real *restrict gates, const real *restrict before, const real *restrict U, real *restrict h,
                 const Sizes *at) {
  const int64_t width = at->width, length = at->length, row_apart = length * width;
  const Room in = room_for(width, width, 0);
  EACH_PART {
    const Part part = part_of(replica, first, at);
    if (!first) lay_out(U + replica * width * width, 1, width, width, in);
    for (int64_t t = 0; t < length; t++) {
      const int64_t place = (part.from + t) * width;
      if (t)
        multiply(h + place - width, row_apart, part.count, 0, in);
      else
        multiply(before + part.state * width, width, part.count, 0, in);
      for (int64_t row = 0; row < part.count; row++) {
        const real *restrict x = gates + place + row * row_apart, *restrict from_h = (real *)(in.found + row * in.wide);
        real *restrict out = h + place + row * row_apart;
        if (at->relu)
          SIMD for (int64_t k = 0; k < width; k++) out[k] = x[k] + from_h[k] < 0 ? 0 : x[k] + from_h[k];  // or NaN
        else
          SIMD for (int64_t k = 0; k < width; k++) out[k] = tanh_of(x[k] + from_h[k]);
      }
    }
  }
  free(in.strips);
}

void rnn_backward(const real *restrict h, const real *restrict U, const real *restrict d_h, real *restrict d_gates,
                  real *restrict d_before, const Sizes *at) {
  const int64_t width = at->width, length = at->length, row_apart = length * width;
  const Room in = room_for(width, width, 0);
  EACH_PART {
    const Part part = part_of(replica, first, at);
    if (!first) lay_out(U + replica * width * width, width, 1, width, in);
    memset(in.found, 0, ROWS * in.wide * sizeof(lanes));
    for (int64_t t = length - 1; t >= 0; t--) {
      const int64_t place = (part.from + t) * width;
      for (int64_t row = 0; row < part.count; row++) {
        const int64_t here = place + row * row_apart;
        const real *restrict from_next = (real *)(in.found + row * in.wide);
        const real *restrict h_r = h + here, *restrict d_r = d_h + here;
        real *restrict d_x = d_gates + here;
        if (at->relu)
          SIMD for (int64_t k = 0; k < width; k++) d_x[k] = h_r[k] > 0 ? d_r[k] + from_next[k] : 0;
        else
          SIMD for (int64_t k = 0; k < width; k++) d_x[k] = (d_r[k] + from_next[k]) * (1 - h_r[k] * h_r[k]);
      }
      multiply(d_gates + place, row_apart, part.count, 0, in);
    }
    put_found(d_before, part, width, in);
  }
  free(in.strips);
}

// r, z, n of gates and U h: h = n + z (h - n), n = tanh(n_x + r m) with m = n_h + bias. kept is r, z, n and m, [.., 4, K].
void gru_forward(const real *restrict gates, const real *restrict before, const real *restrict U,
                 const real *restrict bias, real *restrict h, real *restrict kept, const Sizes *at) {
  const int64_t width = at->width, length = at->length, across = 3 * width, row_apart = length * width;
  const Room in = room_for(width, across, 0);
  EACH_PART {
    const Part part = part_of(replica, first, at);
    const real *restrict own = bias + replica * width;
    if (!first) lay_out(U + replica * across * width, 1, width, across, in);
    for (int64_t t = 0; t < length; t++) {
      const int64_t place = part.from + t, apart = t ? row_apart : width;
      const real *restrict last = t ? h + (place - 1) * width : before + part.state * width;
      multiply(last, apart, part.count, 0, in);
      for (int64_t row = 0; row < part.count; row++) {
        const int64_t here = place + row * length;
        const real *restrict x = gates + here * across, *restrict from_h = (real *)(in.found + row * in.wide);
        const real *restrict h_r = last + row * apart;
        real *restrict out = h + here * width, *restrict keep = kept + here * 4 * width;
        SIMD for (int64_t k = 0; k < width; k++) {
          const real r = gate_of(x[k] + from_h[k]), z = gate_of(x[width + k] + from_h[width + k]);
          const real m = from_h[2 * width + k] + own[k], n = tanh_of(x[2 * width + k] + r * m);
          out[k] = n + z * (h_r[k] - n);
          keep[k] = r;
          keep[width + k] = z;
          keep[2 * width + k] = n;
          keep[3 * width + k] = m;
        }
      }
    }
  }
  free(in.strips);
}

// d_gates, and for U and the bias d_m, the gradient of m, [.., K]; before the first step d_before.
void gru_backward(const real *restrict h, const real *restrict before, const real *restrict kept,
                  const real *restrict U, const real *restrict d_h, real *restrict d_gates, real *restrict d_m,
                  real *restrict d_before, const Sizes *at) {
  const int64_t width = at->width, length = at->length, across = 3 * width, row_apart = length * width;
  const Room in = room_for(across, width, blocks(across));
  const int64_t asked = blocks(across) * LANES;
  real *restrict asks = (real *)in.rest;  // what comes back of U h: of r, z and m
  EACH_PART {
    const Part part = part_of(replica, first, at);
    if (!first) lay_out(U + replica * across * width, width, 1, width, in);
    memset(in.found, 0, ROWS * in.wide * sizeof(lanes));
    for (int64_t t = length - 1; t >= 0; t--) {
      const int64_t place = part.from + t, apart = t ? row_apart : width;
      const real *restrict last = t ? h + (place - 1) * width : before + part.state * width;
      for (int64_t row = 0; row < part.count; row++) {
        const int64_t here = place + row * length;
        const real *restrict h_r = last + row * apart, *restrict d_r = d_h + here * width;
        const real *restrict keep = kept + here * 4 * width;
        real *restrict from_next = (real *)(in.found + row * in.wide), *restrict of = asks + row * asked;
        real *restrict d_x = d_gates + here * across, *restrict of_m = d_m + here * width;
        SIMD for (int64_t k = 0; k < width; k++) {
          const real r = keep[k], z = keep[width + k], n = keep[2 * width + k], m = keep[3 * width + k];
          const real d = d_r[k] + from_next[k], d_n = d * (1 - z) * (1 - n * n), from_m = d_n * r;
          const real d_r_x = d_n * m * r * (1 - r), d_z = d * (h_r[k] - n) * z * (1 - z);
          of[k] = d_x[k] = d_r_x;
          of[width + k] = d_x[width + k] = d_z;
          of[2 * width + k] = of_m[k] = from_m;
          d_x[2 * width + k] = d_n;
          from_next[k] = d * z;
        }
      }
      multiply(asks, asked, part.count, 1, in);
    }
    put_found(d_before, part, width, in);
  }
  free(in.strips);
}

// i, f, g, o of gates + U h: c = f c + i g, h = o tanh(c). kept is i, f, g, o and c, [.., 5, K]; c_last is written.
void lstm_forward(const real *restrict gates, const real *restrict before, const real *restrict c_before,
                  const real *restrict U, real *restrict h, real *restrict kept, real *restrict c_last,
                  const Sizes *at) {
  const int64_t width = at->width, length = at->length, across = 4 * width, row_apart = length * width;
  const Room in = room_for(width, across, 0);
  EACH_PART {
    const Part part = part_of(replica, first, at);
    if (!first) lay_out(U + replica * across * width, 1, width, across, in);
    memcpy(c_last + part.state * width, c_before + part.state * width, part.count * width * sizeof(real));
    for (int64_t t = 0; t < length; t++) {
      const int64_t place = part.from + t;
      multiply(t ? h + (place - 1) * width : before + part.state * width, t ? row_apart : width, part.count, 0, in);
      for (int64_t row = 0; row < part.count; row++) {
        const int64_t here = place + row * length;
        const real *restrict x = gates + here * across, *restrict from_h = (real *)(in.found + row * in.wide);
        real *restrict out = h + here * width, *restrict keep = kept + here * 5 * width;
        real *restrict c_r = c_last + (part.state + row) * width;
        SIMD for (int64_t k = 0; k < width; k++) {
          const real i = gate_of(x[k] + from_h[k]), f = gate_of(x[width + k] + from_h[width + k]);
          const real g = tanh_of(x[2 * width + k] + from_h[2 * width + k]);
          const real o = gate_of(x[3 * width + k] + from_h[3 * width + k]), c = f * c_r[k] + i * g;
          out[k] = o * tanh_of(c);
          c_r[k] = c;
          keep[k] = i;
          keep[width + k] = f;
          keep[2 * width + k] = g;
          keep[3 * width + k] = o;
          keep[4 * width + k] = c;
        }
      }
    }
  }
  free(in.strips);
}

// d_c holds the gradient of the last c, and that of the first in the end.
void lstm_backward(const real *restrict c_before, const real *restrict kept, const real *restrict U,
                   const real *restrict d_h, real *restrict d_gates, real *restrict d_before, real *restrict d_c,
                   const Sizes *at) {
  const int64_t width = at->width, length = at->length, across = 4 * width;
  const Room in = room_for(across, width, 0);
  EACH_PART {
    const Part part = part_of(replica, first, at);
    if (!first) lay_out(U + replica * across * width, width, 1, width, in);
    memset(in.found, 0, ROWS * in.wide * sizeof(lanes));
    for (int64_t t = length - 1; t >= 0; t--) {
      for (int64_t row = 0; row < part.count; row++) {
        const int64_t here = part.from + t + row * length, state = (part.state + row) * width;
        const real *restrict keep = kept + here * 5 * width, *restrict d_r = d_h + here * width;
        const real *restrict c_last = t ? keep - width : c_before + state;  // the c of the step before
        const real *restrict from_next = (real *)(in.found + row * in.wide);
        real *restrict d_x = d_gates + here * across, *restrict d_c_r = d_c + state;
        SIMD for (int64_t k = 0; k < width; k++) {
          const real i = keep[k], f = keep[width + k], g = keep[2 * width + k], o = keep[3 * width + k];
          const real seen = tanh_of(keep[4 * width + k]), d = d_r[k] + from_next[k];
          const real of_c = d_c_r[k] + d * o * (1 - seen * seen);
          d_x[k] = of_c * g * i * (1 - i);
          d_x[width + k] = of_c * c_last[k] * f * (1 - f);
          d_x[2 * width + k] = of_c * i * (1 - g * g);
          d_x[3 * width + k] = d * seen * o * (1 - o);
          d_c_r[k] = of_c * f;
        }
      }
      multiply(d_gates + (part.from + t) * across, length * across, part.count, 0, in);
    }
    put_found(d_before, part, width, in);
  }
  free(in.strips);
}
