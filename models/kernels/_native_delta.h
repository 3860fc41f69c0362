// The delta rule with any decay, token by token, and its way back, of one row: models/scans/generalised_delta.py.
//
//     S_t = diag(w_t) S_{t-1} - g_t u_t + k_t v_t^T        u_t = f_t S_{t-1}        y_t = r_t S_t, or r_t S_{t-1}
//
// A token has M / L steps: the first decays, the last is read. Without f nothing is taken out, without g it is along k,
// without w nothing decays. What comes stands at distances of its own from one time to the next: as heads come out of a
// product, or one for all.
//
// A sum within a vector costs more than ten of vectors. So S stands as [K, V] where keys are summed over, and as [V, K]
// where values are; the gradient of S, where both are, is kept as either. Vectors are padded with zeros. Forward keeps
// the state that every `chunk` of steps starts from; the way back finds those in between again, a chunk at a time.

#include "_native.h"

typedef struct {
  int64_t batch, head, time;
} Apart;  // numbers from one to the next

typedef struct {
  int64_t batch, heads, length, steps, keys, values, decays, chunk;
  int64_t reads_before;
  int64_t shares;    // of the keys' share: one number or as many as keys
  int64_t replicas;  // rows with parameters of their own
  Apart r, f, g, k, v, decay, less, d_y;
} Sizes;

typedef struct {
  const real *x;
  int64_t time;
} Part;  // of a row: where it starts, and the numbers from one time to the next

typedef struct {
  real *x;
  int64_t time;
} Written;

typedef struct {
  Part r, f, g, k, v, decay;
} Row;

typedef struct {
  Written r, f, g, k, v, decay;
} Gradients;

typedef struct {
  Part d_y;
  const real *u, *starts;
  real *d_S;
} Behind;  // what the way back has besides, and the gradient of the last state, which becomes that of the first

enum { NOTHING, ALONG_K, ALONG_G };  // what is taken out

static inline Part part(const real *x, Apart apart, int64_t row, const Sizes *at) {
  return (Part){x ? x + row / at->heads * apart.batch + row % at->heads * apart.head : 0, apart.time};
}

// [B, times, H, width]
static inline Written heads_last(real *x, int64_t times, int64_t width, int64_t row, const Sizes *at) {
  const int64_t start = (row / at->heads * times * at->heads + row % at->heads) * width;
  return (Written){x ? x + start : 0, at->heads * width};
}

static inline int erased(const Row *in) { return !in->f.x ? NOTHING : in->g.x ? ALONG_G : ALONG_K; }

static inline void decay_of(Part decay, int64_t m, real *restrict w, const Sizes *at) {
  const int64_t keys = at->keys, now = m / at->steps * decay.time;
  if (!decay.x || m % at->steps) {
    for (int64_t i = 0; i < keys; i++) w[i] = 1;
  } else if (at->decays == 1) {
    for (int64_t i = 0; i < keys; i++) w[i] = decay.x[now];
  } else {
    memcpy(w, decay.x + now, keys * sizeof(real));
  }
}

ALWAYS void forward_by(const int erased, const Row *in, const real *first, Written y, real *last, real *u, real *starts,
                       lanes *restrict S, real *restrict w, const Sizes *at) {
  const int64_t keys = at->keys, values = at->values, moves = at->length * at->steps;
  for (int64_t block = 0; block < blocks(values); block++) {
    for (int64_t i = 0; i < keys; i++) S[i] = block_of(first + i * values, block, values);
    for (int64_t m = 0; m < moves; m++) {
      const int64_t t = m / at->steps, is_last = m % at->steps == at->steps - 1;
      const real *restrict r_t = in->r.x + t * in->r.time, *restrict k_t = in->k.x + m * in->k.time;
      lanes v_t = block_of(in->v.x + m * in->v.time, block, values);
      if (m % at->chunk == 0)
        for (int64_t i = 0; i < keys; i++) put_block(starts + (m / at->chunk * keys + i) * values, block, values, S[i]);
      if (is_last && at->reads_before) put_block(y.x + t * y.time, block, values, weighted(r_t, S, keys));
      decay_of(in->decay, m, w, at);
      lanes u_t = {0};
      if (erased) {
        u_t = weighted(in->f.x + m * in->f.time, S, keys);
        put_block(u + m * values, block, values, u_t);
      }
      if (erased == ALONG_G) {
        const real *restrict g_t = in->g.x + m * in->g.time;
        for (int64_t i = 0; i < keys; i++) S[i] = w[i] * S[i] - g_t[i] * u_t + k_t[i] * v_t;
      } else {
        v_t -= u_t;
        for (int64_t i = 0; i < keys; i++) S[i] = w[i] * S[i] + k_t[i] * v_t;
      }
      if (is_last && !at->reads_before) put_block(y.x + t * y.time, block, values, weighted(r_t, S, keys));
    }
    for (int64_t i = 0; i < keys; i++) put_block(last + i * values, block, values, S[i]);
  }
}

