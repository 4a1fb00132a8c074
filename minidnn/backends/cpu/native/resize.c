/* Images in another size. Along an axis, place i of y lies i * step / over pixels behind pixel `begin` of x: at a pixel,
 * or between two. Both count by their nearness, even if that is 0; the pixel `last` is its own neighbour. With `whole`
 * the pixel at or before the place is taken. Backward gathers: a pixel of dx is the sum over the places that took from
 * it, in their order. Vectors are over channels.
 */
#include "channels.h"
#include "mirrored.h"
#include "pieces.h"

typedef struct {
    int64_t n, c;
    int64_t h, w;   /* of x */
    int64_t oh, ow; /* of y */
    int64_t step_h, step_w, over_h, over_w, begin_h, begin_w;
    int64_t last_h, last_w, whole, threads;
} Geometry;
MIRRORED(resize, Geometry)

typedef struct {
    int64_t step, over, begin, last, out, whole;
} Axis;

static Axis axis_h(const Geometry *g) {
    return (Axis){g->step_h, g->over_h, g->begin_h, g->last_h, g->oh, g->whole};
}
static Axis axis_w(const Geometry *g) {
    return (Axis){g->step_w, g->over_w, g->begin_w, g->last_w, g->ow, g->whole};
}

/* The pixel at or before a place, how many pixels its neighbour is further on, and how much that counts: below 0 if it
 * is not taken at all. */
typedef struct {
    int64_t pixel, next;
    float behind;
} Where;

ALWAYS Where where(Axis a, int64_t i) {
    const int64_t at = i * a.step, rest = at % a.over, pixel = a.begin + at / a.over;
    return (Where){pixel, pixel < a.last, a.whole ? -1 : (float)((double)rest / (double)a.over)};
}

ALWAYS vec blend(const float *p, int64_t apart, float behind, int64_t n) {
    const vec here = load_some(p, n);
    return behind >= 0 ? (1 - behind) * here + behind * load_some(p + apart, n) : here;
}

ALWAYS void place(const Geometry *g, const float *line, Where r, Where q, int past, float *y, int64_t c, const int many,
                  int64_t lanes) {
    const float *pixel = line + q.pixel * g->c + c;
    for (int v = 0; v < many; v++) {
        vec found = blend(pixel + v * LANES, q.next * g->c, q.behind, lanes);
        if (r.behind >= 0)
            found = (1 - r.behind) * found +
                    r.behind * blend(pixel + r.next * g->w * g->c + v * LANES, q.next * g->c, q.behind, lanes);
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

/* With `whole` no place before the pixel takes from it. Else those do that lie at or behind the pixel before. */
ALWAYS Range takers(Axis a, int64_t pixel) {
    return (Range){first_at(a, a.whole ? pixel : pixel - 1), first_at(a, pixel + 1)};
}

/* How much place i took from a pixel: below 0 if it did not. `twice`: also as its own neighbour, which counts 0. */
typedef struct {
    float part;
    int twice;
} Share;

ALWAYS Share share(Axis a, int64_t i, int64_t pixel) {
    const Where w = where(a, i);
    if (w.pixel == pixel) return w.behind < 0 ? (Share){1, 0} : (Share){1 - w.behind, !w.next};
    return (Share){w.next && w.pixel + 1 == pixel ? w.behind : -1, 0};
}

ALWAYS void pixel_of(const Geometry *g, const float *image, Range rows, int64_t row, Range columns, int64_t column,
                     int past, float *dx, int64_t c, const int many, int64_t lanes) {
    vec sum[4];
    for (int v = 0; v < many; v++) sum[v] = (vec){0};
    for (int64_t i = rows.from; i < rows.to; i++) {
        const Share down = share(axis_h(g), i, row);
        if (down.part < 0) continue;
        for (int64_t j = columns.from; j < columns.to; j++) {
            const Share along = share(axis_w(g), j, column);
            if (along.part < 0) continue;
            const float part = down.part * along.part;
            const int twice = down.twice || along.twice;
            for (int v = 0; v < many; v++) {
                const vec from = load_some(image + (i * g->ow + j) * g->c + c + v * LANES, lanes);
                sum[v] += part * from;
                if (twice) sum[v] += 0 * from;
            }
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
