// The mLSTM layer over short inputs around its memory: models/_mlstm_rows.py has the order and the names.
//
// Wide tensors are [B, L, E], one number a position and head [B, H, L]; weights of gates are [2 H, E] with i before f.
// A map in blocks of 4, y_j = sum_i x_i W_ij, is [4, E]: i, and all j of all blocks. `_back` follows each way back; what
// it adds to a weight's gradient it first sums over the rows of its own.

#include "_native.h"

typedef struct {
  int64_t batch, length, inner, heads, taps;
} Sizes;

enum { BLOCK = 4, TOKENS = 4, GATES = 4 };  // TOKENS and GATES: at once, whose sums stay in registers

static const real NORM_EPS = (real)1e-5;

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

#define IN_BLOCK(lane, i) (lane) / BLOCK * BLOCK + (i)
#define OF_BLOCKS(x, i) PICKED(x, x, OF_ALL(IN_BLOCK, i))

// The i-th number of each block, in all four places of it.
static inline void of_blocks(lanes x, lanes found[BLOCK]) {
  found[0] = OF_BLOCKS(x, 0);
  found[1] = OF_BLOCKS(x, 1);
  found[2] = OF_BLOCKS(x, 2);
  found[3] = OF_BLOCKS(x, 3);
}

// A map of blocks, and what it is the other way round: W_ji in place of W_ij.
static inline void block_map(const real *restrict x, const real *restrict map, real *restrict y, int64_t inner) {
  for (int64_t e = 0; e < inner; e += LANES) {
    lanes own[BLOCK], sum = {0};
    of_blocks(block_of(x + e, 0, LANES), own);
    for (int64_t i = 0; i < BLOCK; i++) sum += own[i] * block_of(map + i * inner + e, 0, LANES);
    put_block(y + e, 0, LANES, sum);
  }
}

static void turn_blocks(const real *restrict map, real *restrict turned, int64_t inner) {
  for (int64_t i = 0; i < BLOCK; i++)
    for (int64_t e = 0; e < inner; e++) turned[e % BLOCK * inner + e / BLOCK * BLOCK + i] = map[i * inner + e];
}

// p = conv(u), c = silu(p), q and v as maps of c and u, and the gates of c and u.
void mlstm_read(const real *restrict u, const real *restrict conv, const real *restrict conv_bias,
                const real *restrict query_key, const real *restrict value, const real *restrict gates_c,
                const real *restrict gates_u, const real *restrict gates_bias, real *restrict p, real *restrict c,
                real *restrict q, real *restrict v, real *restrict of_i, real *restrict of_f, const Sizes *at) {
  const int64_t inner = at->inner, length = at->length, heads = at->heads;
  for (int64_t b = 0; b < at->batch; b++) {
    for (int64_t t = 0; t < length; t++) {
      const int64_t row = (b * length + t) * inner;
      memcpy(p + row, conv_bias, inner * sizeof(real));
      for (int64_t lag = 0; lag < at->taps && lag <= t; lag++) {
        const real *restrict tap = conv + (at->taps - 1 - lag) * inner, *restrict before = u + row - lag * inner;
        SIMD for (int64_t e = 0; e < inner; e++) p[row + e] += tap[e] * before[e];
      }
      SIMD for (int64_t e = 0; e < inner; e++) c[row + e] = p[row + e] * gate_of(p[row + e]);
      block_map(c + row, query_key, q + row, inner);
      block_map(u + row, value, v + row, inner);
      for (int64_t g = 0; g < 2 * heads; g += GATES) {
        const int64_t count = 2 * heads - g < GATES ? 2 * heads - g : GATES;
        lanes sum[GATES] = {{0}};
        for (int64_t e = 0; e < inner; e += LANES) {
          const lanes c_e = block_of(c + row + e, 0, LANES), u_e = block_of(u + row + e, 0, LANES);
          for (int64_t part = 0; part < GATES; part++) {
            const int64_t to = (g + (part < count ? part : 0)) * inner + e;
            sum[part] += c_e * block_of(gates_c + to, 0, LANES) + u_e * block_of(gates_u + to, 0, LANES);
          }
        }
        for (int64_t part = 0; part < count; part++) {
          const int64_t gate = g + part, head = gate % heads;
          real *restrict to = gate < heads ? of_i : of_f;
          to[(b * heads + head) * length + t] = gates_bias[gate] + total((real *)&sum[part], LANES);
        }
      }
    }
  }
}

