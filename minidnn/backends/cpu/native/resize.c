/* Images in another size. Along an axis, place i of y lies i * step / over pixels behind pixel `begin` of x: at a pixel,
 * or between two, which then count by their nearness. With `nearest` the pixel at or before it is taken. Backward
 * gathers: a pixel of dx is the sum over the places that took from it, in their order. Vectors are over channels.
 */
#include "channels.h"
#include "mirrored.h"
#include "pieces.h"

typedef struct {
    int64_t n, c;
    int64_t h, w;   /* of x */
    int64_t oh, ow; /* of y */
    int64_t step_h, step_w, over_h, over_w, begin_h, begin_w;
    int64_t nearest, threads;
} Geometry;
MIRRORED(resize, Geometry)

typedef struct {
    int64_t step, over, begin, out, nearest;
} Axis;

static Axis axis_h(const Geometry *g) { return (Axis){g->step_h, g->over_h, g->begin_h, g->oh, g->nearest}; }
static Axis axis_w(const Geometry *g) { return (Axis){g->step_w, g->over_w, g->begin_w, g->ow, g->nearest}; }

/* The pixel at or before a place, and how much of the next pixel counts: none if `behind` is 0. */
typedef struct {
    int64_t pixel;
    float behind;
} Where;

ALWAYS Where where(Axis a, int64_t i) {
    const int64_t at = i * a.step, rest = at % a.over;
    return (Where){a.begin + at / a.over, a.nearest ? 0 : (float)((double)rest / (double)a.over)};
}

ALWAYS vec blend(const float *p, int64_t apart, float behind, int64_t n) {
    const vec here = load_some(p, n);
    return behind > 0 ? (1 - behind) * here + behind * load_some(p + apart, n) : here;
}

ALWAYS void place(const Geometry *g, const float *line, Where r, Where q, int past, float *y, int64_t c, const int many,
                  int64_t lanes) {
    const float *pixel = line + q.pixel * g->c + c;
    for (int v = 0; v < many; v++) {
        vec found = blend(pixel + v * LANES, g->c, q.behind, lanes);
        if (r.behind > 0)
            found = (1 - r.behind) * found +
                    r.behind * blend(pixel + g->w * g->c + v * LANES, g->c, q.behind, lanes);
        put(y + c + v * LANES, found, lanes, past);
    }
}

static void line_of(const Geometry *given, const float *x, int past, float *y, int64_t line) {
    const Geometry here = *given, *g = &here; /* a compiler must assume that writes to y change the original */
    const Where r = where(axis_h(g), line % g->oh);
    const float *row = x + (line / g->oh * g->h + r.pixel) * g->w * g->c;
    for (int64_t i = 0; i < g->ow; i++)
        ALL_CHANNELS(4, g->c, place, g, row, r, where(axis_w(g), i), past, y + (line * g->ow + i) * g->c);
}

void resize_forward(const Geometry *g, const float *x, float *y) {
    const int past = goes_past(y, g->n * g->oh * g->ow, g->c);
#pragma omp parallel num_threads(g->threads) if (g->n * g->oh * g->ow * g->c > ALONE)
    {
#pragma omp for schedule(static)
        for (int64_t line = 0; line < g->n * g->oh; line++) line_of(g, x, past, y, line);
        if (past) stored_past();
    }
}

/* The places [from, to) that take from a pixel. */
typedef struct {
    int64_t from, to;
} Range;

/* The first place at or behind a pixel. */
ALWAYS int64_t first_at(Axis a, int64_t pixel) {
    const int64_t before = pixel - a.begin;
    if (before <= 0) return 0;
    const int64_t i = a.step ? (before * a.over + a.step - 1) / a.step : a.out;
    return at_most(a.out, i);
}

/* With `nearest` no place before the pixel takes from it. Else those do that lie behind the pixel before; the first of
 * these may lie at that pixel, and takes nothing from this one. */
ALWAYS Range takers(Axis a, int64_t pixel) {
    return (Range){first_at(a, a.nearest ? pixel : pixel - 1), first_at(a, pixel + 1)};
}

ALWAYS float share(Axis a, int64_t i, int64_t pixel) {
    const Where w = where(a, i);
    return w.pixel == pixel ? 1 - w.behind : w.pixel + 1 == pixel ? w.behind : 0;
}

ALWAYS void pixel_of(const Geometry *g, const float *image, Range rows, int64_t row, Range columns, int64_t column,
                     int past, float *dx, int64_t c, const int many, int64_t lanes) {
    vec sum[4];
    for (int v = 0; v < many; v++) sum[v] = (vec){0};
    for (int64_t i = rows.from; i < rows.to; i++) {
        const float down = share(axis_h(g), i, row);
        if (down == 0) continue;
        for (int64_t j = columns.from; j < columns.to; j++) {
            const float part = down * share(axis_w(g), j, column);
            if (part == 0) continue;
            for (int v = 0; v < many; v++)
                sum[v] += part * load_some(image + (i * g->ow + j) * g->c + c + v * LANES, lanes);
        }
    }
    for (int v = 0; v < many; v++) put(dx + c + v * LANES, sum[v], lanes, past);
}

static void gather_line(const Geometry *given, const float *dy, int past, float *dx, int64_t line) {
    const Geometry here = *given, *g = &here;
    const int64_t row = line % g->h;
    const Range rows = takers(axis_h(g), row);
    const float *image = dy + line / g->h * g->oh * g->ow * g->c;
    for (int64_t column = 0; column < g->w; column++)
        ALL_CHANNELS(4, g->c, pixel_of, g, image, rows, row, takers(axis_w(g), column), column, past,
                     dx + (line * g->w + column) * g->c);
}

void resize_backward(const Geometry *g, const float *dy, float *dx) {
    const int past = goes_past(dx, g->n * g->h * g->w, g->c);
#pragma omp parallel num_threads(g->threads) if (g->n * (g->h * g->w + g->oh * g->ow) * g->c > ALONE)
    {
#pragma omp for schedule(static)
        for (int64_t line = 0; line < g->n * g->h; line++) gather_line(g, dy, past, dx, line);
        if (past) stored_past();
    }
}
