// One step of the sLSTM behind its product, and one back: models/_slstm.py has the equations and names.
//
// A head's gates stand in `parts` places of their own, [H, P, B, 4 K / P], as do the vectors v = (x, h) [H, P, B, V]
// that they are products of: i and f may read another x than z and o.

#include "_native.h"

typedef struct {
  int64_t heads, parts, batch, inner, width;  // width: of x in front of h in v
  int64_t out_by_row, out_by_head;            // strides of the gradient of the output
} Sizes;

static inline int64_t row_of(const Sizes *at, int64_t head, int64_t part, int64_t b) {
  return (head * at->parts + part) * at->batch + b;
}

// The four gates of a row: i and f follow one another, and so do z and o.
static inline void gates_at(const Sizes *at, int64_t head, int64_t b, int64_t *of_i, int64_t *of_z) {
  const int64_t across = 4 * at->inner / at->parts;
  *of_i = row_of(at, head, 0, b) * across;
  *of_z = at->parts == 2 ? row_of(at, head, 1, b) * across : *of_i + 2 * at->inner;
}

// Rows of K channels lie behind one another in `plane`s of up to ROOM numbers, since K is seldom whole vectors.
#define ROOM 1024

static inline int64_t rows_of(const Sizes *at) { return at->inner < ROOM ? ROOM / at->inner : 1; }

// From the products [H, P, B, 4 K / P] and y and a [H, B, K], which move on, to h in the next v, and to what the way
// back needs: s(-f), tanh(z), s(o), s(u) and y, [H, 5, B, K].
void slstm_forward(const real *restrict gates, const real *restrict bias, real *restrict y, real *restrict a,
                   real *restrict kept, real *restrict next, const Sizes *at) {
  const int64_t inner = at->inner, across = at->width + inner, batch = at->batch, rows = rows_of(at);
  real *restrict plane_i = malloc(4 * rows * inner * sizeof(real)), *restrict plane_f = plane_i + rows * inner;
  real *restrict plane_z = plane_f + rows * inner, *restrict plane_o = plane_z + rows * inner;
  for (int64_t head = 0; head < at->heads; head++) {
    const real *restrict bias_i = bias + 4 * inner * head, *restrict bias_z = bias_i + 2 * inner;
    for (int64_t first = 0; first < batch; first += rows) {
      const int64_t count = (batch - first < rows ? batch - first : rows) * inner;
      for (int64_t b = first, to = 0; to < count; b++, to += inner) {
        int64_t of_i, of_z;
        gates_at(at, head, b, &of_i, &of_z);
        const real *restrict gate_i = gates + of_i, *restrict gate_z = gates + of_z;
        SIMD for (int64_t k = 0; k < inner; k++) {
          plane_i[to + k] = gate_i[k] + bias_i[k];
          plane_f[to + k] = gate_i[inner + k] + bias_i[inner + k];
          plane_z[to + k] = gate_z[k] + bias_z[k];
          plane_o[to + k] = gate_z[inner + k] + bias_z[inner + k];
        }
      }
      const int64_t start = (head * batch + first) * inner, size = batch * inner;
      real *restrict y_row = y + start, *restrict a_row = a + start;
      real *restrict out = kept + head * 5 * size + first * inner;
      SIMD for (int64_t k = 0; k < count; k++) {
        const real i = plane_i[k], f = plane_f[k], z = plane_z[k];
        const real e_f = exp_of(-(real)fabs(f));
        const real m = a_row[k] - softplus_from(-f, e_f), u = i - m, e_u = exp_of(-(real)fabs(u));
        const real w = sigmoid_from(u, e_u), tanh_z = 2 * gate_of(2 * z) - 1, s_o = gate_of(plane_o[k]);
        const real y_k = y_row[k] + w * (tanh_z - y_row[k]);
        a_row[k] = largest(i, m) + log1p_of(e_u);
        y_row[k] = y_k;
        plane_i[k] = s_o * y_k;  // h, where i was
        out[k] = sigmoid_from(-f, e_f);
        out[size + k] = tanh_z;
        out[2 * size + k] = s_o;
        out[3 * size + k] = w;
        out[4 * size + k] = y_k;
      }
      for (int64_t part = 0; part < at->parts; part++) {
        real *restrict to = next + row_of(at, head, part, first) * across + at->width;
        for (int64_t from = 0; from < count; from += inner, to += across)
          SIMD for (int64_t k = 0; k < inner; k++) to[k] = plane_i[from + k];
      }
    }
  }
  free(plane_i);
}

