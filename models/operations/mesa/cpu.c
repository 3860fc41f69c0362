// The mesa layer's recurrence, its systems solved at every token, and the way back: models/scans/mesa.py.
//
//     S_t = a_t S_{t-1} + b_t k_t [k_t, v_t]^T = [H_t, G_t]        (1 + H_t) x_t = q_t        y_t = x_t G_t
//
// q, k and x are [B, L, K], v and y [B, L, V], a and b [B, L], states S [B, K, K + V]. A lane is a row: LANES of them
// take each step at once, so that Cholesky's method is of whole vectors, too, and no sum lies within one. Forward keeps
// the state that every `chunk` of tokens starts from; the way back finds those in between again, a chunk at a time.

#include "_native.h"

typedef struct {
  int64_t rows, length, keys, values, chunk;
} Sizes;

// What [B, L, width] holds of rows at a token, [width, LANES], and back; lanes without a row keep what they have.
static inline void by_lane(const real *restrict x, int64_t row, int64_t count, int64_t t, int64_t width,
                           lanes *restrict found, const Sizes *at) {
  for (int64_t lane = 0; lane < count; lane++) {
    const real *restrict own = x + ((row + lane) * at->length + t) * width;
    for (int64_t i = 0; i < width; i++) ((real *)found)[i * LANES + lane] = own[i];
  }
}

static inline void by_row(const lanes *restrict found, int64_t row, int64_t count, int64_t t, int64_t width,
                          real *restrict x, const Sizes *at) {
  for (int64_t lane = 0; lane < count; lane++) {
    real *restrict own = x + ((row + lane) * at->length + t) * width;
    for (int64_t i = 0; i < width; i++) own[i] = ((const real *)found)[i * LANES + lane];
  }
}

static void state_by_lane(const real *restrict x, int64_t row, int64_t count, lanes *restrict S, const Sizes *at) {
  const int64_t size = at->keys * (at->keys + at->values);
  for (int64_t lane = 0; lane < count; lane++)
    for (int64_t i = 0; i < size; i++) ((real *)S)[i * LANES + lane] = x[(row + lane) * size + i];
}

static void state_by_row(const lanes *restrict S, int64_t row, int64_t count, real *restrict x, const Sizes *at) {
  const int64_t size = at->keys * (at->keys + at->values);
  for (int64_t lane = 0; lane < count; lane++)
    for (int64_t i = 0; i < size; i++) x[(row + lane) * size + i] = ((const real *)S)[i * LANES + lane];
}

// S = a S_before + b k [k, v]^T; `both` is [k, v].
static inline void advance(const lanes *restrict both, lanes a, lanes b, const lanes *before, lanes *S,
                           const Sizes *at) {
  const int64_t K = at->keys, X = K + at->values;
  for (int64_t i = 0; i < K; i++) {
    const lanes bk = b * both[i];
    for (int64_t j = 0; j < X; j++) S[i * X + j] = a * before[i * X + j] + bk * both[j];
  }
}

static inline lanes dot(const lanes *restrict x, const lanes *restrict y, int64_t count) {
  lanes sum[2] = {{0}};
  int64_t i = 0;
  for (; i + 2 <= count; i += 2) sum[0] += x[i] * y[i], sum[1] += x[i + 1] * y[i + 1];
  if (i < count) sum[0] += x[i] * y[i];
  return sum[0] + sum[1];
}

static inline lanes one_over_root(lanes x) {
  lanes found;
  SIMD for (int64_t lane = 0; lane < LANES; lane++) {
    const real own = ((const real *)&x)[lane];
    ((real *)&found)[lane] = 1 / (sizeof(real) == 4 ? (real)sqrtf((float)own) : (real)sqrt(own));
  }
  return found;
}

// Cholesky's factor F of 1 + H, its lower half, with one over what stands on its diagonal.
static inline void factor(const lanes *restrict S, lanes *restrict F, const Sizes *at) {
  const int64_t K = at->keys, X = K + at->values;
  for (int64_t j = 0; j < K; j++) {
    const lanes *restrict F_j = F + j * K, of_diagonal = one_over_root(1 + S[j * X + j] - dot(F_j, F_j, j));
    int64_t i = j + 1;
    for (; i + 4 <= K; i += 4) {  // four at once: each has to wait for its last subtraction
      lanes rest[4];
      for (int64_t part = 0; part < 4; part++) rest[part] = S[(i + part) * X + j];
      for (int64_t p = 0; p < j; p++)
        for (int64_t part = 0; part < 4; part++) rest[part] -= F[(i + part) * K + p] * F_j[p];
      for (int64_t part = 0; part < 4; part++) F[(i + part) * K + j] = rest[part] * of_diagonal;
    }
    for (; i < K; i++) F[i * K + j] = (S[i * X + j] - dot(F + i * K, F_j, j)) * of_diagonal;
    F[j * K + j] = of_diagonal;
  }
}

// (F F^T)^-1 x in place of x.
static inline void solve(const lanes *restrict F, lanes *restrict x, int64_t K) {
  for (int64_t i = 0; i < K; i++) x[i] = (x[i] - dot(F + i * K, x, i)) * F[i * K + i];
  for (int64_t i = K - 1; i >= 0; i--) {
    x[i] *= F[i * K + i];
    for (int64_t p = 0; p < i; p++) x[p] -= F[i * K + p] * x[i];
  }
}

