/* A factor or a constant that spans some axes of a tensor, and sums over the others.
 *
 * A tensor has dimensions in the order of memory. The smaller one has a step for each: 0 if it is the same along the
 * dimension. For a sum, the dimensions with a step are `kept`, the others `summed`. Sums are taken in pieces of the
 * summed places, and the pieces in their order. They depend on sizes alone.
 */
#include "mirrored.h"
#include "pieces.h"

enum { DIMS = 6 };

typedef struct {
    int64_t size[DIMS], step[DIMS]; /* the innermost last; unused ones, of size 1, first */
    int64_t pieces, threads;
} Geometry;
MIRRORED(broadcast, Geometry)

static int64_t places(const Geometry *g) {
    int64_t n = 1;
    for (int d = 0; d < DIMS; d++) n *= g->size[d];
    return n;
}

/* The place that number i of `count` dimensions of these sizes has by these steps. */
ALWAYS int64_t at(int count, const int64_t *size, const int64_t *step, int64_t i) {
    int64_t place = 0;
    for (int d = count - 1; d > 0; d--) {
        if (size[d] == 1) continue;
        place += i % size[d] * step[d];
        i /= size[d];
    }
    return count ? place + i * step[0] : 0;
}

/* LANES elements of the smaller tensor; `fill` if there is none. */
ALWAYS vec elements(const float *f, int64_t k, int64_t n, int64_t step, float fill) {
    if (f && step == 1) return load_some(f + k, n);
    vec v;
    for (int j = 0; j < LANES; j++) v[j] = f ? f[j < n ? (k + j) * step : 0] : fill;
    return v;
}

ALWAYS void affine(int64_t n, const float *x, const float *f, const float *b, int64_t step, float *y) {
    const vec factor = elements(f, 0, 1, 0, 1), constant = elements(b, 0, 1, 0, 0);
    for (int64_t k = 0; k < n; k += LANES) {
        vec v = load_some(x + k, n - k);
        if (f) v *= step ? elements(f, k, n - k, step, 1) : factor;
        if (b) v += step ? elements(b, k, n - k, step, 0) : constant;
        store_some(y + k, v, n - k);
    }
}

/* x f b -> y = x f + b, without f or b if it is null; y may be x */
void broadcast_affine(const Geometry *g, const float *x, const float *f, const float *b, float *y) {
    const int64_t all = places(g), width = g->size[DIMS - 1], step = g->step[DIMS - 1], rows = all / width;
    const int64_t cut = rows < 64 ? PIECE : width, parts = up(width, cut) / cut;
    const int64_t at_once = up(PIECE, cut) / cut;
#pragma omp parallel for num_threads(g->threads) schedule(static) if (all > ALONE)
    for (int64_t i = 0; i < rows * parts; i += at_once)
        for (int64_t part = i; part < at_most(rows * parts, i + at_once); part++) {
            const int64_t row = part / parts, k = part % parts * cut, to = at(DIMS - 1, g->size, g->step, row) + k * step;
            affine(at_most(cut, width - k), x + row * width + k, f ? f + to : 0, b ? b + to : 0, step,
                   y + row * width + k);
        }
}

/* The dimensions of one sort: sizes, steps in x, and steps in the smaller tensor; the innermost last. */
typedef struct {
    int count;
    int64_t size[DIMS], of_x[DIMS], of_f[DIMS], all;
} Part;

static Part part(const Geometry *g, int kept) {
    Part p = {.all = 1};
    int64_t of_x = places(g);
    for (int d = 0; d < DIMS; d++) {
        of_x /= g->size[d];
        if (g->size[d] == 1 || (g->step[d] != 0) != kept) continue;
        p.size[p.count] = g->size[d], p.of_x[p.count] = of_x, p.of_f[p.count++] = g->step[d];
        p.all *= g->size[d];
    }
    return p;
}

int64_t broadcast_sum_bytes(const Geometry *g) {
    const Part kept = part(g, 1);
    return 4 * g->pieces * kept.all;
}

enum { ROW = 128 }; /* places that are added in float32 before they go to a sum in float64 */

ALWAYS vec add_some(const Part *summed, int64_t from, int64_t to, const float *x, const float *dy, int64_t n) {
    vec sum = {0};
    for (int64_t i = from; i < to; i++) {
        const int64_t place = at(summed->count, summed->size, summed->of_x, i);
        const vec d = load_some(dy + place, n);
        sum += x ? load_some(x + place, n) * d : d;
    }
    return sum;
}

/* sum[j] = the sum over the summed places [from, to) of the n elements side by side at x, or of their products. */
ALWAYS void add_lanes(const Part *summed, int64_t from, int64_t to, const float *x, const float *dy, int64_t n,
                      float *sum) {
    if (to - from <= ROW) {
        store_some(sum, add_some(summed, from, to, x, dy, n), n);
        return;
    }
    double total[LANES] = {0};
    for (int64_t r = from; r < to; r += ROW) {
        const vec some = add_some(summed, r, at_most(to, r + ROW), x, dy, n);
        for (int j = 0; j < LANES; j++) total[j] += some[j];
    }
    for (int64_t j = 0; j < n && j < LANES; j++) sum[j] = total[j];
}

/* The same for one element, whose summed places lie side by side in runs. */
ALWAYS float add_runs(const Part *summed, int64_t from, int64_t to, const float *x, const float *dy) {
    const int64_t run = summed->size[summed->count - 1];
    double total = 0;
    for (int64_t i = from; i < to;) {
        const int64_t n = at_most(at_most(to - i, run - i % run), ROW * LANES), place = at(summed->count, summed->size, summed->of_x, i);
        vec some = {0};
        for (int64_t k = 0; k < n; k += LANES) {
            const vec d = load_some(dy + place + k, n - k);
            some += x ? load_some(x + place + k, n - k) * d : d;
        }
        for (int j = 0; j < LANES; j++) total += some[j];
        i += n;
    }
    return total;
}

/* (x) dy -> df: sums of dy, or of x dy unless x is null */
void broadcast_sum(const Geometry *g, const float *x, const float *dy, float *df, float *workspace) {
    const Part kept = part(g, 1), summed = part(g, 0);
    const int side_by_side = kept.count && kept.of_x[kept.count - 1] == 1; /* elements of df, and not summed places */
    const int64_t row = side_by_side ? kept.size[kept.count - 1] : 1, width = side_by_side ? LANES : 1;
    const int64_t blocks = up(row, width) / width, items = kept.all / row * blocks;
#pragma omp parallel num_threads(g->threads) if (places(g) > ALONE)
    {
#pragma omp for schedule(static)
        for (int64_t i = 0; i < g->pieces * items; i++) {
            const int64_t piece = i / items, k = i % items / blocks * row + i % blocks * width;
            const int64_t from = piece * summed.all / g->pieces, to = (piece + 1) * summed.all / g->pieces;
            const int64_t place = at(kept.count, kept.size, kept.of_x, k);
            float *sum = workspace + piece * kept.all + k;
            if (side_by_side)
                add_lanes(&summed, from, to, x ? x + place : 0, dy + place, row - i % blocks * width, sum);
            else if (summed.count)
                *sum = add_runs(&summed, from, to, x ? x + place : 0, dy + place);
            else
                *sum = x ? x[place] * dy[place] : dy[place]; /* the tensor has one element */
        }
#pragma omp for schedule(static)
        for (int64_t k = 0; k < kept.all; k++) {
            double total = 0;
            for (int64_t piece = 0; piece < g->pieces; piece++) total += workspace[piece * kept.all + k];
            df[at(kept.count, kept.size, kept.of_f, k)] = total;
        }
    }
}
