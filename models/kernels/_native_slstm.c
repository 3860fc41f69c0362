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

// From the products [H, P, B, 4 K / P] and y and a [H, B, K], which move on, to h in the next v, and to what the way
// back needs: s(-f), tanh(z), s(o), s(u) and y, [H, B, 5, K].
void slstm_forward(const real *restrict gates, const real *restrict bias, real *restrict y, real *restrict a,
                   real *restrict kept, real *restrict next, const Sizes *at) {
  const int64_t inner = at->inner, across = at->width + inner;
  for (int64_t head = 0; head < at->heads; head++) {
    const real *restrict bias_i = bias + 4 * inner * head;
    for (int64_t b = 0; b < at->batch; b++) {
      const int64_t row = head * at->batch + b;
      int64_t of_i, of_z;
      gates_at(at, head, b, &of_i, &of_z);
      const real *restrict gate_i = gates + of_i, *restrict gate_z = gates + of_z;
      real *restrict y_row = y + row * inner, *restrict a_row = a + row * inner, *restrict out = kept + row * 5 * inner;
      real *restrict h = next + row_of(at, head, 0, b) * across + at->width;
      SIMD for (int64_t k = 0; k < inner; k++) {
        const real i = gate_i[k] + bias_i[k], f = gate_i[inner + k] + bias_i[inner + k];
        const real z = gate_z[k] + bias_i[2 * inner + k], o = gate_z[inner + k] + bias_i[3 * inner + k];
        const real e_f = exp_of(-(real)fabs(f));
        const real m = a_row[k] - softplus_from(-f, e_f), u = i - m, e_u = exp_of(-(real)fabs(u));
        const real w = sigmoid_from(u, e_u), tanh_z = 2 * sigmoid(2 * z) - 1, s_o = sigmoid(o);
        const real y_k = y_row[k] + w * (tanh_z - y_row[k]);
        a_row[k] = largest(i, m) + log1p_of(e_u);
        y_row[k] = y_k;
        h[k] = s_o * y_k;
        out[k] = sigmoid_from(-f, e_f);
        out[inner + k] = tanh_z;
        out[2 * inner + k] = s_o;
        out[3 * inner + k] = w;
        out[4 * inner + k] = y_k;
      }
      if (at->parts == 2) memcpy(next + row_of(at, head, 1, b) * across + at->width, h, inner * sizeof(real));
    }
  }
}

// From the gradients of h, that of the output, [B, L, H, K] at this step, and that in the next v, and of y and a, which
// move on, to those of the gates; those of the bias [H, 4 K] are added up. `from_next` is null behind the last step.
void slstm_backward(const real *restrict kept, const real *restrict from_out, const real *restrict from_next, real *restrict d_y, real *restrict d_a, real *restrict d_gates,
                    real *restrict d_bias, const Sizes *at) {
  const int64_t inner = at->inner, across = at->width + inner;
  real *restrict d_h = malloc(5 * inner * sizeof(real)), *restrict d_bias_i = d_h + inner;
  for (int64_t head = 0; head < at->heads; head++) {
    memset(d_bias_i, 0, 4 * inner * sizeof(real));
    for (int64_t b = 0; b < at->batch; b++) {
      const int64_t row = head * at->batch + b;
      int64_t of_i, of_z;
      gates_at(at, head, b, &of_i, &of_z);
      real *restrict gate_i = d_gates + of_i, *restrict gate_z = d_gates + of_z;
      real *restrict d_y_row = d_y + row * inner, *restrict d_a_row = d_a + row * inner;
      const real *restrict in = kept + row * 5 * inner;
      memcpy(d_h, from_out + b * at->out_by_row + head * at->out_by_head, inner * sizeof(real));
      for (int64_t part = 0; from_next && part < at->parts; part++) {
        const real *restrict more = from_next + row_of(at, head, part, b) * across + at->width;
        SIMD for (int64_t k = 0; k < inner; k++) d_h[k] += more[k];
      }
      SIMD for (int64_t k = 0; k < inner; k++) {
        const real forgot = in[k], tanh_z = in[inner + k], s_o = in[2 * inner + k], w = in[3 * inner + k];
        const real y_k = in[4 * inner + k], of_y = d_y_row[k] + d_h[k] * s_o, of_tanh = of_y * w;
        const real d_i = of_tanh * (tanh_z - y_k) + d_a_row[k] * w, of_a = d_a_row[k] - d_i;
        const real d_f = of_a * forgot, d_z = of_tanh * (1 - tanh_z * tanh_z), d_o = d_h[k] * s_o * y_k * (1 - s_o);
        d_y_row[k] = of_y - of_tanh;
        d_a_row[k] = of_a;
        gate_i[k] = d_i;
        gate_i[inner + k] = d_f;
        gate_z[k] = d_z;
        gate_z[inner + k] = d_o;
        d_bias_i[k] += d_i;
        d_bias_i[inner + k] += d_f;
        d_bias_i[2 * inner + k] += d_z;
        d_bias_i[3 * inner + k] += d_o;
      }
    }
    for (int64_t g = 0; g < 4 * inner; g++) d_bias[head * 4 * inner + g] += d_bias_i[g];
  }
  free(d_h);
}