void mesa_forward(const real *restrict q, const real *restrict k, const real *restrict v, const real *restrict a,
                  const real *restrict b, const real *restrict first, real *restrict y, real *restrict last,
                  real *restrict x, real *restrict starts, const Sizes *at) {
  const int64_t K = at->keys, V = at->values, X = K + V, size = K * X, L = at->length;
  const int64_t chunks = (L + at->chunk - 1) / at->chunk;
  lanes *room = calloc(size + K * K + X + K + V + 2, sizeof(lanes));
  lanes *restrict S = room, *restrict F = S + size, *restrict both = F + K * K, *restrict x_t = both + X;
  lanes *restrict y_t = x_t + K, *restrict gates = y_t + V;
  for (int64_t row = 0; row < at->rows; row += LANES) {
    const int64_t count = at->rows - row < LANES ? at->rows - row : LANES;
    state_by_lane(first, row, count, S, at);
    for (int64_t t = 0; t < L; t++) {
      if (t % at->chunk == 0)
        memcpy(starts + (row / LANES * chunks + t / at->chunk) * size * LANES, S, size * sizeof(lanes));
      by_lane(k, row, count, t, K, both, at);
      by_lane(v, row, count, t, V, both + K, at);
      by_lane(q, row, count, t, K, x_t, at);
      by_lane(a, row, count, t, 1, gates, at);
      by_lane(b, row, count, t, 1, gates + 1, at);
      advance(both, gates[0], gates[1], S, S, at);
      factor(S, F, at);
      solve(F, x_t, K);
      memset(y_t, 0, V * sizeof(lanes));
      for (int64_t i = 0; i < K; i++)
        for (int64_t j = 0; j < V; j++) y_t[j] += x_t[i] * S[i * X + K + j];
      by_row(x_t, row, count, t, K, x, at);
      by_row(y_t, row, count, t, V, y, at);
    }
    state_by_row(S, row, count, last, at);
  }
  free(room);
}

// `d_S` comes as the gradient of the last state and leaves as that of the first; all others are written.
void mesa_backward(const real *restrict k, const real *restrict v, const real *restrict a, const real *restrict b,
                   const real *restrict x, const real *restrict starts, const real *restrict d_y, real *restrict d_S,
                   real *restrict d_q, real *restrict d_k, real *restrict d_v, real *restrict d_a, real *restrict d_b,
                   const Sizes *at) {
  const int64_t K = at->keys, V = at->values, X = K + V, size = K * X, L = at->length;
  const int64_t chunks = (L + at->chunk - 1) / at->chunk, held = at->chunk < L ? at->chunk : L;
  lanes *room = calloc((held + 2) * size + K * K + held * (X + 2) + 2 * K + V + X + 2, sizeof(lanes));
  lanes *restrict S = room, *restrict G = S + (held + 1) * size, *restrict F = G + size;  // S from before t = 0
  lanes *restrict both = F + K * K, *restrict gates = both + held * X, *restrict x_t = gates + held * 2;
  lanes *restrict z = x_t + K, *restrict d_y_t = z + K, *restrict d_both = d_y_t + V, *restrict d_gates = d_both + X;
  for (int64_t row = 0; row < at->rows; row += LANES) {
    const int64_t count = at->rows - row < LANES ? at->rows - row : LANES;
    state_by_lane(d_S, row, count, G, at);
    for (int64_t chunk = chunks - 1; chunk >= 0; chunk--) {
      const int64_t from = chunk * at->chunk, to = from + at->chunk < L ? from + at->chunk : L;
      memcpy(S, starts + (row / LANES * chunks + chunk) * size * LANES, size * sizeof(lanes));
      for (int64_t t = from; t < to; t++) {
        lanes *restrict both_t = both + (t - from) * X, *restrict gates_t = gates + (t - from) * 2;
        by_lane(k, row, count, t, K, both_t, at);
        by_lane(v, row, count, t, V, both_t + K, at);
        by_lane(a, row, count, t, 1, gates_t, at);
        by_lane(b, row, count, t, 1, gates_t + 1, at);
        advance(both_t, gates_t[0], gates_t[1], S + (t - from) * size, S + (t - from + 1) * size, at);
      }
      for (int64_t t = to - 1; t >= from; t--) {
        const lanes *restrict before = S + (t - from) * size, *restrict now = before + size;
        const lanes *restrict both_t = both + (t - from) * X, a_t = gates[(t - from) * 2], b_t = gates[(t - from) * 2 + 1];
        by_lane(x, row, count, t, K, x_t, at);
        by_lane(d_y, row, count, t, V, d_y_t, at);
        for (int64_t i = 0; i < K; i++) z[i] = dot(now + i * X + K, d_y_t, V);
        factor(now, F, at);
        solve(F, z, K);
        memset(d_both, 0, (X + 2) * sizeof(lanes));
        for (int64_t i = 0; i < K; i++) {
          lanes *restrict G_i = G + i * X, along = {0}, of_a = {0};
          const lanes *restrict before_i = before + i * X, k_i = both_t[i], z_i = z[i], x_i = x_t[i];
          for (int64_t j = 0; j < X; j++) {
            const lanes g = j < K ? G_i[j] - z_i * x_t[j] : G_i[j] + x_i * d_y_t[j - K];
            of_a += g * before_i[j];
            along += g * both_t[j];
            d_both[j] += k_i * g;
            G_i[j] = a_t * g;
          }
          d_both[i] += along;
          d_gates[0] += of_a;
          d_gates[1] += k_i * along;
        }
        for (int64_t j = 0; j < X; j++) d_both[j] *= b_t;
        by_row(z, row, count, t, K, d_q, at);
        by_row(d_both, row, count, t, K, d_k, at);
        by_row(d_both + K, row, count, t, V, d_v, at);
        by_row(d_gates, row, count, t, 1, d_a, at);
        by_row(d_gates + 1, row, count, t, 1, d_b, at);
      }
    }
    state_by_row(G, row, count, d_S, at);
  }
  free(room);
}