// A few tokens' way back through both maps: to d_c and to u, and to the maps.
static void maps_back(const real *restrict c, const real *restrict u, const real *restrict d_q,
                      const real *restrict d_v, const real *restrict query_key, const real *restrict value,
                      real *restrict d_c, real *restrict d_u, real *restrict of_query_key, real *restrict of_value,
                      int64_t tokens, int64_t inner) {
  for (int64_t e = 0; e < inner; e += LANES) {
    lanes q_map[BLOCK], v_map[BLOCK], sum_q[BLOCK], sum_v[BLOCK], own[BLOCK];
    for (int64_t i = 0; i < BLOCK; i++) {
      q_map[i] = block_of(query_key + i * inner + e, 0, LANES), v_map[i] = block_of(value + i * inner + e, 0, LANES);
      sum_q[i] = block_of(of_query_key + i * inner + e, 0, LANES);
      sum_v[i] = block_of(of_value + i * inner + e, 0, LANES);
    }
    for (int64_t t = 0, row = e; t < tokens; t++, row += inner) {
      const lanes d_q_e = block_of(d_q + row, 0, LANES), d_v_e = block_of(d_v + row, 0, LANES);
      of_blocks(block_of(c + row, 0, LANES), own);
      for (int64_t i = 0; i < BLOCK; i++) sum_q[i] += own[i] * d_q_e;
      of_blocks(block_of(u + row, 0, LANES), own);
      for (int64_t i = 0; i < BLOCK; i++) sum_v[i] += own[i] * d_v_e;
      lanes d_c_e = block_of(d_c + row, 0, LANES), d_u_e = {0};
      of_blocks(d_q_e, own);
      for (int64_t j = 0; j < BLOCK; j++) d_c_e += own[j] * q_map[j];
      of_blocks(d_v_e, own);
      for (int64_t j = 0; j < BLOCK; j++) d_u_e += own[j] * v_map[j];
      put_block(d_c + row, 0, LANES, d_c_e);
      put_block(d_u + row, 0, LANES, d_u_e);
    }
    for (int64_t i = 0; i < BLOCK; i++) {
      put_block(of_query_key + i * inner + e, 0, LANES, sum_q[i]);
      put_block(of_value + i * inner + e, 0, LANES, sum_v[i]);
    }
  }
}

// The same through up to four gates, whose gradients stand token by token, GATES each.
static void gates_back(const real *restrict c, const real *restrict u, const real *restrict d_gates,
                       const real *restrict gates_c, const real *restrict gates_u, real *restrict d_c,
                       real *restrict d_u, real *restrict of_c, real *restrict of_u, int64_t tokens, int64_t count,
                       int64_t inner) {
  for (int64_t e = 0; e < inner; e += LANES) {
    lanes map_c[GATES] = {{0}}, map_u[GATES] = {{0}}, sum_c[GATES] = {{0}}, sum_u[GATES] = {{0}};
    for (int64_t g = 0; g < count; g++) {
      map_c[g] = block_of(gates_c + g * inner + e, 0, LANES), map_u[g] = block_of(gates_u + g * inner + e, 0, LANES);
      sum_c[g] = block_of(of_c + g * inner + e, 0, LANES), sum_u[g] = block_of(of_u + g * inner + e, 0, LANES);
    }
    for (int64_t t = 0, row = e; t < tokens; t++, row += inner) {
      const lanes c_e = block_of(c + row, 0, LANES), u_e = block_of(u + row, 0, LANES);
      lanes d_c_e = block_of(d_c + row, 0, LANES), d_u_e = block_of(d_u + row, 0, LANES);
      for (int64_t g = 0; g < GATES; g++) {
        const real d = d_gates[t * GATES + g];
        d_c_e += d * map_c[g];
        d_u_e += d * map_u[g];
        sum_c[g] += d * c_e;
        sum_u[g] += d * u_e;
      }
      put_block(d_c + row, 0, LANES, d_c_e);
      put_block(d_u + row, 0, LANES, d_u_e);
    }
    for (int64_t g = 0; g < count; g++) {
      put_block(of_c + g * inner + e, 0, LANES, sum_c[g]);
      put_block(of_u + g * inner + e, 0, LANES, sum_u[g]);
    }
  }
}

