/* Pooling of NHWC images with Caffe's windows, which may reach over the edges. Vectors are over channels. Backward
 * gathers: each pixel of dx is the sum over the windows that contain it, in the order in which the reference adds. So
 * it is one pass, and no thread waits for another.
 *
 * An index is a maximum's place in its window, counted row by row in the whole window even if it is clipped. It is a
 * byte, or an int32 for windows of more than 256 places. NaN counts as the largest value, and the last NaN wins; of
 * equal values the first wins.
 */
#include <math.h>

#include "bytes.h"
#include "channels.h"
#include "mirrored.h"
#include "pieces.h"

typedef struct {
    int64_t n, c;
    int64_t h, w;   /* of x */
    int64_t oh, ow; /* of y */
    int64_t kh, kw, sh, sw, ph, pw;
    int64_t wide; /* whether an index is an int32 */
    int64_t threads;
} Geometry;
MIRRORED(pooling, Geometry)

static int large(const Geometry *g) { return g->n * g->h * g->w * g->c > ALONE; }

ALWAYS int64_t at_least(int64_t least, int64_t n) { return n > least ? n : least; }

/* LANES places from the i-th on, of which the first n exist (the others are 0). */
ALWAYS bits load_places(const void *index, int64_t i, int64_t n, const int wide) {
    if (wide) return (bits)load_some((const float *)index + i, n);
    if (n >= LANES) return widened((const uint8_t *)index + i);
    uint8_t some[LANES] = {0};
    memcpy(some, (const uint8_t *)index + i, n);
    return widened(some);
}

ALWAYS void store_places(void *index, int64_t i, bits places, int64_t n, const int wide) {
    if (wide) {
        store_some((float *)index + i, (vec)places, n);
        return;
    }
    if (n >= LANES) {
        narrowed((uint8_t *)index + i, places);
        return;
    }
    uint8_t some[LANES];
    narrowed(some, places);
    memcpy((uint8_t *)index + i, some, n);
}

/* A window on its image. It begins at (row, column), perhaps outside of the image; its part on the image is rows [top,
 * bottom) and columns [left, right). */
typedef struct {
    int64_t row, column, top, bottom, left, right;
} Window;

ALWAYS Window window(const Geometry *g, int64_t row, int64_t column) {
    const int64_t y = row * g->sh - g->ph, x = column * g->sw - g->pw;
    return (Window){y, x, at_least(0, y), at_most(g->h, y + g->kh), at_least(0, x), at_most(g->w, x + g->kw)};
}

/* The divisor of an average: the places of the window clipped to the image with its padding, not to the image. */
ALWAYS int64_t places(const Geometry *g, int64_t row, int64_t column) {
    const int64_t y = row * g->sh - g->ph, x = column * g->sw - g->pw;
    return (at_most(y + g->kh, g->h + g->ph) - y) * (at_most(x + g->kw, g->w + g->pw) - x);
}

ALWAYS void maximum(const Geometry *g, const float *image, Window o, float *y, void *index, int64_t at, const int wide,
                    int64_t c, const int many, int64_t lanes) {
    vec best[4];
    bits where[4];
    for (int v = 0; v < many; v++) best[v] = (vec){0} - INFINITY, where[v] = (bits){0};
    for (int64_t r = o.top; r < o.bottom; r++)
        for (int64_t q = o.left; q < o.right; q++) {
            const float *pixel = image + (r * g->w + q) * g->c + c;
            const bits place = (bits){0} + (int32_t)((r - o.row) * g->kw + q - o.column);
            for (int v = 0; v < many; v++) {
                const vec x = load_some(pixel + v * LANES, lanes);
                const bits larger = (x > best[v]) | (x != x);
                best[v] = choose(larger, x, best[v]);
                where[v] = (place & larger) | (where[v] & ~larger);
            }
        }
    for (int v = 0; v < many; v++) {
        store_some(y + at + c + v * LANES, best[v], lanes);
        if (index) store_places(index, at + c + v * LANES, where[v], lanes, wide);
    }
}

/* Computes a line of y. (Here and below the geometry is copied, since a compiler must assume that writes to y change
 * the original.) */
static void maxima(const Geometry *given, const float *x, float *y, void *index, int64_t line) {
    const Geometry here = *given, *g = &here;
    const float *image = x + line / g->oh * g->h * g->w * g->c;
    const int64_t row = line % g->oh;
    for (int64_t column = 0; column < g->ow; column++) {
        const Window o = window(g, row, column);
        const int64_t at = (line * g->ow + column) * g->c;
        if (g->wide)
            ALL_CHANNELS(4, g->c, maximum, g, image, o, y, index, at, 1);
        else
            ALL_CHANNELS(4, g->c, maximum, g, image, o, y, index, at, 0);
    }
}

/* x -> y, and the index unless it is null. */
void pooling_maximum(const Geometry *g, const float *x, float *y, void *index) {
#pragma omp parallel for num_threads(g->threads) schedule(static) if (large(g))
    for (int64_t line = 0; line < g->n * g->oh; line++) maxima(g, x, y, index, line);
}

