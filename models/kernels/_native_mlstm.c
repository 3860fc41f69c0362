// The mLSTM layer over short inputs between its products: models/_mlstm_rows.py has the order and the names.
//
// Wide tensors are [B, L, E], gates [B, 2 H, L] with i before f, squares [H, B, L, L], one number a position [B, H, L].
// `_back` follows each way back; what it adds to a weight's gradient it first sums over the rows of its own.

#include "_native.h"

typedef struct {
  int64_t batch, length, inner, heads, taps;
  int64_t square_by_head;  // stride of what is kept of squares
} Sizes;

static const real EPS = (real)1e-6, NORM_EPS = (real)1e-5, LARGEST = 80;

static inline real dot(const real *restrict a, const real *restrict b, int64_t count) {
  real sum = 0;
  _Pragma("omp simd reduction(+ : sum)") for (int64_t e = 0; e < count; e++) sum += a[e] * b[e];
  return sum;
}

static inline real total(const real *restrict a, int64_t count) {
  real sum = 0;
  _Pragma("omp simd reduction(+ : sum)") for (int64_t e = 0; e < count; e++) sum += a[e];
  return sum;
}

static inline void add_times(real *restrict to, real factor, const real *restrict from, int64_t count) {
  SIMD for (int64_t e = 0; e < count; e++) to[e] += factor * from[e];
}

// p = conv(u), c = silu(p), and the gates of c and u.
void mlstm_read(const real *restrict u, const real *restrict conv, const real *restrict conv_bias,
                const real *restrict gates_c, const real *restrict gates_u, const real *restrict gates_bias,
                real *restrict p, real *restrict c, real *restrict gates, const Sizes *at) {
  const int64_t inner = at->inner, length = at->length, count = 2 * at->heads;
  for (int64_t b = 0; b < at->batch; b++) {
    for (int64_t t = 0; t < length; t++) {
      const int64_t row = (b * length + t) * inner;
      memcpy(p + row, conv_bias, inner * sizeof(real));
      for (int64_t lag = 0; lag < at->taps && lag <= t; lag++) {
        const real *restrict tap = conv + (at->taps - 1 - lag) * inner, *restrict before = u + row - lag * inner;
        SIMD for (int64_t e = 0; e < inner; e++) p[row + e] += tap[e] * before[e];
      }
      SIMD for (int64_t e = 0; e < inner; e++) c[row + e] = p[row + e] * sigmoid(p[row + e]);
      for (int64_t g = 0; g < count; g++) {
        const real of_c = dot(c + row, gates_c + g * inner, inner), of_u = dot(u + row, gates_u + g * inner, inner);
        gates[(b * count + g) * length + t] = gates_bias[g] + of_c + of_u;
      }
    }
  }
}

// The way back from the gradients of c, of u but for what it gets here, and of the gates.
void mlstm_read_back(const real *restrict u, const real *restrict p, const real *restrict c, real *restrict d_c,
                     const real *restrict d_gates, const real *restrict conv, const real *restrict gates_c,
                     const real *restrict gates_u, real *restrict d_u, real *restrict d_conv,
                     real *restrict d_conv_bias, real *restrict d_gates_c, real *restrict d_gates_u,
                     real *restrict d_gates_bias, const Sizes *at) {
  const int64_t inner = at->inner, length = at->length, count = 2 * at->heads, taps = at->taps;
  real *sums = malloc((taps + 1 + 2 * count) * inner * sizeof(real));
  real *restrict of_conv = sums, *restrict of_bias = sums + taps * inner;
  real *restrict of_c = of_bias + inner, *restrict of_u = of_c + count * inner;
  for (int64_t b = 0; b < at->batch; b++) {
    memset(sums, 0, (taps + 1 + 2 * count) * inner * sizeof(real));
    for (int64_t t = 0; t < length; t++) {
      const int64_t row = (b * length + t) * inner;
      for (int64_t g = 0; g < count; g++) {
        const real d_gate = d_gates[(b * count + g) * length + t];
        SIMD for (int64_t e = 0; e < inner; e++) {
          d_c[row + e] += d_gate * gates_c[g * inner + e];
          d_u[row + e] += d_gate * gates_u[g * inner + e];
          of_c[g * inner + e] += d_gate * c[row + e];
          of_u[g * inner + e] += d_gate * u[row + e];
        }
      }
      SIMD for (int64_t e = 0; e < inner; e++) {
        const real s = sigmoid(p[row + e]), d_p = d_c[row + e] * (s + c[row + e] * (1 - s));
        d_c[row + e] = d_p;
        of_bias[e] += d_p;
      }
      for (int64_t lag = 0; lag < taps && lag <= t; lag++) {
        const int64_t tap = (taps - 1 - lag) * inner, before = row - lag * inner;
        SIMD for (int64_t e = 0; e < inner; e++) {
          d_u[before + e] += d_c[row + e] * conv[tap + e];
          of_conv[tap + e] += d_c[row + e] * u[before + e];
        }
      }
    }
    add_times(d_conv, 1, of_conv, taps * inner);
    add_times(d_conv_bias, 1, of_bias, inner);
    add_times(d_gates_c, 1, of_c, count * inner);
    add_times(d_gates_u, 1, of_u, count * inner);
    for (int64_t g = 0; g < count; g++) d_gates_bias[g] += total(d_gates + (b * count + g) * length, length);
  }
  free(sums);
}