// The way back from the gradients of c, as far as it is not from here, of q, of v and of the gates to that of u.
void mlstm_read_back(const real *restrict u, const real *restrict p, const real *restrict c, real *restrict d_c,
                     const real *restrict d_q, const real *restrict d_v, const real *restrict d_i,
                     const real *restrict d_f, const real *restrict conv, const real *restrict query_key,
                     const real *restrict value, const real *restrict gates_c, const real *restrict gates_u,
                     real *restrict d_u, real *restrict d_conv, real *restrict d_conv_bias,
                     real *restrict d_query_key, real *restrict d_value, real *restrict d_gates_c,
                     real *restrict d_gates_u, real *restrict d_gates_bias, const Sizes *at) {
  const int64_t inner = at->inner, length = at->length, heads = at->heads, count = 2 * heads, taps = at->taps;
  const int64_t all = (taps + 1 + 2 * BLOCK + 2 * count) * inner;
  real *sums = malloc((all + 2 * BLOCK * inner) * sizeof(real));
  real *restrict of_conv = sums, *restrict of_bias = sums + taps * inner;
  real *restrict of_query_key = of_bias + inner, *restrict of_value = of_query_key + BLOCK * inner;
  real *restrict of_c = of_value + BLOCK * inner, *restrict of_u = of_c + count * inner;
  real *restrict from_q = sums + all, *restrict from_v = from_q + BLOCK * inner;
  turn_blocks(query_key, from_q, inner);
  turn_blocks(value, from_v, inner);
  for (int64_t b = 0; b < at->batch; b++) {
    memset(sums, 0, all * sizeof(real));
    for (int64_t first = 0; first < length; first += TOKENS) {
      const int64_t row = (b * length + first) * inner, tokens = length - first < TOKENS ? length - first : TOKENS;
      maps_back(c + row, u + row, d_q + row, d_v + row, from_q, from_v, d_c + row, d_u + row, of_query_key, of_value,
                tokens, inner);
      for (int64_t g = 0; g < count; g += GATES) {
        const int64_t now = count - g < GATES ? count - g : GATES;
        real of_gates[TOKENS * GATES] = {0};
        for (int64_t part = 0; part < now; part++) {
          const int64_t gate = g + part, head = gate % heads;
          const real *restrict from = (gate < heads ? d_i : d_f) + (b * heads + head) * length + first;
          for (int64_t t = 0; t < tokens; t++) of_gates[t * GATES + part] = from[t];
        }
        const int64_t to = g * inner;
        gates_back(c + row, u + row, of_gates, gates_c + to, gates_u + to, d_c + row, d_u + row, of_c + to, of_u + to,
                   tokens, now, inner);
      }
    }
    for (int64_t t = 0; t < length; t++) {
      const int64_t row = (b * length + t) * inner;
      SIMD for (int64_t e = 0; e < inner; e++) {
        const real s = gate_of(p[row + e]), d_p = d_c[row + e] * (s + c[row + e] * (1 - s));
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
    add_times(d_query_key, 1, of_query_key, BLOCK * inner);
    add_times(d_value, 1, of_value, BLOCK * inner);
    add_times(d_gates_c, 1, of_c, count * inner);
    add_times(d_gates_u, 1, of_u, count * inner);
    for (int64_t head = 0; head < heads; head++) {
      d_gates_bias[head] += total(d_i + (b * heads + head) * length, length);
      d_gates_bias[heads + head] += total(d_f + (b * heads + head) * length, length);
    }
  }
  free(sums);
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
