// A turn of a memory that knows which of its cells are free and in what order they were written, and the way back.

#include "_native_linked.h"

void linked_forward(const real *asked, const real *memory, const real *usage, const real *write, const real *precedence,
                    const real *link, const real *weight, real *restrict memories, real *restrict usages,
                    real *restrict writes, real *restrict precedences, real *restrict links, real *restrict weights,
                    real *restrict reads, const Sizes *at) {
  NEXT_TO_NOTHING_IS_NOTHING
  const Given all = {asked, memory, usage, write, precedence, link, weight};
  const int64_t cells = at->cells, heads = at->heads, width = at->width;
  Work w = begin(at);
  for (int64_t row = 0; row < at->machines; row++) {
    const Given in = of_machine(&all, row, at);
    turn(&w, &in, at);
    take_rows(w.now, width, cells, memories + row * width * cells);
    memcpy(usages + row * cells, w.used + heads * w.shape.wide * LANES, cells * sizeof(real));
    memcpy(writes + row * cells, w.written, cells * sizeof(real));
    const real left = 1 - sum_over(w.written, cells);
    real *restrict after = precedences + row * cells;
    SIMD for (int64_t n = 0; n < cells; n++) after[n] = w.written[n] + left * w.precedence[n];
    take_rows(w.linked, cells, cells, links + row * cells * cells);
    take_rows((const lanes *)w.to, heads, cells, weights + row * heads * cells);
    for (int64_t k = 0; k < heads; k++) {
      dots_of_rows(w.now, (const lanes *)w.to + k * w.shape.wide, &w.shape, w.sums);
      memcpy(reads + (row * heads + k) * width, w.sums, width * sizeof(real));
    }
  }
  end(&w);
}

// Gradients of what a turn makes, which those of what it was given follow from.
typedef struct {
  lanes *memory, *now, *linked, *weight, *to, *written, *precedence, *room, *part[2];
  real *used;
} Back;

static Back begin_back(const Work *w, const Sizes *at) {
  const int64_t wide = w->shape.wide, whole = at->width * wide, heads = at->heads;
  const int64_t longest = blocks(at->cells > at->width ? at->cells : at->width);
  lanes *part[11];
  rooms_for(11,
            (int64_t[]){whole, whole, at->cells * wide, heads * wide, wide, wide, wide, 2 * longest + wide, longest * LANES,
                        longest * LANES, wide},
            part);
  return (Back){part[0], part[1], part[2], part[3], part[4], part[5], part[6], part[7], {part[8], part[9]},
                (real *)part[10]};
}

// What heads read and where they stand, through the links and what they found.
static void read_back(Work *w, Back *d, const real *restrict d_read, const real *restrict d_weights,
                      real *restrict d_asked, const Sizes *at) {
  const int64_t wide = w->shape.wide, cells = at->cells;
  for (int64_t k = 0; k < at->heads; k++) {
    const lanes *to = (const lanes *)w->to + k * wide, *weight = (const lanes *)w->weight + k * wide;
    const real *restrict mode = w->mode + 3 * k, *restrict d_own = d_read + k * at->width;
    const real *restrict d_to = (const real *)d->to;
    real *restrict d_mode = d_asked + k * of_read(at) + at->width + 2;
    lanes *restrict along = d->room, *restrict against = d->room + wide;
    put_rows(d_weights + k * cells, 1, cells, along);
    mixed_rows(d_own, w->now, &w->shape, d->to);
    for (int64_t b = 0; b < wide; b++) d->to[b] += along[b];
    for (int64_t i = 0; i < at->width; i++)
      for (int64_t b = 0; b < wide; b++) d->now[i * wide + b] += d_own[i] * to[b];
    d_mode[0] = dot_of(d->to, (const lanes *)w->back + k * wide, wide);
    d_mode[1] = dot_of(d->to, w->sought[k + 1].found, wide);
    d_mode[2] = dot_of(d->to, (const lanes *)w->forth + k * wide, wide);
    softmax_back(mode, d_mode, 3);

    dots_of_rows(w->linked, d->to, &w->links, along);
    mixed_rows(d_to, w->linked, &w->links, against);
    for (int64_t b = 0; b < wide; b++) {
      d->weight[k * wide + b] = mode[0] * along[b] + mode[2] * against[b];
      w->sought[k + 1].d[b] = mode[1] * d->to[b];
    }
    for (int64_t n = 0; n < cells; n++) {
      const real back = mode[0] * w->weight[k * wide * LANES + n], forth = mode[2] * d_to[n];
      for (int64_t b = 0; b < wide; b++) d->linked[n * wide + b] += back * d->to[b] + forth * weight[b];
    }
    w->sought[k + 1].d_key = d_asked + k * of_read(at);
  }
  find_back(w->sought + 1, at->heads, w->now, w->inverse_now, &w->shape, d->now, d->room);
}