// From q k^T in P and the gates to the weights P of the values, and to what the way back needs: D over the normaliser,
// s(-f), the sign of the sum where it is the normaliser, eps' share in that, and where log D is largest.
void mlstm_weights(const real *restrict gates, real *restrict P, real *restrict scaled_D, real *restrict slope,
                   real *restrict sign, real *restrict share, int64_t *restrict top, const Sizes *at) {
  const int64_t length = at->length, heads = at->heads;
  real *restrict log_D = malloc(3 * length * sizeof(real)), *restrict D = log_D + length, *restrict log_f = D + length;
  for (int64_t b = 0; b < at->batch; b++) {
    for (int64_t head = 0; head < heads; head++) {
      const real *restrict i = gates + (b * 2 * heads + head) * length, *restrict f = i + heads * length;
      real m = -INFINITY;  // log D where it is largest: there its sums are m's
      int64_t largest_at = 0;
      SIMD for (int64_t t = 0; t < length; t++) {
        const real e = exp_of(-(real)fabs(f[t]));
        log_f[t] = -softplus_from(-f[t], e);
        slope[(b * heads + head) * length + t] = sigmoid_from(-f[t], e);
      }
      for (int64_t t = 0; t < length; t++) {
        const int64_t now = (b * heads + head) * length + t;
        const int64_t row = head * at->square_by_head + (b * length + t) * length;
        SIMD for (int64_t s = 0; s < t; s++) log_D[s] += log_f[t];
        log_D[t] = i[t];
        m += log_f[t];
        if (!(m > i[t])) {
          m = i[t];
          largest_at = t;
        }
        top[now] = largest_at;
        real n = 0;
        _Pragma("omp simd reduction(+ : n)") for (int64_t s = 0; s <= t; s++) {
          D[s] = exp_of(log_D[s] - m);
          P[row + s] *= D[s];
          n += P[row + s];
        }
        const real size = (real)fabs(n), floor = exp_of(-m < LARGEST ? -m : LARGEST);
        const real inverse = 1 / (largest(size, floor) + EPS);
        sign[now] = size > floor ? (n > 0 ? (real)1 : (real)-1) : (real)0;
        share[now] = inverse * EPS;
        SIMD for (int64_t s = 0; s <= t; s++) {
          P[row + s] *= inverse;
          scaled_D[row + s] = D[s] * inverse;
        }
        memset(P + row + t + 1, 0, (length - 1 - t) * sizeof(real));
        memset(scaled_D + row + t + 1, 0, (length - 1 - t) * sizeof(real));
      }
    }
  }
  free(log_D);
}

