/* LRN across the channels of NHWC images: y = x s^-beta with s = k + alpha * (the sum of the squares of the `size`
 * channels around). The squares of a position's channels are copied to a row of scratch, between zeros. Each window's
 * sum is then taken by `size` loads. No running sum goes from channel to channel, so no rounding accumulates.
 */
#include <math.h>
#include <omp.h>

#include "mirrored.h"
#include "pieces.h"

typedef struct {
    int64_t positions, c, size, threads;
    float alpha; /* the factor of each square: Caffe's alpha / size */
    float beta, k;
} Geometry;
MIRRORED(lrn, Geometry)

/* Floats of a row of scratch: size / 2 zeros, the channels, and zeros as far as the windows of a last vector reach. */
static int64_t row_floats(const Geometry *g) { return up(g->c, LANES) + g->size + LANES; }
enum { ROWS = 3, AT_ONCE = 16 /* positions */ };

int64_t lrn_bytes(const Geometry *g) { return 4 * ROWS * row_floats(g) * g->threads; }

static int several(const Geometry *g) { return g->positions * g->c > ALONE / 4; }

ALWAYS vec root(vec v) {
    for (int j = 0; j < LANES; j++) v[j] = sqrtf(v[j]);
    return v;
}

/* s^-beta; r is 1 / s. `roots`: beta is 0.75, as in AlexNet and GoogLeNet, so two square roots will do. */
ALWAYS vec power(vec s, vec r, float beta, const int roots) {
    if (roots) {
        const vec half = root(r);
        return half * root(half);
    }
    for (int j = 0; j < LANES; j++) s[j] = powf(s[j], -beta);
    return s;
}

/* In each lane the sum of `size` floats, from that lane's on. */
ALWAYS vec windows(const float *p, int64_t size) {
    vec sum = load(p);
    if (size == 5) /* the usual size, as a constant for the compiler */
        for (int i = 1; i < 5; i++) sum += load(p + i);
    else
        for (int64_t i = 1; i < size; i++) sum += load(p + i);
    return sum;
}

/* Writes the squares of x's channels to their row. */
ALWAYS void squares(const Geometry *g, const float *x, float *row) {
    for (int64_t c = 0; c < g->c; c += LANES) {
        const vec v = load_some(x + c, g->c - c);
        store(row + g->size / 2 + c, v * v);
    }
}

ALWAYS vec sums(const Geometry *g, const float *row, int64_t c) { return g->k + g->alpha * windows(row + c, g->size); }

ALWAYS void forward(const Geometry *g, const float *x, int past, float *y, float *row, const int roots) {
    squares(g, x, row);
    for (int64_t c = 0; c < g->c; c += LANES) {
        const vec s = sums(g, row, c);
        put(y + c, load_some(x + c, g->c - c) * power(s, 1 / s, g->beta, roots), g->c - c, past);
    }
}

/* dx = dy s^-beta - 2 alpha beta x (the sum over the window of dy x s^(-beta - 1)) */
ALWAYS void backward(const Geometry *g, const float *x, const float *dy, int past, float *dx, float *row,
                     const int roots) {
    float *terms = row + row_floats(g), *first = terms + row_floats(g);
    squares(g, x, row);
    for (int64_t c = 0; c < g->c; c += LANES) {
        const vec s = sums(g, row, c), r = 1 / s;
        const vec direct = load_some(dy + c, g->c - c) * power(s, r, g->beta, roots);
        store(first + c, direct);
        store_some(terms + g->size / 2 + c, direct * load_some(x + c, g->c - c) * r, g->c - c);
    }
    const float factor = 2 * g->alpha * g->beta;
    for (int64_t c = 0; c < g->c; c += LANES) {
        const vec v = factor * load_some(x + c, g->c - c) * windows(terms + c, g->size);
        put(dx + c, load(first + c) - v, g->c - c, past);
    }
}

/* Processes positions [from, to) with this thread's rows of scratch; forward if dy is null. (The geometry is copied,
 * since a compiler must assume that writes to `out` change the original.) */
static void positions(const Geometry *given, int64_t from, int64_t to, const float *x, const float *dy, int past,
                      float *out, float *workspace) {
    const Geometry here = *given, *g = &here;
    float *row = workspace + omp_get_thread_num() * ROWS * row_floats(g);
    memset(row, 0, 4 * ROWS * row_floats(g));
    const int roots = g->beta == 0.75f;
    for (int64_t at = from * g->c; at < to * g->c; at += g->c) {
        if (dy)
            roots ? backward(g, x + at, dy + at, past, out + at, row, 1)
                  : backward(g, x + at, dy + at, past, out + at, row, 0);
        else
            roots ? forward(g, x + at, past, out + at, row, 1) : forward(g, x + at, past, out + at, row, 0);
    }
}

static void all_positions(const Geometry *g, const float *x, const float *dy, float *out, float *workspace) {
    const int past = out != x && out != dy && goes_past(out, g->positions, g->c);
#pragma omp parallel num_threads(g->threads) if (several(g))
    {
#pragma omp for schedule(static)
        for (int64_t i = 0; i < g->positions; i += AT_ONCE)
            positions(g, i, at_most(g->positions, i + AT_ONCE), x, dy, past, out, workspace);
        if (past) stored_past();
    }
}

void lrn_forward(const Geometry *g, const float *x, float *y, float *workspace) {
    all_positions(g, x, NULL, y, workspace);
}

void lrn_backward(const Geometry *g, const float *x, const float *dy, float *dx, float *workspace) {
    all_positions(g, x, dy, dx, workspace);
}
