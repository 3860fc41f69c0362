// A turn of a Turing machine's memory, and the way back: models/scans/turing_memory.py.
//
// One machine a row, of as many writing heads as reading ones, which come first. What heads do to a cell they do to
// sixteen at once: a memory is `width` rows of its `cells`.

#include "_native_content.h"

typedef struct {
  int64_t machines, heads, cells, width, shifts;
} Sizes;

// How one head finds its cells: by content, between that and where it was, moved, sharpened.
typedef struct {
  const real *asked, *before;
  real gate, sharpness;
  real *shift, *ring;  // shares of the shifts; cells with their neighbours round the ring
  lanes *moved, *log_moved, *to;  // log_moved: of `moved` over its largest
} Head;

typedef struct {
  lanes *memory, *inverse, *d_memory, *erase_sums, *add_sums, *room;
  real *erase;
  Head *head;
  Sought *sought;
} Work;

static int64_t of_head(const Sizes *at) { return at->width + 3 + at->shifts; }
static int64_t of_all(const Sizes *at) { return 2 * at->heads * (of_head(at) + at->width); }

static void *begin(Work *w, const Sizes *at, const Shape *shape) {
  const int64_t heads = 2 * at->heads, whole = shape->width * shape->wide, ring = blocks(at->cells + at->shifts - 1);
  const int64_t written = blocks(at->heads * at->width) * LANES, each = 6 * shape->wide + ring + blocks(at->shifts);
  lanes *part[8];
  rooms_for(8,
            (int64_t[]){whole, shape->wide, whole, written, written, shape->wide + blocks(at->width) + ring,
                        blocks(at->heads * at->width), heads * each},
            part);
  w->memory = part[0], w->inverse = part[1], w->d_memory = part[2], w->erase_sums = part[3], w->add_sums = part[4];
  w->room = part[5], w->erase = (real *)part[6];
  w->head = malloc(heads * sizeof(Head)), w->sought = malloc(heads * sizeof(Sought));
  for (int64_t k = 0; k < heads; k++) {
    lanes *own = part[7] + k * each;
    w->sought[k].dot = own, w->sought[k].found = own + shape->wide, w->sought[k].d = own + 2 * shape->wide;
    w->head[k].moved = own + 3 * shape->wide, w->head[k].to = own + 4 * shape->wide;
    w->head[k].log_moved = own + 5 * shape->wide;
    w->head[k].ring = (real *)(own + 6 * shape->wide), w->head[k].shift = (real *)(own + 6 * shape->wide + ring);
  }
  return part[0];
}

static void end(Work *w, void *rooms) {
  free(rooms);
  free(w->head);
  free(w->sought);
}

// x[n] stands at ring[most + n], and round it as many as a shift may reach, given that x is there.
static void close_ring(real *restrict ring, int64_t cells, int64_t most) {
  for (int64_t i = 0; i < most; i++) {
    ring[i] = ring[cells + i];
    ring[most + cells + i] = ring[most + i];
  }
}

static void address(Head *head, Sought *content, const lanes *restrict memory, const lanes *restrict inverse,
                    const Sizes *at, const Shape *shape) {
  const int64_t cells = at->cells, most = at->shifts / 2;
  const real *scalar = head->asked + at->width;
  content->key = head->asked;
  content->strength = softplus_from(scalar[0], exp_of(-(real)fabs(scalar[0])));
  head->sharpness = 1 + softplus_from(scalar[1], exp_of(-(real)fabs(scalar[1])));
  head->gate = sigmoid(scalar[2]);
  memcpy(head->shift, scalar + 3, at->shifts * sizeof(real));
  softmax_of(head->shift, at->shifts);
  find(content, memory, inverse, shape);

  const real *restrict found = (const real *)content->found, *restrict before = head->before, gate = head->gate;
  real *restrict inner = head->ring + most;
  SIMD for (int64_t n = 0; n < cells; n++) inner[n] = before[n] + gate * (found[n] - before[n]);
  close_ring(head->ring, cells, most);
  real *restrict moved = (real *)head->moved, *restrict to = (real *)head->to, highest = 0, sum = 0;
  memset(moved, 0, cells * sizeof(real));
  for (int64_t place = 0; place < at->shifts; place++) {
    const real *restrict from = head->ring + 2 * most - place, share = head->shift[place];
    SIMD for (int64_t n = 0; n < cells; n++) moved[n] += share * from[n];
  }
  _Pragma("omp simd reduction(max : highest)") for (int64_t n = 0; n < cells; n++) highest = largest(highest, moved[n]);
  const real sharpness = head->sharpness, scale = 1 / highest, least = sizeof(real) == 4 ? -87 : -700;
  real *restrict log_moved = (real *)head->log_moved;
  _Pragma("omp simd reduction(+ : sum)") for (int64_t n = 0; n < cells; n++) {
    log_moved[n] = log_of(moved[n] * scale);
    const real power = sharpness * log_moved[n];
    to[n] = power < least ? 0 : exp_of(power);
    sum += to[n];
  }
  const real share = 1 / sum;
  SIMD for (int64_t n = 0; n < cells; n++) to[n] *= share;
}

