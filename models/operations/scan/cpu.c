// The selective scan of Mamba-1 from its projections to its gate, and its way back: models/scans/selective.py.
//
//   step = softplus(dt + bias)      a = e^(step A), or 2 e^(step A) - 1      h = a h + B (step v)
//   y = (sum_n C_n h_n + D v) z sigmoid(z)
//
// v, dt, z and y are [R, B, L, E], bias and D [R, E], A [R, N, E] and times log2(e), B and C [R, B, L, N], states
// [R, B, N, E]. Sixteen channels go through a chunk together, and with them four states at a time, which stay in
// registers from the chunk's start to its end; what is of channels alone is computed for the chunk before. Forward keeps
// the state that every `chunk` starts from, [R, B, K, N, E]; the way back finds the states in between again.

#include "_native.h"

typedef struct {
  int64_t replicas, batch, length, states, channels, chunk;
  int64_t is_signed;
  int64_t z_apart, B_apart, C_apart;  // numbers from a position to the next
} Sizes;

enum { TILE = 4 };  // states at once

// 2^x as exp2_of, where a vector's own instructions take the power out and put it back in: 2^-inf is 0 then.
static inline lanes exp2_all(lanes x) {
#ifdef __AVX512DQ__
  if (ARE_FLOATS_OF(__m512)) {
    __m512 asked, y = _mm512_set1_ps(1.534581243e-4f);
    memcpy(&asked, &x, sizeof asked);
    const __m512 r = _mm512_reduce_ps(asked, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    y = _mm512_fmadd_ps(y, r, _mm512_set1_ps(1.339993090e-3f));
    y = _mm512_fmadd_ps(y, r, _mm512_set1_ps(9.618489072e-3f));
    y = _mm512_fmadd_ps(y, r, _mm512_set1_ps(5.550328642e-2f));
    y = _mm512_fmadd_ps(y, r, _mm512_set1_ps(2.402264625e-1f));
    y = _mm512_fmadd_ps(y, r, _mm512_set1_ps(6.931471825e-1f));
    y = _mm512_fmadd_ps(y, r, _mm512_set1_ps(1.0f));
    y = _mm512_scalef_ps(y, _mm512_roundscale_ps(asked, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
    memcpy(&x, &y, sizeof y);
    return x;
  }
#endif
  SIMD for (int64_t i = 0; i < LANES; i++) x[i] = exp2_of(x[i]);
  return x;
}

static inline lanes sigmoid_all(lanes x) {
  SIMD for (int64_t i = 0; i < LANES; i++) x[i] = gate_of(x[i]);
  return x;
}

static inline lanes softplus_all(lanes x) {
  SIMD for (int64_t i = 0; i < LANES; i++) x[i] = softplus_from(x[i], exp_of(-(real)fabs(x[i])));
  return x;
}

static inline lanes transition(lanes step, lanes A, const Sizes *at) {
  const real is_signed = at->is_signed;
  return (1 + is_signed) * exp2_all(step * A) - is_signed;
}

static lanes *room_for(int64_t count) { return aligned_alloc(sizeof(lanes), count * sizeof(lanes)); }

static inline int64_t tiles(const Sizes *at) { return (at->states + TILE - 1) / TILE; }

// Four states of a block's channels, of zeros where there are no more.
static inline void get_tile(lanes *restrict found, const real *restrict from, int64_t first, int64_t block,
                            const Sizes *at) {
  for (int64_t i = 0; i < TILE; i++) {
    found[i] = (lanes){0};
    if (first + i < at->states) found[i] = block_of(from + (first + i) * at->channels, block, at->channels);
  }
}

static inline void put_tile(real *restrict to, const lanes *restrict h, int64_t first, int64_t block, const Sizes *at) {
  for (int64_t i = 0; i < TILE && first + i < at->states; i++)
    put_block(to + (first + i) * at->channels, block, at->channels, h[i]);
}

// A chunk's B or C, tile by tile and a tile's four of each position together.
static void in_tiles(const real *restrict from, int64_t apart, real *restrict to, int64_t count, const Sizes *at) {
  for (int64_t tile = 0; tile < tiles(at); tile++)
    for (int64_t t = 0; t < count; t++)
      for (int64_t i = 0; i < TILE; i++) {
        const int64_t n = tile * TILE + i;
        to[(tile * count + t) * TILE + i] = n < at->states ? from[t * apart + n] : 0;
      }
}

void scan_forward(const real *restrict v, const real *restrict dt, const real *restrict bias, const real *restrict A,
                  const real *restrict B, const real *restrict C, const real *restrict D, const real *restrict z,
                  const real *restrict first, real *restrict y, real *restrict last, real *restrict starts,
                  const Sizes *at) {
  const int64_t channels = at->channels, size = at->states * channels, chunk = at->chunk;
  const int64_t chunks = (at->length + chunk - 1) / chunk, coefficients = blocks(tiles(at) * TILE * chunk);
  lanes *restrict step = room_for(4 * chunk + 2 * coefficients), *restrict u = step + chunk;
  lanes *restrict gate = u + chunk, *restrict sum = gate + chunk;
  real *restrict of_B = (real *)(sum + chunk), *restrict of_C = of_B + coefficients * LANES;
  for (int64_t row = 0; row < at->replicas * at->batch; row++) {
    const int64_t replica = row / at->batch;
    real *restrict h_row = last + row * size;
    memcpy(h_row, first + row * size, size * sizeof(real));
    for (int64_t k = 0; k < chunks; k++) {
      const int64_t begin = row * at->length + k * chunk;
      const int64_t left = at->length - k * chunk, count = left < chunk ? left : chunk;
      memcpy(starts + (row * chunks + k) * size, h_row, size * sizeof(real));
      in_tiles(B + begin * at->B_apart, at->B_apart, of_B, count, at);
      in_tiles(C + begin * at->C_apart, at->C_apart, of_C, count, at);
      for (int64_t block = 0; block < blocks(channels); block++) {
        const lanes bias_b = block_of(bias + replica * channels, block, channels);
        const lanes D_b = block_of(D + replica * channels, block, channels);
        for (int64_t t = 0; t < count; t++) {
          const int64_t now = (begin + t) * channels;
          const lanes v_t = block_of(v + now, block, channels);
          const lanes z_t = block_of(z + (begin + t) * at->z_apart, block, channels);
          step[t] = softplus_all(block_of(dt + now, block, channels) + bias_b);
          u[t] = step[t] * v_t;
          gate[t] = z_t * sigmoid_all(z_t);
          sum[t] = D_b * v_t;
        }
        for (int64_t tile = 0; tile < tiles(at); tile++) {
          const real *restrict B_t = of_B + tile * count * TILE, *restrict C_t = of_C + tile * count * TILE;
          lanes A_b[TILE], h[TILE];
          get_tile(A_b, A + replica * size, tile * TILE, block, at);
          get_tile(h, h_row, tile * TILE, block, at);
          for (int64_t t = 0; t < count; t++, B_t += TILE, C_t += TILE)
            for (int64_t i = 0; i < TILE; i++) {
              h[i] = transition(step[t], A_b[i], at) * h[i] + B_t[i] * u[t];
              sum[t] += C_t[i] * h[i];
            }
          put_tile(h_row, h, tile * TILE, block, at);
        }
        for (int64_t t = 0; t < count; t++) put_block(y + (begin + t) * channels, block, channels, sum[t] * gate[t]);
      }
    }
  }
  free(step);
}

// Of a block's channels at a position, what the way back needs and finds.
typedef struct {
  lanes step, slope, u, of_y, of_z, plain, of_u, of_step;
} Position;

// `d_h` comes as the gradient of the last state and leaves as that of the first; d_bias, d_A and d_D are added to. d_A
// is that of A without its factor.
void scan_backward(const real *restrict v, const real *restrict dt, const real *restrict bias, const real *restrict A,
                   const real *restrict B, const real *restrict C, const real *restrict D, const real *restrict z,
                   const real *restrict starts, const real *restrict d_y, real *restrict d_h, real *restrict d_v,
                   real *restrict d_dt, real *restrict d_bias, real *restrict d_A, real *restrict d_B,
                   real *restrict d_C, real *restrict d_D, real *restrict d_z, const Sizes *at) {
  const int64_t channels = at->channels, states = at->states, size = states * channels, chunk = at->chunk;
  const int64_t chunks = (at->length + chunk - 1) / chunk, coefficients = blocks(tiles(at) * TILE * chunk);
  const real is_signed = at->is_signed, natural = (real)0.6931471805599453;  // what is left of the factor of A
  const int64_t each = sizeof(Position) / sizeof(lanes);
  lanes *restrict a = room_for((4 * TILE + each * blocks(channels)) * chunk + TILE + 2 * coefficients);
  lanes *restrict h = a + TILE * chunk, *restrict sum_B = h + TILE * (chunk + 1), *restrict sum_C = sum_B + TILE * chunk;
  Position *restrict all = (Position *)(sum_C + TILE * chunk);
  real *restrict of_B = (real *)(all + blocks(channels) * chunk), *restrict of_C = of_B + coefficients * LANES;
  for (int64_t row = 0; row < at->replicas * at->batch; row++) {
    const int64_t replica = row / at->batch;
    real *restrict d_A_r = d_A + replica * size, *restrict d_h_r = d_h + row * size;
    for (int64_t k = chunks - 1; k >= 0; k--) {
      const int64_t begin = row * at->length + k * chunk;
      const int64_t left = at->length - k * chunk, count = left < chunk ? left : chunk;
      in_tiles(B + begin * at->B_apart, at->B_apart, of_B, count, at);
      in_tiles(C + begin * at->C_apart, at->C_apart, of_C, count, at);
      for (int64_t block = 0; block < blocks(channels); block++) {
        const lanes bias_b = block_of(bias + replica * channels, block, channels);
        const lanes D_b = block_of(D + replica * channels, block, channels);
        for (int64_t t = 0; t < count; t++) {
          const int64_t now = (begin + t) * channels;
          const lanes v_t = block_of(v + now, block, channels), step = block_of(dt + now, block, channels) + bias_b;
          const lanes z_t = block_of(z + (begin + t) * at->z_apart, block, channels), s = sigmoid_all(z_t);
          const lanes of_out = block_of(d_y + now, block, channels) * s;
          Position *restrict here = all + block * chunk + t;
          *here = (Position){.slope = sigmoid_all(step), .step = softplus_all(step)};
          here->u = here->step * v_t;
          here->of_y = of_out * z_t;
          here->of_z = of_out * (1 + z_t * (1 - s));
          here->plain = D_b * v_t;
        }
      }
      for (int64_t tile = 0; tile < tiles(at); tile++) {
        const real *restrict B_t = of_B + tile * count * TILE, *restrict C_t = of_C + tile * count * TILE;
        memset(sum_B, 0, 2 * TILE * chunk * sizeof(lanes));  // and sum_C
        for (int64_t block = 0; block < blocks(channels); block++) {
          Position *restrict here = all + block * chunk;
          lanes A_b[TILE], g[TILE], of_A[TILE], now[TILE];
          get_tile(A_b, A + replica * size, tile * TILE, block, at);
          get_tile(now, starts + (row * chunks + k) * size, tile * TILE, block, at);
          get_tile(g, d_h_r, tile * TILE, block, at);
          get_tile(of_A, d_A_r, tile * TILE, block, at);
          for (int64_t i = 0; i < TILE; i++) h[i] = now[i];
          for (int64_t t = 0; t < count; t++)
            for (int64_t i = 0; i < TILE; i++) {
              const lanes a_i = transition(here[t].step, A_b[i], at);
              now[i] = a_i * now[i] + B_t[t * TILE + i] * here[t].u;
              a[t * TILE + i] = a_i;
              h[(t + 1) * TILE + i] = now[i];
              here[t].plain += C_t[t * TILE + i] * now[i];
            }
          for (int64_t t = count - 1; t >= 0; t--) {
            const lanes step = here[t].step, u = here[t].u, of_y = here[t].of_y;
            lanes of_u = here[t].of_u, of_step = here[t].of_step;
            for (int64_t i = 0; i < TILE; i++) {
              const int64_t place = t * TILE + i;
              const lanes before = h[place], a_i = a[place], g_i = g[i] + C_t[place] * of_y;
              // Of the exponent step A: a signed a has the slope 2 e^(step A) = a + 1, a positive one a.
              const lanes d = g_i * before * (a_i + is_signed);
              sum_C[place] += of_y * now[i];
              sum_B[place] += u * g_i;
              of_u += B_t[place] * g_i;
              of_step += d * A_b[i];
              of_A[i] += d * step;
              g[i] = a_i * g_i;
              now[i] = before;
            }
            here[t].of_u = of_u;
            here[t].of_step = of_step;
          }
          put_tile(d_h_r, g, tile * TILE, block, at);
          put_tile(d_A_r, of_A, tile * TILE, block, at);
        }
        for (int64_t t = 0; t < count; t++)
          for (int64_t i = 0; i < TILE && tile * TILE + i < states; i++) {
            d_B[(begin + t) * states + tile * TILE + i] = sum_of(sum_B[t * TILE + i]);
            d_C[(begin + t) * states + tile * TILE + i] = sum_of(sum_C[t * TILE + i]);
          }
      }
      for (int64_t block = 0; block < blocks(channels); block++) {
        real *restrict d_bias_r = d_bias + replica * channels, *restrict d_D_r = d_D + replica * channels;
        const lanes D_b = block_of(D + replica * channels, block, channels);
        lanes of_bias = block_of(d_bias_r, block, channels), of_D = block_of(d_D_r, block, channels);
        for (int64_t t = 0; t < count; t++) {
          const int64_t now = (begin + t) * channels;
          const Position here = all[block * chunk + t];
          const lanes v_t = block_of(v + now, block, channels);
          const lanes of_dt = (here.of_step * natural + here.of_u * v_t) * here.slope;
          put_block(d_dt + now, block, channels, of_dt);
          put_block(d_v + now, block, channels, here.of_u * here.step + here.of_y * D_b);
          put_block(d_z + now, block, channels, here.of_z * here.plain);
          of_bias += of_dt;
          of_D += here.of_y * v_t;
        }
        put_block(d_bias_r, block, channels, of_bias);
        put_block(d_D_r, block, channels, of_D);
      }
    }
  }
  free(a);
}
