// The delta rule with any decay, token by token, and its way back: models/scans/generalised_delta.py.
//
//     S_t = diag(w_t) S_{t-1} - g_t u_t + k_t v_t^T        u_t = f_t S_{t-1}        y_t = r_t S_t, or r_t S_{t-1}
//
// f, g and k are [B, M, K], u and v [B, M, V]; r is [B, L, K], w [B, L, K or 1] and y [B, L, V], where a token has M / L
// steps: the first decays, the last is read. f and g, or w, may be null: nothing is taken out, or nothing decays.
//
// A sum within a vector costs more than ten of vectors. So S stands as [K, V] where keys are summed over, and as [V, K]
// where values are; the gradient of S, where both are, is kept as either. Vectors are padded with zeros. Forward keeps
// the state that every `chunk` of steps starts from; the way back finds those in between again, a chunk at a time.

#include "_native.h"

typedef struct {
  int64_t rows, length, steps, keys, values, decays, chunk;
  int64_t reads_before;
} Sizes;

static inline void decay_of(const real *restrict decay, int64_t m, int64_t token, real *restrict w, const Sizes *at) {
  const int64_t keys = at->keys;
  if (!decay || m % at->steps) {
    for (int64_t i = 0; i < keys; i++) w[i] = 1;
  } else if (at->decays == 1) {
    for (int64_t i = 0; i < keys; i++) w[i] = decay[token];
  } else {
    memcpy(w, decay + token * keys, keys * sizeof(real));
  }
}

void delta_forward(const real *restrict r, const real *restrict f, const real *restrict g, const real *restrict k,
                   const real *restrict v, const real *restrict decay, const real *restrict first, real *restrict y,
                   real *restrict last, real *restrict u, real *restrict starts, const Sizes *at) {
  const int64_t keys = at->keys, values = at->values, moves = at->length * at->steps;
  const int64_t chunks = (moves + at->chunk - 1) / at->chunk;
  lanes *restrict S = malloc(keys * sizeof(lanes));
  real *restrict w = malloc(keys * sizeof(real));
  for (int64_t row = 0; row < at->rows; row++) {
    for (int64_t block = 0; block < blocks(values); block++) {
      for (int64_t i = 0; i < keys; i++) S[i] = block_of(first + (row * keys + i) * values, block, values);
      for (int64_t m = 0; m < moves; m++) {
        const int64_t token = row * at->length + m / at->steps, now = row * moves + m;
        const int64_t is_last = m % at->steps == at->steps - 1;
        const real *restrict r_t = r + token * keys, *restrict k_t = k + now * keys;
        const lanes v_t = block_of(v + now * values, block, values);
        if (m % at->chunk == 0)
          for (int64_t i = 0; i < keys; i++)
            put_block(starts + ((row * chunks + m / at->chunk) * keys + i) * values, block, values, S[i]);
        if (is_last && at->reads_before) put_block(y + token * values, block, values, weighted(r_t, S, keys));
        decay_of(decay, m, token, w, at);
        if (f) {
          const real *restrict g_t = g + now * keys;
          const lanes u_t = weighted(f + now * keys, S, keys);
          put_block(u + now * values, block, values, u_t);
          for (int64_t i = 0; i < keys; i++) S[i] = w[i] * S[i] - g_t[i] * u_t + k_t[i] * v_t;
        } else {
          for (int64_t i = 0; i < keys; i++) S[i] = w[i] * S[i] + k_t[i] * v_t;
        }
        if (is_last && !at->reads_before) put_block(y + token * values, block, values, weighted(r_t, S, keys));
      }
      for (int64_t i = 0; i < keys; i++) put_block(last + (row * keys + i) * values, block, values, S[i]);
    }
  }
  free(S);
  free(w);
}