// What a row works in. S is [C + 1, K blocks, V]: before each step of a chunk, and behind its last.
typedef struct {
  lanes *G_by_key, *G_by_value, *S;
  real *w, *nothing, *d_u, *new, *d_w;
} Room;

static Room room_for(const Sizes *at) {
  const int64_t keys = at->keys, values = at->values, moves = at->length * at->steps, of_keys = blocks(keys);
  const int64_t held = at->chunk < moves ? at->chunk : moves, wide = LANES * (of_keys + blocks(values));
  lanes *part[3];
  rooms_for(3, (int64_t[]){blocks(values) * keys, of_keys * values, (held + 1) * of_keys * values}, part);
  real *w = calloc(held * keys + 4 * wide, sizeof(real)), *nothing = w + held * keys;
  return (Room){part[0], part[1], part[2], w, nothing, nothing + wide, nothing + 2 * wide, nothing + 3 * wide};
}

static void leave(Room room) {
  free(room.G_by_key);
  free(room.w);
}

// On the way there a block of S stands where its gradient does on the way back, which has a vector for every key.
static void forward_of(const Row *in, const real *first, Written y, real *last, real *u, real *starts, Room room,
                       const Sizes *at) {
  lanes *S = room.G_by_key;
  if (erased(in) == NOTHING) forward_by(NOTHING, in, first, y, last, u, starts, S, room.w, at);
  if (erased(in) == ALONG_K) forward_by(ALONG_K, in, first, y, last, u, starts, S, room.w, at);
  if (erased(in) == ALONG_G) forward_by(ALONG_G, in, first, y, last, u, starts, S, room.w, at);
}

// What is written along k at a step, v or v - u.
ALWAYS const real *new_of(const int erased, const Row *in, const real *u, int64_t m, Room room, const Sizes *at) {
  const real *restrict v_t = in->v.x + m * in->v.time;
  if (erased != ALONG_K) return v_t;
  for (int64_t j = 0; j < at->values; j++) room.new[j] = v_t[j] - u[m * at->values + j];
  return room.new;
}