// From the gradients of h, that of the output, [B, L, H, K] at this step, and that in the next v, and of y and a, which
// move on, to those of the gates; those of the bias [H, 4 K] are added up. `from_next` is null behind the last step.
void slstm_backward(const real *restrict kept, const real *restrict from_out, const real *restrict from_next,
                    real *restrict d_y, real *restrict d_a, real *restrict d_gates, real *restrict d_bias,
                    const Sizes *at) {
  const int64_t inner = at->inner, across = at->width + inner, batch = at->batch, rows = rows_of(at);
  real *restrict plane_i = malloc(4 * rows * inner * sizeof(real)), *restrict plane_f = plane_i + rows * inner;
  real *restrict plane_z = plane_f + rows * inner, *restrict plane_o = plane_z + rows * inner;
  for (int64_t head = 0; head < at->heads; head++) {
    real *restrict d_bias_i = d_bias + 4 * inner * head, *restrict d_bias_z = d_bias_i + 2 * inner;
    for (int64_t first = 0; first < batch; first += rows) {
      const int64_t count = (batch - first < rows ? batch - first : rows) * inner;
      for (int64_t b = first, to = 0; to < count; b++, to += inner) {
        const real *restrict from = from_out + b * at->out_by_row + head * at->out_by_head;
        SIMD for (int64_t k = 0; k < inner; k++) plane_i[to + k] = from[k];
      }
      for (int64_t part = 0; from_next && part < at->parts; part++) {
        const real *restrict more = from_next + row_of(at, head, part, first) * across + at->width;
        for (int64_t to = 0; to < count; to += inner, more += across)
          SIMD for (int64_t k = 0; k < inner; k++) plane_i[to + k] += more[k];
      }
      const int64_t start = (head * batch + first) * inner, size = batch * inner;
      real *restrict d_y_row = d_y + start, *restrict d_a_row = d_a + start;
      const real *restrict in = kept + head * 5 * size + first * inner;
      SIMD for (int64_t k = 0; k < count; k++) {
        const real d_h = plane_i[k], forgot = in[k], tanh_z = in[size + k], s_o = in[2 * size + k], w = in[3 * size + k];
        const real y_k = in[4 * size + k], of_y = d_y_row[k] + d_h * s_o, of_tanh = of_y * w;
        const real d_i = of_tanh * (tanh_z - y_k) + d_a_row[k] * w, of_a = d_a_row[k] - d_i;
        d_y_row[k] = of_y - of_tanh;
        d_a_row[k] = of_a;
        plane_i[k] = d_i;
        plane_f[k] = of_a * forgot;
        plane_z[k] = of_tanh * (1 - tanh_z * tanh_z);
        plane_o[k] = d_h * s_o * y_k * (1 - s_o);
      }
      for (int64_t b = first, from = 0; from < count; b++, from += inner) {
        int64_t of_i, of_z;
        gates_at(at, head, b, &of_i, &of_z);
        real *restrict gate_i = d_gates + of_i, *restrict gate_z = d_gates + of_z;
        SIMD for (int64_t k = 0; k < inner; k++) {
          d_bias_i[k] += gate_i[k] = plane_i[from + k];
          d_bias_i[inner + k] += gate_i[inner + k] = plane_f[from + k];
          d_bias_z[k] += gate_z[k] = plane_z[from + k];
          d_bias_z[inner + k] += gate_z[inner + k] = plane_o[from + k];
        }
      }
    }
  }
  free(plane_i);
}