// `d_S` comes as the gradient of the last state and leaves as that of the first; all others are written.
void delta_backward(const real *restrict r, const real *restrict f, const real *restrict g, const real *restrict k,
                    const real *restrict v, const real *restrict decay, const real *restrict u,
                    const real *restrict starts, const real *restrict d_y, real *restrict d_S, real *restrict d_r,
                    real *restrict d_f, real *restrict d_g, real *restrict d_k, real *restrict d_v,
                    real *restrict d_decay, const Sizes *at) {
  const int64_t keys = at->keys, values = at->values, size = keys * values, moves = at->length * at->steps;
  const int64_t chunks = (moves + at->chunk - 1) / at->chunk, held = at->chunk < moves ? at->chunk : moves;
  const int64_t of_keys = blocks(keys), of_values = blocks(values), state = of_keys * values;
  lanes *room = calloc((held + 2) * state + of_values * keys, sizeof(lanes));
  lanes *restrict G_by_key = room, *restrict G_by_value = G_by_key + of_values * keys;
  lanes *restrict S = G_by_value + state;  // [C + 1, K blocks, V]: before each step of a chunk, and behind its last
  real *small = calloc(held * keys + 4 * (keys + values), sizeof(real));
  real *restrict w = small, *restrict nothing = w + held * keys, *restrict d_u = nothing + 2 * (keys + values);
  real *restrict d_w = d_u + values;
  for (int64_t row = 0; row < at->rows; row++) {
    for (int64_t block = 0; block < of_values; block++)
      for (int64_t i = 0; i < keys; i++)
        G_by_key[block * keys + i] = block_of(d_S + row * size + i * values, block, values);
    for (int64_t i = 0; i < keys; i++)
      for (int64_t j = 0; j < values; j++) G_by_value[i / LANES * values + j][i % LANES] = d_S[row * size + i * values + j];
    for (int64_t chunk = chunks - 1; chunk >= 0; chunk--) {
      const int64_t from = chunk * at->chunk, to = from + at->chunk < moves ? from + at->chunk : moves;
      const real *restrict start = starts + (row * chunks + chunk) * size;
      for (int64_t i = 0; i < keys; i++)
        for (int64_t j = 0; j < values; j++) S[i / LANES * values + j][i % LANES] = start[i * values + j];
      for (int64_t m = from; m < to; m++) {
        const int64_t now = row * moves + m;
        const real *restrict v_t = v + now * values, *restrict u_t = f ? u + now * values : nothing;
        decay_of(decay, m, row * at->length + m / at->steps, w + (m - from) * keys, at);
        for (int64_t block = 0; block < of_keys; block++) {
          const lanes *restrict S_b = S + (m - from) * state + block * values;
          lanes *restrict next = S + (m - from + 1) * state + block * values;
          const lanes k_b = block_of(k + now * keys, block, keys), w_b = block_of(w + (m - from) * keys, block, keys);
          const lanes g_b = block_of(f ? g + now * keys : nothing, block, keys);
          for (int64_t j = 0; j < values; j++) next[j] = w_b * S_b[j] - g_b * u_t[j] + k_b * v_t[j];
        }
      }
      for (int64_t m = to - 1; m >= from; m--) {
        const int64_t now = row * moves + m, token = row * at->length + m / at->steps;
        const int64_t is_last = m % at->steps == at->steps - 1, is_before = is_last && at->reads_before;
        const real *restrict r_t = is_last ? r + token * keys : nothing, *restrict k_t = k + now * keys;
        const real *restrict f_t = f ? f + now * keys : nothing, *restrict g_t = f ? g + now * keys : nothing;
        const real *restrict v_t = v + now * values, *restrict u_t = f ? u + now * values : nothing;
        const real *restrict w_t = w + (m - from) * keys, *restrict d_y_t = is_last ? d_y + token * values : nothing;
        for (int64_t block = 0; block < of_values; block++) {
          lanes *restrict G = G_by_key + block * keys;
          const lanes d = block_of(d_y_t, block, values), zero = {0}, before = is_before ? d : zero;
          const lanes behind = is_before ? zero : d;
          for (int64_t i = 0; i < keys; i++) G[i] += r_t[i] * behind;
          put_block(d_v + now * values, block, values, weighted(k_t, G, keys));
          const lanes of_u = -weighted(g_t, G, keys);
          put_block(d_u, block, values, of_u);
          for (int64_t i = 0; i < keys; i++) G[i] = w_t[i] * G[i] + f_t[i] * of_u + r_t[i] * before;
        }
        for (int64_t block = 0; block < of_keys; block++) {
          lanes *restrict G = G_by_value + block * values;
          const lanes *restrict S_b = S + (m - from) * state + block * values, *restrict next = S_b + state;
          const lanes *restrict read = is_before ? S_b : next;
          const lanes r_b = block_of(r_t, block, keys), f_b = block_of(f_t, block, keys);
          const lanes w_b = block_of(w_t, block, keys);
          lanes of_r = {0}, of_f = {0}, of_g = {0}, of_k = {0}, of_w = {0};
          for (int64_t j = 0; j < values; j++) {
            const real before = is_before ? d_y_t[j] : 0, behind = is_before ? 0 : d_y_t[j];
            const lanes G_j = G[j] + r_b * behind;
            of_r += read[j] * d_y_t[j];
            of_k += G_j * v_t[j];
            of_g -= G_j * u_t[j];
            of_w += G_j * S_b[j];
            of_f += S_b[j] * d_u[j];
            G[j] = w_b * G_j + f_b * d_u[j] + r_b * before;
          }
          put_block(d_k + now * keys, block, keys, of_k);
          put_block(d_w, block, keys, of_w);
          if (f) put_block(d_f + now * keys, block, keys, of_f);
          if (f) put_block(d_g + now * keys, block, keys, of_g);
          if (is_last) put_block(d_r + token * keys, block, keys, of_r);
        }
        if (decay && m % at->steps == 0 && at->decays == 1) {
          d_decay[token] = 0;
          for (int64_t i = 0; i < keys; i++) d_decay[token] += d_w[i];
        } else if (decay && m % at->steps == 0) {
          memcpy(d_decay + token * keys, d_w, keys * sizeof(real));
        }
      }
    }
    for (int64_t block = 0; block < of_values; block++)
      for (int64_t i = 0; i < keys; i++)
        put_block(d_S + row * size + i * values, block, values, G_by_key[block * keys + i]);
  }
  free(room);
  free(small);
}