ALWAYS void average(const Geometry *g, const float *image, Window o, float count, float *y, int64_t c, const int many,
                    int64_t lanes) {
    vec sum[4];
    for (int v = 0; v < many; v++) sum[v] = (vec){0};
    for (int64_t r = o.top; r < o.bottom; r++)
        for (int64_t q = o.left; q < o.right; q++)
            for (int v = 0; v < many; v++)
                sum[v] += load_some(image + (r * g->w + q) * g->c + c + v * LANES, lanes);
    for (int v = 0; v < many; v++) store_some(y + c + v * LANES, sum[v] / count, lanes);
}

static void averages(const Geometry *given, const float *x, float *y, int64_t line) {
    const Geometry here = *given, *g = &here;
    const float *image = x + line / g->oh * g->h * g->w * g->c;
    const int64_t row = line % g->oh;
    for (int64_t column = 0; column < g->ow; column++) {
        const Window o = window(g, row, column);
        const float count = (float)places(g, row, column);
        ALL_CHANNELS(4, g->c, average, g, image, o, count, y + (line * g->ow + column) * g->c);
    }
}

void pooling_average(const Geometry *g, const float *x, float *y) {
#pragma omp parallel for num_threads(g->threads) schedule(static) if (large(g))
    for (int64_t line = 0; line < g->n * g->oh; line++) averages(g, x, y, line);
}

/* The windows, along one axis, that contain position `at`: from `last` down to `first`. In `last` the position is
 * nearest to the window's beginning. */
typedef struct {
    int64_t last, first;
} Meets;

ALWAYS Meets meets(int64_t at, int64_t pad, int64_t kernel, int64_t stride, int64_t out) {
    const int64_t over = at + pad - kernel; /* a window that begins here, in padded positions, just misses `at` */
    return (Meets){at_most(out - 1, (at + pad) / stride), over < 0 ? 0 : over / stride + 1};
}

/* The same for position `at`, from those of the position before, without a division. */
ALWAYS Meets stepped(Meets m, int64_t at, int64_t pad, int64_t kernel, int64_t stride, int64_t out) {
    m.last += m.last + 1 < out && (m.last + 1) * stride <= at + pad;
    m.first += m.first * stride + kernel <= at + pad;
    return m;
}

ALWAYS void from_maxima(const Geometry *g, const void *index, const float *y, const float *dy, int64_t image, Meets rows,
                        Meets columns, int64_t row, int64_t column, int past, float *dx, const int wide,
                        int64_t c, const int many, int64_t lanes) {
    vec sum[4];
    bits positive[4];
    for (int v = 0; v < many; v++) sum[v] = (vec){0}, positive[v] = (bits){0};
    for (int64_t r = rows.last; r >= rows.first; r--)
        for (int64_t q = columns.last; q >= columns.first; q--) {
            const int64_t at = ((image * g->oh + r) * g->ow + q) * g->c + c;
            const int32_t here = (int32_t)((row + g->ph - r * g->sh) * g->kw + column + g->pw - q * g->sw);
            for (int v = 0; v < many; v++) {
                const bits chosen = load_places(index, at + v * LANES, lanes, wide) == here;
                sum[v] += (vec)((bits)load_some(dy + at + v * LANES, lanes) & chosen);
                if (y) positive[v] |= chosen & (load_some(y + at + v * LANES, lanes) > 0);
            }
        }
    for (int v = 0; v < many; v++)
        put(dx + c + v * LANES, y ? choose(positive[v], sum[v], sum[v] - sum[v]) : sum[v], lanes, past);
}

static void line_from_maxima(const Geometry *given, const void *index, const float *y, const float *dy, int past,
                             float *dx, int64_t line) {
    const Geometry here = *given, *g = &here;
    const int64_t image = line / g->h, row = line % g->h;
    const Meets rows = meets(row, g->ph, g->kh, g->sh, g->oh);
    Meets columns = meets(0, g->pw, g->kw, g->sw, g->ow);
    for (int64_t column = 0; column < g->w; column++) {
        if (column) columns = stepped(columns, column, g->pw, g->kw, g->sw, g->ow);
        float *to = dx + (line * g->w + column) * g->c;
        if (g->wide)
            ALL_CHANNELS(4, g->c, from_maxima, g, index, y, dy, image, rows, columns, row, column, past, to, 1);
        else if (y)
            ALL_CHANNELS(4, g->c, from_maxima, g, index, y, dy, image, rows, columns, row, column, past, to, 0);
        else
            ALL_CHANNELS(4, g->c, from_maxima, g, index, NULL, dy, image, rows, columns, row, column, past, to, 0);
    }
}

/* Whether windows lie side by side, so that each pixel is in exactly one of them. */
static int side_by_side(const Geometry *g) {
    const int covered = g->oh * g->kh >= g->h && g->ow * g->kw >= g->w;
    return g->sh == g->kh && g->sw == g->kw && g->ph == 0 && g->pw == 0 && covered;
}

