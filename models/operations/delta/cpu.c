// The delta rule with any decay (_native_delta.h) of rows of heads.
//
// f, g and k are [B, H, M, K], v [B, H, M, V], r [B, H, L, K], w [B, H, L, K or 1] and the gradient of y [B, H, L, V],
// their first three axes at distances of their own. y and all gradients are written with heads behind time, [B, L, H, ..]
// and [B, M, H, ..]; u is [B, H, M, V] in one piece, as states [B, H, K, V] are.

#include "_native_delta.h"

void delta_forward(const real *r, const real *f, const real *g, const real *k, const real *v, const real *decay,
                   const real *first, real *y, real *last, real *u, real *starts, const Sizes *at) {
  const int64_t state = at->keys * at->values, moves = at->length * at->steps;
  const int64_t kept = (moves + at->chunk - 1) / at->chunk * state;
  Room room = room_for(at);
  for (int64_t row = 0; row < at->batch * at->heads; row++) {
    const Row in = {part(r, at->r, row, at), part(f, at->f, row, at), part(g, at->g, row, at),
                    part(k, at->k, row, at), part(v, at->v, row, at), part(decay, at->decay, row, at)};
    forward_of(&in, first + row * state, heads_last(y, at->length, at->values, row, at), last + row * state,
               u + row * moves * at->values, starts + row * kept, room, at);
  }
  leave(room);
}

// `d_S` comes as the gradient of the last state and leaves as that of the first; all others are written.
void delta_backward(const real *r, const real *f, const real *g, const real *k, const real *v, const real *decay,
                    const real *u, const real *starts, const real *d_y, real *d_S, real *d_r, real *d_f, real *d_g,
                    real *d_k, real *d_v, real *d_decay, const Sizes *at) {
  const int64_t keys = at->keys, values = at->values, moves = at->length * at->steps;
  const int64_t kept = (moves + at->chunk - 1) / at->chunk * keys * values;
  Room room = room_for(at);
  for (int64_t row = 0; row < at->batch * at->heads; row++) {
    const Row in = {part(r, at->r, row, at), part(f, at->f, row, at), part(g, at->g, row, at),
                    part(k, at->k, row, at), part(v, at->v, row, at), part(decay, at->decay, row, at)};
    const Gradients d = {heads_last(d_r, at->length, keys, row, at), heads_last(d_f, moves, keys, row, at),
                         heads_last(d_g, moves, keys, row, at),      heads_last(d_k, moves, keys, row, at),
                         heads_last(d_v, moves, values, row, at),    heads_last(d_decay, at->length, at->decays, row, at)};
    const Behind behind = {part(d_y, at->d_y, row, at), u + row * moves * values, starts + row * kept,
                           d_S + row * keys * values};
    backward_of(&in, behind, &d, room, at);
  }
  leave(room);
}
