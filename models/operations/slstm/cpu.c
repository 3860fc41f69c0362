// The sLSTM from what its gates get of the input to its outputs, and its way back: models/_slstm.py has the equations.
//
// Heads come first: gates are [H, L, B, 4 K], R is [H, 4 K, K], h [H, L + 1, B, K] from the state before the first step
// on, y and a [H, B, K]. Heads know nothing of one another and neither do rows of the batch, so that a head's R and a few
// rows stay in the first cache for all steps. These rows lie behind one another in `plane`s, since K is seldom whole
// vectors.

#include "_native.h"

typedef struct {
  int64_t heads, length, batch, inner;
  int64_t out_by_row, out_by_step, out_by_head;  // strides of the gradient of the output
} Sizes;

enum { ROOM = 1024 };  // numbers of a plane

typedef struct {
  int64_t rows;               // at once
  real *i, *f, *z, *o;        // [rows, K]
  lanes *matrix, *product;    // R or its transpose, and what rows give with it, in whole vectors
} Room;

static Room room_for(const Sizes *at, int64_t columns, int64_t wide) {
  const int64_t most = at->inner < ROOM ? ROOM / at->inner : 1, rows = most < at->batch ? most : at->batch;
  const int64_t plane = blocks(rows * at->inner), count = 4 * plane + (columns + rows) * wide;
  lanes *all = aligned_alloc(sizeof(lanes), count * sizeof(lanes));
  memset(all, 0, count * sizeof(lanes));
  lanes *matrix = all + 4 * plane;
  return (Room){rows,   (real *)all, (real *)(all + plane), (real *)(all + 2 * plane), (real *)(all + 3 * plane),
                matrix, matrix + columns * wide};
}

// From what the gates get of the input and the state, which moves on, to all h, and to what the way back needs: s(-f),
// tanh(z), s(o), s(u) and y, [H, L, 5, B, K].
void slstm_forward(const real *restrict gates, const real *restrict R, const real *restrict bias, real *restrict h,
                   real *restrict y, real *restrict a, real *restrict kept, const Sizes *at) {
  const int64_t inner = at->inner, batch = at->batch, across = 4 * inner, wide = blocks(across), size = batch * inner;
  const Room room = room_for(at, inner, wide);
  for (int64_t head = 0; head < at->heads; head++) {
    const real *restrict own = bias + head * across;
    for (int64_t g = 0; g < across; g++)
      for (int64_t k = 0; k < inner; k++) ((real *)room.matrix)[k * wide * LANES + g] = R[(head * across + g) * inner + k];
    for (int64_t first = 0; first < batch; first += room.rows) {
      const int64_t rows = batch - first < room.rows ? batch - first : room.rows, count = rows * inner;
      real *restrict y_row = y + head * size + first * inner, *restrict a_row = a + head * size + first * inner;
      for (int64_t t = 0; t < at->length; t++) {
        const real *restrict from_x = gates + ((head * at->length + t) * batch + first) * across;
        real *restrict h_row = h + (head * (at->length + 1) + t) * size + first * inner, *restrict next = h_row + size;
        real *restrict out = kept + (head * at->length + t) * 5 * size + first * inner;
        for (int64_t block = 0; block < wide; block++)
          product(h_row, inner, 1, rows, inner, room.matrix + block, wide, room.product + block, wide, 0);
        for (int64_t row = 0; row < rows; row++) {
          const real *restrict from_h = (real *)(room.product + row * wide), *restrict g = from_x + row * across;
          const int64_t to = row * inner;
          SIMD for (int64_t k = 0; k < inner; k++) {
            room.i[to + k] = g[k] + from_h[k] + own[k];
            room.f[to + k] = g[inner + k] + from_h[inner + k] + own[inner + k];
            room.z[to + k] = g[2 * inner + k] + from_h[2 * inner + k] + own[2 * inner + k];
            room.o[to + k] = g[3 * inner + k] + from_h[3 * inner + k] + own[3 * inner + k];
          }
        }
        SIMD for (int64_t k = 0; k < count; k++) {
          const real i = room.i[k], f = room.f[k], e_f = exp_of(-(real)fabs(f));
          const real m = a_row[k] - softplus_from(-f, e_f), u = i - m, e_u = exp_of(-(real)fabs(u));
          const real w = sigmoid_from(u, e_u), tanh_z = 2 * gate_of(2 * room.z[k]) - 1, s_o = gate_of(room.o[k]);
          const real y_k = y_row[k] + w * (tanh_z - y_row[k]);
          a_row[k] = largest(i, m) + log1p_of(e_u);
          y_row[k] = y_k;
          next[k] = s_o * y_k;
          out[k] = sigmoid_from(-f, e_f);
          out[size + k] = tanh_z;
          out[2 * size + k] = s_o;
          out[3 * size + k] = w;
          out[4 * size + k] = y_k;
        }
      }
    }
  }
  free(room.i);
}

