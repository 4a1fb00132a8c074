/* A few numbers for each row: its sum, or its largest elements.
 *
 * Element k of row (o, i) lies at (o * length + k) * inner + i, and so does number j of its result, of `top` numbers.
 */
#include <math.h>

#include "mirrored.h"
#include "pieces.h"

enum { SUM, ASUM, SUMSQ };

typedef struct {
    int64_t outer, length, inner, threads;
    int64_t operation;         /* of a sum */
    int64_t top, value, place; /* of the largest: how many, whether their values, and whether their places are wanted */
    int64_t along, apart;      /* from one of the largest to the next, and from a place to its value */
    double coeff;
} Geometry;
MIRRORED(summary, Geometry)

enum { SOME = 1024 }; /* elements of a row whose sum is taken in float32, lane by lane */

ALWAYS vec term(const Geometry *g, vec v) {
    return g->operation == SUMSQ ? v * v : g->operation == ASUM ? choose(v < 0, -v, v) : v;
}

/* The sum of a row that is one piece of memory. */
static float sum_of_row(const Geometry *g, const float *x) {
    double sum = 0;
    for (int64_t from = 0; from < g->length; from += SOME) {
        const int64_t to = at_most(from + SOME, g->length);
        vec part = {0};
        for (int64_t k = from; k < to; k += LANES) part += term(g, load_some(x + k, to - k));
        for (int j = 0; j < LANES; j++) sum += part[j];
    }
    return (float)(sum * g->coeff);
}

/* The sums of n rows side by side. */
static void sum_of_rows(const Geometry *g, int64_t n, const float *x, float *y) {
    double sum[LANES] = {0};
    for (int64_t from = 0; from < g->length; from += SOME / LANES) {
        vec part = {0};
        for (int64_t k = from; k < at_most(from + SOME / LANES, g->length); k++)
            part += term(g, load_some(x + k * g->inner, n));
        for (int j = 0; j < LANES; j++) sum[j] += part[j];
    }
    for (int64_t j = 0; j < n; j++) y[j] = (float)(sum[j] * g->coeff);
}

/* x -> y */
void summary_sum(const Geometry *g, const float *x, float *y) {
    const int64_t blocks = up(g->inner, LANES) / LANES;
#pragma omp parallel for schedule(static) num_threads(g->threads) if (g->outer * g->length * g->inner > ALONE)
    for (int64_t item = 0; item < g->outer * blocks; item++) {
        const int64_t o = item / blocks, i = item % blocks * LANES;
        const float *from = x + o * g->length * g->inner + i;
        if (g->inner == 1)
            y[o] = sum_of_row(g, from);
        else
            sum_of_rows(g, at_most(LANES, g->inner - i), from, y + o * g->inner + i);
    }
}

ALWAYS float slope(const Geometry *g, float x) {
    return g->operation == SUMSQ ? 2 * x : isnan(x) ? x : (float)(x > 0) - (float)(x < 0);
}

/* (x) dy -> dx, which may be x */
void summary_sum_gradient(const Geometry *g, const float *x, const float *dy, float *dx) {
    const float coeff = (float)g->coeff;
    const int64_t lines = g->outer * g->length, n = g->inner == 1 ? g->length : g->inner;
#pragma omp parallel for schedule(static) num_threads(g->threads) if (lines * g->inner > ALONE)
    for (int64_t r = 0; r < (g->inner == 1 ? g->outer : lines); r++) {
        const float *from = x + r * n, *of = g->inner == 1 ? dy + r : dy + r / g->length * g->inner;
        float *to = dx + r * n;
        for (int64_t k = 0; k < n; k++) {
            const float d = coeff * of[g->inner == 1 ? 0 : k];
            to[k] = g->operation == SUM ? d : d * slope(g, from[k]);
        }
    }
}

/* Whether element (x, k) comes before (y, j): it is larger, or equal and has the higher place. NaN is the largest. */
ALWAYS int before(float x, int64_t k, float y, int64_t j) {
    if (isnan(x) || isnan(y)) return isnan(x) && (!isnan(y) || k > j);
    return x > y || (x == y && k > j);
}

/* x -> y: one of the largest after another, each the first of all that come behind the one before. */
void summary_largest(const Geometry *g, const float *x, float *y) {
#pragma omp parallel for schedule(static) num_threads(g->threads) if (g->outer * g->length * g->inner > ALONE / 4)
    for (int64_t r = 0; r < g->outer * g->inner; r++) {
        const int64_t o = r / g->inner, i = r % g->inner;
        const float *row = x + o * g->length * g->inner + i;
        float *to = y + o * g->top * (g->place + g->value) * g->inner + i;
        float last = NAN;
        int64_t behind = g->length; /* the place of the last one found; nothing comes before it at first */
        for (int64_t j = 0; j < g->top; j++) {
            int64_t found = -1;
            float best = 0;
            for (int64_t k = 0; k < g->length; k++) {
                const float v = row[k * g->inner];
                if (before(last, behind, v, k) && (found < 0 || before(v, k, best, found))) best = v, found = k;
            }
            last = best, behind = found;
            if (g->place) to[j * g->along] = (float)found;
            if (g->value) to[j * g->along + (g->place ? g->apart : 0)] = best;
        }
    }
}