// From the gradient of P, [H, B, L, L] in one piece, to that of q k^T in its place and to those of the gates.
void mlstm_weights_back(real *restrict d_P, const real *restrict P, const real *restrict scaled_D,
                        const real *restrict slope, const real *restrict sign, const real *restrict share,
                        const int64_t *restrict top, real *restrict d_gates, const Sizes *at) {
  const int64_t length = at->length, heads = at->heads;
  real *restrict below = malloc(length * sizeof(real));  // of log D_ts, summed over t and those behind it
  for (int64_t b = 0; b < at->batch; b++) {
    for (int64_t head = 0; head < heads; head++) {
      real *restrict d_i = d_gates + (b * 2 * heads + head) * length, *restrict d_f = d_i + heads * length;
      memset(below, 0, length * sizeof(real));
      for (int64_t t = length - 1; t >= 0; t--) {
        const int64_t now = (b * heads + head) * length + t;
        const int64_t row = head * at->square_by_head + (b * length + t) * length;
        real *restrict d_row = d_P + ((head * at->batch + b) * length + t) * length;
        const real along = dot(d_row, P + row, t + 1), level = along * sign[now];
        SIMD for (int64_t s = 0; s <= t; s++) {
          const real d = d_row[s] - level;
          below[s] += P[row + s] * d;
          d_row[s] = d * scaled_D[row + s];
        }
        memset(d_row + t + 1, 0, (length - 1 - t) * sizeof(real));
        below[top[now]] -= along * share[now];
        d_f[t] = slope[now] * total(below, t);
      }
      memcpy(d_i, below, length * sizeof(real));
    }
  }
  free(below);
}

// h becomes its heads' norm without the weight, and out = (norm * h + skip * c) * silu(z), which may be where c is.
void mlstm_merge(real *restrict h, const real *c, const real *restrict z, const real *restrict norm,
                 const real *restrict skip, real *restrict rstd, real *out, const Sizes *at) {
  const int64_t inner = at->inner, width = inner / at->heads;
  for (int64_t b = 0; b < at->batch; b++) {
    for (int64_t t = 0; t < at->length; t++) {
      const int64_t row = (b * at->length + t) * inner;
      for (int64_t head = 0; head < at->heads; head++) {
        real *restrict own = h + row + head * width;
        const real mean = total(own, width) / width;
        SIMD for (int64_t e = 0; e < width; e++) own[e] -= mean;
        const real scale = 1 / (real)sqrt(dot(own, own, width) / width + NORM_EPS);
        SIMD for (int64_t e = 0; e < width; e++) own[e] *= scale;
        rstd[(b * at->heads + head) * at->length + t] = scale;
      }
      SIMD for (int64_t e = 0; e < inner; e++) {
        const real z_e = z[row + e];
        out[row + e] = (norm[e] * h[row + e] + skip[e] * c[row + e]) * z_e * sigmoid(z_e);
      }
    }
  }
}

// From the gradient of `out` to out and c again and to the gradients of z, of c as far as it comes from here, and of h
// before its norm. The gradient of z may stand where that of `out` does.
void mlstm_merge_back(const real *d_out, const real *restrict p, const real *restrict z, const real *restrict h,
                      const real *restrict rstd, const real *restrict norm, const real *restrict skip,
                      real *restrict out, real *restrict c, real *d_z, real *restrict d_c, real *restrict d_h,
                      real *restrict d_norm, real *restrict d_skip, const Sizes *at) {
  const int64_t inner = at->inner, width = inner / at->heads;
  real *restrict of_norm = malloc(2 * inner * sizeof(real)), *restrict of_skip = of_norm + inner;
  for (int64_t b = 0; b < at->batch; b++) {
    memset(of_norm, 0, 2 * inner * sizeof(real));
    for (int64_t t = 0; t < at->length; t++) {
      const int64_t row = (b * at->length + t) * inner;
      SIMD for (int64_t e = 0; e < inner; e++) {
        const real p_e = p[row + e], z_e = z[row + e], h_e = h[row + e], d = d_out[row + e];
        const real c_e = p_e * sigmoid(p_e), s = sigmoid(z_e), g = z_e * s, a = norm[e] * h_e + skip[e] * c_e;
        const real d_a = d * g;
        c[row + e] = c_e;
        out[row + e] = a * g;
        d_z[row + e] = d * a * (s + g * (1 - s));
        d_c[row + e] = d_a * skip[e];
        d_h[row + e] = d_a * norm[e];
        of_norm[e] += d_a * h_e;
        of_skip[e] += d_a * c_e;
      }
      for (int64_t head = 0; head < at->heads; head++) {
        const real *restrict own = h + row + head * width;
        real *restrict d_own = d_h + row + head * width;
        const real scale = rstd[(b * at->heads + head) * at->length + t];
        const real mean = total(d_own, width) / width, along = dot(d_own, own, width) / width;
        SIMD for (int64_t e = 0; e < width; e++) d_own[e] = (d_own[e] - mean - own[e] * along) * scale;
      }
    }
    add_times(d_norm, 1, of_norm, inner);
    add_times(d_skip, 1, of_skip, inner);
  }
  free(of_norm);
}