// Links and precedence: what the write did to them. d->linked becomes the gradient of the links before.
static void links_back(const Work *w, Back *d, const Given *in, const real *restrict d_precedence, const Sizes *at) {
  const int64_t wide = w->shape.wide, cells = at->cells;
  const lanes *written = (const lanes *)w->written, *precedence = (const lanes *)w->precedence;
  lanes *restrict taken = d->room;
  memset(taken, 0, wide * sizeof(lanes));
  put_rows(d_precedence, 1, cells, d->precedence);
  const real d_sum = -dot_of(d->precedence, precedence, wide), left = 1 - sum_over(w->written, cells);
  for (int64_t b = 0; b < wide; b++) {
    d->written[b] += d->precedence[b] + d_sum;  // behind the last cell nobody looks
    d->precedence[b] *= left;
  }
  for (int64_t n = 0; n < cells; n++) {
    lanes *row = d->linked + n * wide, gained = {0};
    const real own = w->written[n];
    ((real *)row)[n] = 0;
    for (int64_t b = 0; b < wide; b++) {
      const lanes before = block_of(in->link + n * cells, b, cells);
      taken[b] += row[b] * before;
      gained += row[b] * (precedence[b] - before);
      d->precedence[b] += own * row[b];
      row[b] *= 1 - own - written[b];
    }
    d->part[0][n] = gained;
  }
  for (int64_t b = 0; b < wide; b++) d->written[b] += sums_within(d->part[0] + b * LANES) - taken[b];
}

static void write_back(Work *w, Back *d, const Given *in, real *restrict d_asked, const Sizes *at) {
  const int64_t wide = w->shape.wide, cells = at->cells, width = at->width;
  const int64_t to_read = at->heads * of_read(at);
  const real *restrict ask = in->asked + to_read, *restrict vector = ask + 2 * width, *restrict scalar = ask + 3 * width;
  real *restrict d_ask = d_asked + to_read, *restrict d_scalar = d_ask + 3 * width;
  const lanes *written = (const lanes *)w->written;
  for (int64_t i = 0; i < width; i++) {
    lanes of_vector = {0}, of_erase = {0};
    for (int64_t b = 0; b < wide; b++) {
      const lanes d_now = d->now[i * wide + b], d_kept = d_now * w->memory[i * wide + b];
      of_vector += d_now * written[b];
      of_erase -= d_kept * written[b];
      d->written[b] += vector[i] * d_now - w->erase[i] * d_kept;
      d->memory[i * wide + b] = d_now * (1 - w->erase[i] * written[b]);
    }
    d->part[0][i] = of_vector, d->part[1][i] = of_erase;
  }
  for (int64_t i = 0; i < width; i += LANES) {
    const lanes of_vector = sums_within(d->part[0] + i), of_erase = sums_within(d->part[1] + i);
    for (int64_t j = 0; j < (width - i < LANES ? width - i : LANES); j++) {
      d_ask[2 * width + i + j] = of_vector[j];
      d_ask[width + i + j] = of_erase[j] * w->erase[i + j] * (1 - w->erase[i + j]);
    }
  }

  const real gate = sigmoid(scalar[1]), to_free = sigmoid(scalar[2]);
  const real *restrict found = (const real *)w->sought[0].found, *restrict allocated = w->allocated;
  real *restrict d_found = (real *)w->sought[0].d, *restrict d_written = (real *)d->written, d_gate = 0, d_to_free = 0;
  _Pragma("omp simd reduction(+ : d_gate, d_to_free)") for (int64_t n = 0; n < cells; n++) {
    d_gate += d_written[n] * (found[n] + to_free * (allocated[n] - found[n]));
    d_to_free += d_written[n] * (allocated[n] - found[n]);
    d_found[n] = gate * (1 - to_free) * d_written[n];
  }
  real *restrict used = d->used, later = 0;  // later: of the product of all cells before
  for (int64_t i = cells - 1; i >= 0; i--) {
    const int64_t n = w->order[i];
    const real d_allocated = gate * to_free * d_written[n];
    used[n] += (later - d_allocated) * w->before[i];
    later = later * w->sorted[i] + d_allocated * (1 - w->sorted[i]);
  }
  w->sought[0].d_key = d_ask;
  find_back(w->sought, 1, w->memory, w->inverse, &w->shape, d->memory, d->room);
  d_scalar[0] = w->sought[0].d_strength * sigmoid(scalar[0]);
  d_scalar[1] = d_gate * gate * (1 - gate);
  d_scalar[2] = d_to_free * gate * to_free * (1 - to_free);
}