/* Writes a window of dx: dy at the place of the maximum, and 0 elsewhere. Unless y is null, dy goes through the ReLU's
 * backward first. `image` is dx's. */
ALWAYS void to_maximum(const Geometry *g, const void *index, const float *y, const float *dy, int64_t at, Window o,
                       int past, float *image, const int wide, int64_t c, const int many, int64_t lanes) {
    vec value[4];
    bits where[4];
    for (int v = 0; v < many; v++) {
        where[v] = load_places(index, at + c + v * LANES, lanes, wide);
        value[v] = 0 + load_some(dy + at + c + v * LANES, lanes); /* +0 for -0, as a sum has it */
        if (y) value[v] = where_positive(load_some(y + at + c + v * LANES, lanes), value[v]);
    }
    for (int64_t r = o.top; r < o.bottom; r++)
        for (int64_t q = o.left; q < o.right; q++) {
            const int32_t place = (int32_t)((r - o.row) * g->kw + q - o.column);
            float *pixel = image + (r * g->w + q) * g->c + c;
            for (int v = 0; v < many; v++)
                put(pixel + v * LANES, (vec)((bits)value[v] & (where[v] == place)), lanes, past);
        }
}

/* Writes the windows of a line of dy. */
static void line_to_maxima(const Geometry *given, const void *index, const float *y, const float *dy, int past,
                           float *dx, int64_t line) {
    const Geometry here = *given, *g = &here;
    float *image = dx + line / g->oh * g->h * g->w * g->c;
    for (int64_t column = 0; column < g->ow; column++) {
        const Window o = window(g, line % g->oh, column);
        const int64_t at = (line * g->ow + column) * g->c;
        if (g->wide)
            ALL_CHANNELS(4, g->c, to_maximum, g, index, y, dy, at, o, past, image, 1);
        else if (y)
            ALL_CHANNELS(4, g->c, to_maximum, g, index, y, dy, at, o, past, image, 0);
        else
            ALL_CHANNELS(4, g->c, to_maximum, g, index, NULL, dy, at, o, past, image, 0);
    }
}

/* dx = the sum of dy over the windows whose index names this pixel. Unless y is null, dx then goes through the backward
 * of the ReLU below the pooling: y, the pooling's output, has the signs of the maxima. */
void pooling_from_maxima(const Geometry *g, const void *index, const float *y, const float *dy, float *dx) {
    const int past = goes_past(dx, g->n * g->h * g->w, g->c), alone = side_by_side(g);
#pragma omp parallel num_threads(g->threads) if (large(g))
    {
#pragma omp for schedule(static)
        for (int64_t line = 0; line < g->n * (alone ? g->oh : g->h); line++)
            alone ? line_to_maxima(g, index, y, dy, past, dx, line) : line_from_maxima(g, index, y, dy, past, dx, line);
        if (past) stored_past();
    }
}

/* `whole`: no window that contains the pixel is clipped, so all divide by the same number. */
ALWAYS void from_averages(const Geometry *g, const float *dy, int64_t image, Meets rows, Meets columns, float *dx,
                          const int whole, int64_t c, const int many, int64_t lanes) {
    vec sum[4];
    const float common = 1.0f / (float)(g->kh * g->kw);
    for (int v = 0; v < many; v++) sum[v] = (vec){0};
    for (int64_t r = rows.last; r >= rows.first; r--)
        for (int64_t q = columns.last; q >= columns.first; q--) {
            const float share = whole ? common : 1.0f / (float)places(g, r, q);
            for (int v = 0; v < many; v++)
                sum[v] += load_some(dy + ((image * g->oh + r) * g->ow + q) * g->c + c + v * LANES, lanes) * share;
        }
    for (int v = 0; v < many; v++) store_some(dx + c + v * LANES, sum[v], lanes);
}

static void line_from_averages(const Geometry *given, const float *dy, float *dx, int64_t line) {
    const Geometry here = *given, *g = &here;
    const int64_t image = line / g->h;
    const Meets rows = meets(line % g->h, g->ph, g->kh, g->sh, g->oh);
    Meets columns = meets(0, g->pw, g->kw, g->sw, g->ow);
    for (int64_t column = 0; column < g->w; column++) {
        if (column) columns = stepped(columns, column, g->pw, g->kw, g->sw, g->ow);
        float *to = dx + (line * g->w + column) * g->c;
        if (places(g, rows.last, columns.last) == g->kh * g->kw)
            ALL_CHANNELS(4, g->c, from_averages, g, dy, image, rows, columns, to, 1);
        else
            ALL_CHANNELS(4, g->c, from_averages, g, dy, image, rows, columns, to, 0);
    }
}

/* dx = the sum of the shares of all windows that contain the pixel. */
void pooling_from_averages(const Geometry *g, const float *dy, float *dx) {
#pragma omp parallel for num_threads(g->threads) schedule(static) if (large(g))
    for (int64_t line = 0; line < g->n * g->h; line++) line_from_averages(g, dy, dx, line);
}