// d, of `to`, becomes the gradient of what was found by content.
static void address_back(const Head *head, const Sought *content, const Sizes *at, real *restrict room,
                         real *restrict d_before, real *restrict d_asked) {
  const int64_t cells = at->cells, most = at->shifts / 2;
  const real *restrict to = (const real *)head->to, *restrict moved = (const real *)head->moved;
  const real *restrict log_moved = (const real *)head->log_moved;
  real *restrict d = (real *)content->d, *restrict d_moved = room + most;
  real sum = 0, d_sharpness = 0, d_gate = 0;
  _Pragma("omp simd reduction(+ : sum)") for (int64_t n = 0; n < cells; n++) sum += to[n] * d[n];
  const real sharpness = head->sharpness, gate = head->gate;
  _Pragma("omp simd reduction(+ : d_sharpness)") for (int64_t n = 0; n < cells; n++) {
    const real d_power = to[n] * (d[n] - sum);
    d_sharpness += moved[n] > 0 ? d_power * log_moved[n] : 0;
    d_moved[n] = moved[n] > 0 ? d_power * sharpness / moved[n] : 0;
  }
  close_ring(room, cells, most);

  real *restrict d_scalar = d_asked + at->width, *restrict d_shift = d_scalar + 3;
  for (int64_t place = 0; place < at->shifts; place++) {
    const real *restrict from = head->ring + 2 * most - place;
    real share = 0;
    _Pragma("omp simd reduction(+ : share)") for (int64_t n = 0; n < cells; n++) share += d_moved[n] * from[n];
    d_shift[place] = share;
  }
  softmax_back(head->shift, d_shift, at->shifts);
  memset(d, 0, cells * sizeof(real));
  for (int64_t place = 0; place < at->shifts; place++) {
    const real *restrict from = room + place, share = head->shift[place];
    SIMD for (int64_t n = 0; n < cells; n++) d[n] += share * from[n];
  }
  const real *restrict found = (const real *)content->found, *restrict before = head->before;
  _Pragma("omp simd reduction(+ : d_gate)") for (int64_t n = 0; n < cells; n++) {
    d_gate += d[n] * (found[n] - before[n]);
    d_before[n] = d[n] * (1 - gate);
    d[n] *= gate;
  }
  const real *scalar = head->asked + at->width;
  d_scalar[1] = d_sharpness * sigmoid(scalar[1]);
  d_scalar[2] = d_gate * gate * (1 - gate);
}

static void address_all(Work *w, const real *restrict asked, const real *restrict before, const real *restrict memory,
                        const Sizes *at, const Shape *shape) {
  put_rows(memory, at->width, at->cells, w->memory);
  one_by_lengths(w->memory, shape, w->inverse);
  for (int64_t k = 0; k < 2 * at->heads; k++) {
    w->head[k].asked = asked + k * of_head(at);
    w->head[k].before = before + k * at->cells;
    address(&w->head[k], &w->sought[k], w->memory, w->inverse, at, shape);
  }
  const real *restrict to_erase = asked + 2 * at->heads * of_head(at);
  SIMD for (int64_t i = 0; i < at->heads * at->width; i++) w->erase[i] = sigmoid(to_erase[i]);
}

void turing_forward(const real *restrict asked, const real *restrict before, const real *restrict memory,
                    real *restrict weights, real *restrict memories, real *restrict reads, const Sizes *at) {
  NEXT_TO_NOTHING_IS_NOTHING
  const Shape shape = shape_of(at->width, at->cells);
  const int64_t heads = at->heads, width = at->width, wide = shape.wide, whole = width * at->cells;
  Work w;
  void *rooms = begin(&w, at, &shape);
  for (int64_t row = 0; row < at->machines; row++) {
    const real *restrict a = asked + row * of_all(at);
    address_all(&w, a, before + row * 2 * heads * at->cells, memory + row * whole, at, &shape);
    const real *restrict add = a + 2 * heads * of_head(at) + heads * width;
    const Head *writing = w.head + heads;
    for (int64_t i = 0; i < width; i++)
      for (int64_t b = 0; b < wide; b++) {
        lanes cell = w.memory[i * wide + b];
        for (int64_t k = 0; k < heads; k++) cell *= 1 - w.erase[k * width + i] * writing[k].to[b];
        for (int64_t k = 0; k < heads; k++) cell += add[k * width + i] * writing[k].to[b];
        w.memory[i * wide + b] = cell;
      }
    take_rows(w.memory, width, at->cells, memories + row * whole);
    for (int64_t k = 0; k < 2 * heads; k++)
      memcpy(weights + (row * 2 * heads + k) * at->cells, w.head[k].to, at->cells * sizeof(real));
    for (int64_t k = 0; k < heads; k++) {
      dots_of_rows(w.memory, w.head[k].to, &shape, w.room);
      memcpy(reads + (row * heads + k) * width, w.room, width * sizeof(real));
    }
  }
  end(&w, rooms);
}