// What was free, through what heads set free, down to the last usage and write.
static void usage_back(const Work *w, Back *d, const Given *in, real *restrict d_asked, real *restrict d_usage,
                       real *restrict d_write, const Sizes *at) {
  const int64_t cells = at->cells, apart = w->shape.wide * LANES;
  real *restrict d_used = d->used;
  for (int64_t k = at->heads - 1; k >= 0; k--) {
    const real *restrict last = w->used + k * apart, *restrict weight = w->weight + k * apart, freed = w->freed[k];
    real *restrict d_weight = (real *)d->weight + k * apart, d_freed = 0;
    _Pragma("omp simd reduction(+ : d_freed)") for (int64_t n = 0; n < cells; n++) {
      d_freed -= d_used[n] * last[n] * weight[n];
      d_weight[n] -= d_used[n] * last[n] * freed;
      d_used[n] *= 1 - freed * weight[n];
    }
    real *d_scalar = d_asked + k * of_read(at) + at->width;
    d_scalar[0] = w->sought[k + 1].d_strength * sigmoid(in->asked[k * of_read(at) + at->width]);
    d_scalar[1] = d_freed * freed * (1 - freed);
  }
  SIMD for (int64_t n = 0; n < cells; n++) {
    d_usage[n] = d_used[n] * (1 - in->write[n]);
    d_write[n] = d_used[n] * (1 - in->usage[n]);
  }
}

// All gradients are written.
void linked_backward(const real *d_memories, const real *d_usages, const real *d_writes, const real *d_precedences,
                     const real *d_links, const real *d_weights, const real *d_reads, const real *asked,
                     const real *memory, const real *usage, const real *write, const real *precedence, const real *link,
                     const real *weight, real *restrict d_asked, real *restrict d_memory, real *restrict d_usage,
                     real *restrict d_write, real *restrict d_precedence, real *restrict d_link, real *restrict d_weight,
                     const Sizes *at) {
  NEXT_TO_NOTHING_IS_NOTHING
  const Given all = {asked, memory, usage, write, precedence, link, weight};
  const int64_t cells = at->cells, heads = at->heads, width = at->width;
  Work w = begin(at);
  Back d = begin_back(&w, at);
  for (int64_t row = 0; row < at->machines; row++) {
    const Given in = of_machine(&all, row, at);
    const int64_t first = row * cells;
    real *restrict d_own = d_asked + row * of_all(at);
    turn(&w, &in, at);
    put_rows(d_memories + first * width, width, cells, d.now);
    put_rows(d_links + first * cells, cells, cells, d.linked);
    put_rows(d_writes + first, 1, cells, d.written);
    put_rows(d_usages + first, 1, cells, (lanes *)d.used);
    read_back(&w, &d, d_reads + row * heads * width, d_weights + first * heads, d_own, at);
    links_back(&w, &d, &in, d_precedences + first, at);
    write_back(&w, &d, &in, d_own, at);
    usage_back(&w, &d, &in, d_own, d_usage + first, d_write + first, at);
    take_rows(d.memory, width, cells, d_memory + first * width);
    take_rows(d.precedence, 1, cells, d_precedence + first);
    take_rows(d.linked, cells, cells, d_link + first * cells);
    take_rows(d.weight, heads, cells, d_weight + first * heads);
  }
  free(d.memory);
  end(&w);
}
