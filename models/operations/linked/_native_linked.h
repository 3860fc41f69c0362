// What a turn makes of a memory that knows which of its cells are free and in what order they were written:
// models/scans/linked_memory.py.
//
// One machine a row. A memory is `width` rows of its `cells`; links are a row for each cell, [n, m], of as many.

#include "_native_content.h"

typedef struct {
  int64_t machines, heads, cells, width;
} Sizes;

typedef struct {
  const real *asked, *memory, *usage, *write, *precedence, *link, *weight;
} Given;

// Rows of a number for each cell end with a vector, of zeros behind the last.
typedef struct {
  Shape shape, links;
  lanes *memory, *inverse, *now, *inverse_now, *linked, *sums;
  real *used;                // the usage after the last write, and then after each head set cells free
  real *sorted, *before;     // the usage in its order, and the products of those before each
  real *allocated, *written, *erase;
  real *freed, *mode;        // of each head: f, and the shares of back, content and forth
  real *weight, *precedence, *to, *back, *forth;
  int64_t *order;
  Sought *sought;            // of the write, then of each head
  lanes *rooms;
} Work;

static int64_t of_read(const Sizes *at) { return at->width + 5; }
static int64_t of_all(const Sizes *at) { return at->heads * of_read(at) + 3 * at->width + 3; }

static real strength_of(real x) { return 1 + softplus_from(x, exp_of(-(real)fabs(x))); }

static Work begin(const Sizes *at) {
  Work w = {.shape = shape_of(at->width, at->cells), .links = shape_of(at->cells, at->cells)};
  const int64_t wide = w.shape.wide, whole = at->width * wide, heads = at->heads;
  lanes *part[18];
  rooms_for(18,
            (int64_t[]){whole, wide, whole, wide, at->cells * wide, blocks(at->width), (heads + 1) * wide, wide, wide,
                        wide, wide, blocks(at->width), blocks(4 * heads), heads * wide, wide, heads * wide,
                        2 * heads * wide, 3 * (heads + 1) * wide},
            part);
  w.rooms = w.memory = part[0], w.inverse = part[1], w.now = part[2], w.inverse_now = part[3], w.linked = part[4];
  w.sums = part[5], w.used = (real *)part[6], w.sorted = (real *)part[7], w.before = (real *)part[8];
  w.allocated = (real *)part[9], w.written = (real *)part[10], w.erase = (real *)part[11], w.freed = (real *)part[12];
  w.mode = w.freed + heads, w.weight = (real *)part[13], w.precedence = (real *)part[14], w.to = (real *)part[15];
  w.back = (real *)part[16], w.forth = w.back + heads * wide * LANES;
  w.order = calloc(at->cells, sizeof(int64_t)), w.sought = malloc((heads + 1) * sizeof(Sought));
  for (int64_t k = 0; k <= heads; k++) {
    lanes *own = part[17] + 3 * k * wide;
    w.sought[k].dot = own, w.sought[k].found = own + wide, w.sought[k].d = own + 2 * wide;
  }
  return w;
}

static void end(Work *w) {
  free(w->rooms);
  free(w->order);
  free(w->sought);
}

static Given of_machine(const Given *all, int64_t row, const Sizes *at) {
  const int64_t cells = row * at->cells;
  return (Given){all->asked + row * of_all(at), all->memory + cells * at->width, all->usage + cells, all->write + cells,
                 all->precedence + cells,       all->link + cells * at->cells,   all->weight + cells * at->heads};
}

// How much of a write goes to each cell if all of it goes to free ones: a stable sort by counting, 16 cells at once.
static void allocate(Work *w, const real *restrict usage, const Sizes *at) {
  const int64_t cells = at->cells;
  integer rank[LANES];
  for (int64_t first = 0; first < cells; first += LANES) {
    const int64_t left = cells - first < LANES ? cells - first : LANES;
    memset(rank, 0, sizeof rank);
    for (int64_t m = 0; m < cells; m++) {
      const real other = usage[m];
      SIMD for (int64_t i = 0; i < LANES; i++) {
        const real own = usage[first + i];  // behind the last cell there is room
        rank[i] += (other < own) | ((other == own) & (m < first + i));
      }
    }
    for (int64_t i = 0; i < left; i++) w->order[rank[i]] = first + i;
  }
  real product = 1;
  for (int64_t i = 0; i < cells; i++) {
    const int64_t n = w->order[i];
    w->sorted[i] = usage[n], w->before[i] = product;
    w->allocated[n] = (1 - usage[n]) * product;
    product *= usage[n];
  }
}