// What was read and written, cell by cell: sums of what each head erased and added, and gradients of weightings and of
// the memory before. Of a number of heads that compilers know they make straight lines.
ALWAYS void cells_back(const int64_t heads, Work *w, const real *restrict add, const real *restrict d_read,
                       const Shape *at) {
  const int64_t width = at->width, wide = at->wide;
  const lanes *restrict memory = w->memory;
  const real *restrict erase = w->erase;
  lanes *restrict d_memory = w->d_memory, erased[heads], gained[heads];
  const lanes *reads[heads], *writes[heads];
  lanes *d_reads[heads], *d_writes[heads];
  for (int64_t k = 0; k < heads; k++) {
    reads[k] = w->head[k].to, writes[k] = w->head[heads + k].to;
    d_reads[k] = w->sought[k].d, d_writes[k] = w->sought[heads + k].d;
  }
  for (int64_t i = 0; i < width; i++) {
    for (int64_t k = 0; k < heads; k++) erased[k] = gained[k] = (lanes){0};
    for (int64_t b = 0; b < wide; b++) {
      const lanes cell = memory[i * wide + b];
      lanes kept = 1 + (lanes){0}, added = {0}, d = d_memory[i * wide + b], left[heads];
      _Pragma("GCC unroll 4") for (int64_t k = 0; k < heads; k++) {
        left[k] = 1 - erase[k * width + i] * writes[k][b];
        kept *= left[k];
        added += add[k * width + i] * writes[k][b];
        d += d_read[k * width + i] * reads[k][b];
      }
      const lanes now = cell * kept + added;
      lanes before = d * cell;
      _Pragma("GCC unroll 4") for (int64_t k = 0; k < heads; k++) {
        lanes d_kept = before;
        _Pragma("GCC unroll 4") for (int64_t later = k + 1; later < heads; later++) d_kept *= left[later];
        before *= left[k];
        gained[k] += d * writes[k][b];
        erased[k] -= d_kept * writes[k][b];
        d_reads[k][b] += d_read[k * width + i] * now;
        d_writes[k][b] += add[k * width + i] * d - erase[k * width + i] * d_kept;
      }
      d_memory[i * wide + b] = d * kept;
    }
    for (int64_t k = 0; k < heads; k++) w->erase_sums[k * width + i] = erased[k], w->add_sums[k * width + i] = gained[k];
  }
}

// All gradients are written.
void turing_backward(const real *restrict d_weights, const real *restrict d_memories, const real *restrict d_reads,
                     const real *restrict asked, const real *restrict before, const real *restrict memory,
                     real *restrict d_asked, real *restrict d_before, real *restrict d_memory, const Sizes *at) {
  NEXT_TO_NOTHING_IS_NOTHING
  const Shape shape = shape_of(at->width, at->cells);
  const int64_t heads = at->heads, width = at->width, wide = shape.wide, whole = width * at->cells;
  const int64_t to_find = 2 * heads * of_head(at), written = heads * width;
  Work w;
  void *rooms = begin(&w, at, &shape);
  for (int64_t row = 0; row < at->machines; row++) {
    const real *restrict a = asked + row * of_all(at), *restrict add = a + to_find + written;
    const real *restrict d_read = d_reads + row * written;
    const int64_t first = row * 2 * heads * at->cells;
    address_all(&w, a, before + first, memory + row * whole, at, &shape);
    put_rows(d_memories + row * whole, width, at->cells, w.d_memory);
    for (int64_t k = 0; k < 2 * heads; k++) put_rows(d_weights + first + k * at->cells, 1, at->cells, w.sought[k].d);
    if (heads == 1)
      cells_back(1, &w, add, d_read, &shape);
    else if (heads == 4)
      cells_back(4, &w, add, d_read, &shape);
    else
      cells_back(heads, &w, add, d_read, &shape);
    real *restrict d_a = d_asked + row * of_all(at), *restrict d_write = d_a + to_find;
    for (int64_t i = 0; i < written; i += LANES) {
      const lanes of_erase = sums_within(w.erase_sums + i), of_add = sums_within(w.add_sums + i);
      const int64_t left = written - i < LANES ? written - i : LANES;
      for (int64_t j = 0; j < left; j++) {
        d_write[i + j] = of_erase[j] * w.erase[i + j] * (1 - w.erase[i + j]);
        d_write[written + i + j] = of_add[j];
      }
    }
    for (int64_t k = 0; k < 2 * heads; k++) {
      real *d_own = d_a + k * of_head(at);
      w.sought[k].d_key = d_own;
      address_back(&w.head[k], &w.sought[k], at, (real *)(w.room + wide + blocks(width)), d_before + first + k * at->cells,
                   d_own);
    }
    find_back(w.sought, 2 * heads, w.memory, w.inverse, &shape, w.d_memory, w.room);
    for (int64_t k = 0; k < 2 * heads; k++)
      d_a[k * of_head(at) + width] = w.sought[k].d_strength * sigmoid(a[k * of_head(at) + width]);
    take_rows(w.d_memory, width, at->cells, d_memory + row * whole);
  }
  end(&w, rooms);
}