// From the gradients of the outputs [B, L, H, K], y and a, which move back, to those of the gates and of h before the
// first step [H, B, K].
void slstm_backward(const real *restrict kept, const real *restrict R, const real *restrict from_out,
                    real *restrict d_gates, real *restrict d_h, real *restrict d_y, real *restrict d_a,
                    const Sizes *at) {
  const int64_t inner = at->inner, batch = at->batch, across = 4 * inner, wide = blocks(inner), size = batch * inner;
  const Room room = room_for(at, across, wide);
  for (int64_t head = 0; head < at->heads; head++) {
    for (int64_t g = 0; g < across; g++)
      memcpy(room.matrix + g * wide, R + (head * across + g) * inner, inner * sizeof(real));
    for (int64_t first = 0; first < batch; first += room.rows) {
      const int64_t rows = batch - first < room.rows ? batch - first : room.rows, count = rows * inner;
      real *restrict d_y_row = d_y + head * size + first * inner, *restrict d_a_row = d_a + head * size + first * inner;
      memset(room.product, 0, rows * wide * sizeof(lanes));
      for (int64_t t = at->length - 1; t >= 0; t--) {
        const real *restrict in = kept + (head * at->length + t) * 5 * size + first * inner;
        real *restrict to_gates = d_gates + ((head * at->length + t) * batch + first) * across;
        for (int64_t row = 0; row < rows; row++) {
          const real *restrict of_row = from_out + (first + row) * at->out_by_row;
          const real *restrict out = of_row + t * at->out_by_step + head * at->out_by_head;
          const real *restrict from_next = (real *)(room.product + row * wide);
          SIMD for (int64_t k = 0; k < inner; k++) room.i[row * inner + k] = out[k] + from_next[k];
        }
        SIMD for (int64_t k = 0; k < count; k++) {
          const real d = room.i[k], forgot = in[k], tanh_z = in[size + k], s_o = in[2 * size + k], w = in[3 * size + k];
          const real y_k = in[4 * size + k], of_y = d_y_row[k] + d * s_o, of_tanh = of_y * w;
          const real d_i = of_tanh * (tanh_z - y_k) + d_a_row[k] * w, of_a = d_a_row[k] - d_i;
          d_y_row[k] = of_y - of_tanh;
          d_a_row[k] = of_a;
          room.i[k] = d_i;
          room.f[k] = of_a * forgot;
          room.z[k] = of_tanh * (1 - tanh_z * tanh_z);
          room.o[k] = d * s_o * y_k * (1 - s_o);
        }
        for (int64_t row = 0; row < rows; row++) {
          real *restrict g = to_gates + row * across;
          const int64_t from = row * inner;
          SIMD for (int64_t k = 0; k < inner; k++) {
            g[k] = room.i[from + k];
            g[inner + k] = room.f[from + k];
            g[2 * inner + k] = room.z[from + k];
            g[3 * inner + k] = room.o[from + k];
          }
        }
        for (int64_t block = 0; block < wide; block++)
          product(to_gates, across, 1, rows, across, room.matrix + block, wide, room.product + block, wide, 0);
      }
      for (int64_t row = 0; row < rows; row++)
        memcpy(d_h + head * size + (first + row) * inner, room.product + row * wide, inner * sizeof(real));
    }
  }
  free(room.i);
}