ALWAYS void backward_by(const int erased, const int before, const Row *in, Behind behind, const Gradients *d, Room room,
                        const Sizes *at) {
  const int64_t keys = at->keys, values = at->values, moves = at->length * at->steps, of_keys = blocks(keys);
  const int64_t of_values = blocks(values), state = of_keys * values, chunks = (moves + at->chunk - 1) / at->chunk;
  lanes *restrict G_by_key = room.G_by_key, *restrict G_by_value = room.G_by_value, *restrict S = room.S;
  real *restrict w = room.w, *restrict d_u = room.d_u, *restrict d_w = room.d_w;
  for (int64_t block = 0; block < of_values; block++)
    for (int64_t i = 0; i < keys; i++) G_by_key[block * keys + i] = block_of(behind.d_S + i * values, block, values);
  for (int64_t i = 0; i < keys; i++)
    for (int64_t j = 0; j < values; j++) G_by_value[i / LANES * values + j][i % LANES] = behind.d_S[i * values + j];
  for (int64_t chunk = chunks - 1; chunk >= 0; chunk--) {
    const int64_t from = chunk * at->chunk, to = from + at->chunk < moves ? from + at->chunk : moves;
    const real *restrict start = behind.starts + chunk * keys * values;
    for (int64_t i = 0; i < keys; i++)
      for (int64_t j = 0; j < values; j++) S[i / LANES * values + j][i % LANES] = start[i * values + j];
    for (int64_t m = from; m < to; m++) {
      const real *restrict k_t = in->k.x + m * in->k.time, *restrict x_t = new_of(erased, in, behind.u, m, room, at);
      const real *restrict u_t = behind.u + m * values;
      decay_of(in->decay, m, w + (m - from) * keys, at);
      for (int64_t block = 0; block < of_keys; block++) {
        const lanes *restrict S_b = S + (m - from) * state + block * values;
        lanes *restrict next = S + (m - from + 1) * state + block * values;
        const lanes k_b = block_of(k_t, block, keys), w_b = block_of(w + (m - from) * keys, block, keys);
        if (erased == ALONG_G) {
          const lanes g_b = block_of(in->g.x + m * in->g.time, block, keys);
          for (int64_t j = 0; j < values; j++) next[j] = w_b * S_b[j] - g_b * u_t[j] + k_b * x_t[j];
        } else {
          for (int64_t j = 0; j < values; j++) next[j] = w_b * S_b[j] + k_b * x_t[j];
        }
      }
    }
    for (int64_t m = to - 1; m >= from; m--) {
      const int64_t t = m / at->steps, is_last = m % at->steps == at->steps - 1;
      const real *restrict r_t = is_last ? in->r.x + t * in->r.time : room.nothing;
      const real *restrict d_y_t = is_last ? behind.d_y.x + t * behind.d_y.time : room.nothing;
      const real *restrict k_t = in->k.x + m * in->k.time, *restrict f_t = erased ? in->f.x + m * in->f.time : 0;
      const real *restrict g_t = erased == ALONG_G ? in->g.x + m * in->g.time : 0, *restrict u_t = behind.u + m * values;
      const real *restrict x_t = new_of(erased, in, behind.u, m, room, at), *restrict w_t = w + (m - from) * keys;
      for (int64_t block = 0; block < of_values; block++) {
        lanes *restrict G = G_by_key + block * keys;
        const lanes d_y_b = block_of(d_y_t, block, values);
        if (!before)
          for (int64_t i = 0; i < keys; i++) G[i] += r_t[i] * d_y_b;
        const lanes d_v_b = weighted(k_t, G, keys);
        put_block(d->v.x + m * d->v.time, block, values, d_v_b);
        lanes d_u_b = {0};
        if (erased) {
          d_u_b = erased == ALONG_K ? -d_v_b : -weighted(g_t, G, keys);
          put_block(d_u, block, values, d_u_b);
        }
        for (int64_t i = 0; i < keys; i++) {
          lanes G_i = w_t[i] * G[i];
          if (erased) G_i += f_t[i] * d_u_b;
          if (before) G_i += r_t[i] * d_y_b;
          G[i] = G_i;
        }
      }
      for (int64_t block = 0; block < of_keys; block++) {
        lanes *restrict G = G_by_value + block * values;
        const lanes *restrict S_b = S + (m - from) * state + block * values, *restrict read = before ? S_b : S_b + state;
        const lanes r_b = block_of(r_t, block, keys), w_b = block_of(w_t, block, keys);
        lanes f_b = {0}, of_r = {0}, of_f = {0}, of_g = {0}, of_k = {0}, of_decay = {0};
        if (erased) f_b = block_of(f_t, block, keys);
        for (int64_t j = 0; j < values; j++) {
          lanes G_j = G[j];
          if (!before) G_j += r_b * d_y_t[j];
          of_r += read[j] * d_y_t[j];
          of_k += G_j * x_t[j];
          of_decay += G_j * S_b[j];
          if (erased == ALONG_G) of_g -= G_j * u_t[j];
          G_j *= w_b;
          if (erased) of_f += S_b[j] * d_u[j];
          if (erased) G_j += f_b * d_u[j];
          if (before) G_j += r_b * d_y_t[j];
          G[j] = G_j;
        }
        put_block(d->k.x + m * d->k.time, block, keys, of_k);
        put_block(d_w, block, keys, of_decay);
        if (erased) put_block(d->f.x + m * d->f.time, block, keys, of_f);
        if (erased == ALONG_G) put_block(d->g.x + m * d->g.time, block, keys, of_g);
        if (is_last) put_block(d->r.x + t * d->r.time, block, keys, of_r);
      }
      if (in->decay.x && m % at->steps == 0 && at->decays == 1) {
        real sum = 0;
        for (int64_t i = 0; i < keys; i++) sum += d_w[i];
        d->decay.x[t * d->decay.time] = sum;
      } else if (in->decay.x && m % at->steps == 0) {
        memcpy(d->decay.x + t * d->decay.time, d_w, keys * sizeof(real));
      }
    }
  }
  for (int64_t block = 0; block < of_values; block++)
    for (int64_t i = 0; i < keys; i++) put_block(behind.d_S + i * values, block, values, G_by_key[block * keys + i]);
}

static void backward_of(const Row *in, Behind behind, const Gradients *d, Room room, const Sizes *at) {
  const int what = erased(in);
  if (what == NOTHING && at->reads_before) backward_by(NOTHING, 1, in, behind, d, room, at);
  if (what == NOTHING && !at->reads_before) backward_by(NOTHING, 0, in, behind, d, room, at);
  if (what == ALONG_K && !at->reads_before) backward_by(ALONG_K, 0, in, behind, d, room, at);
  if (what == ALONG_K && at->reads_before) backward_by(ALONG_K, 1, in, behind, d, room, at);
  if (what == ALONG_G && !at->reads_before) backward_by(ALONG_G, 0, in, behind, d, room, at);
  if (what == ALONG_G && at->reads_before) backward_by(ALONG_G, 1, in, behind, d, room, at);
}