static void write_down(Work *w, const Given *in, const real *restrict ask, const Sizes *at) {
  const int64_t cells = at->cells, wide = w->shape.wide;
  const real *restrict scalar = ask + 3 * at->width, *restrict vector = ask + 2 * at->width;
  const real *restrict found = (const real *)w->sought[0].found, *restrict free_cells = w->allocated;
  const real gate = sigmoid(scalar[1]), to_free = sigmoid(scalar[2]);
  real *restrict written = w->written;
  SIMD for (int64_t n = 0; n < cells; n++) written[n] = gate * (found[n] + to_free * (free_cells[n] - found[n]));
  SIMD for (int64_t i = 0; i < at->width; i++) w->erase[i] = sigmoid(ask[at->width + i]);
  const lanes *to = (const lanes *)written, *before = (const lanes *)w->precedence;
  for (int64_t i = 0; i < at->width; i++)
    for (int64_t b = 0; b < wide; b++)
      w->now[i * wide + b] = w->memory[i * wide + b] * (1 - w->erase[i] * to[b]) + vector[i] * to[b];
  for (int64_t n = 0; n < cells; n++) {
    lanes *row = w->linked + n * wide;
    for (int64_t b = 0; b < wide; b++)
      row[b] = block_of(in->link + n * cells, b, cells) * (1 - written[n] - to[b]) + written[n] * before[b];
    ((real *)row)[n] = 0;
  }
}

// All that the turn makes but for the precedence and what is read.
static void turn(Work *w, const Given *in, const Sizes *at) {
  const int64_t cells = at->cells, apart = w->shape.wide * LANES, heads = at->heads;
  const real *restrict ask = in->asked + heads * of_read(at), *restrict usage = in->usage, *restrict write = in->write;
  put_rows(in->memory, at->width, cells, w->memory);
  put_rows(in->weight, heads, cells, (lanes *)w->weight);
  put_rows(in->precedence, 1, cells, (lanes *)w->precedence);
  real *restrict used = w->used;
  SIMD for (int64_t n = 0; n < cells; n++) used[n] = usage[n] + write[n] - usage[n] * write[n];
  for (int64_t k = 0; k < heads; k++) {
    const real freed = w->freed[k] = sigmoid(in->asked[k * of_read(at) + at->width + 1]);
    const real *restrict last = w->used + k * apart, *restrict weight = w->weight + k * apart;
    real *restrict next = w->used + (k + 1) * apart;
    SIMD for (int64_t n = 0; n < cells; n++) next[n] = last[n] - last[n] * freed * weight[n];
  }
  allocate(w, w->used + heads * apart, at);
  w->sought[0].key = ask, w->sought[0].strength = strength_of(ask[3 * at->width]);
  one_by_lengths(w->memory, &w->shape, w->inverse);
  find(&w->sought[0], w->memory, w->inverse, &w->shape);
  write_down(w, in, ask, at);

  one_by_lengths(w->now, &w->shape, w->inverse_now);
  for (int64_t k = 0; k < heads; k++) {
    Sought *one = &w->sought[k + 1];
    real *restrict mode = w->mode + 3 * k, *restrict to = w->to + k * apart;
    real *restrict back = w->back + k * apart, *restrict forth = w->forth + k * apart;
    one->key = in->asked + k * of_read(at), one->strength = strength_of(one->key[at->width]);
    memcpy(mode, one->key + at->width + 2, 3 * sizeof(real));
    softmax_of(mode, 3);
    find(one, w->now, w->inverse_now, &w->shape);
    mixed_rows(w->weight + k * apart, w->linked, &w->links, (lanes *)back);
    dots_of_rows(w->linked, (const lanes *)(w->weight + k * apart), &w->links, (lanes *)forth);
    const real *restrict found = (const real *)one->found;
    SIMD for (int64_t n = 0; n < cells; n++) to[n] = mode[0] * back[n] + mode[1] * found[n] + mode[2] * forth[n];
  }
}

static real sum_over(const real *restrict x, int64_t count) {
  real sum = 0;
  _Pragma("omp simd reduction(+ : sum)") for (int64_t n = 0; n < count; n++) sum += x[n];
  return sum;
}
