/* Depthwise convolution, forward and backward-data. They are one loop: an element of the result is a sum over some rows
 * and columns of the filter. Forward takes every tap. Backward-data with a stride takes those that meet the pixel, and
 * they are the same for all pixels of a phase: the pixels whose distance is the stride. Filters are copied to the
 * workspace first, channels innermost.
 */
#include "depthwise.h"

MIRRORED(depthwise, Geometry)

/* The filters, and behind them a pixel of zeros. */
int64_t depthwise_bytes(const Geometry *g) { return 4 * (taps(g) + 1) * pitch(g); }

static int64_t places(int64_t begin, int64_t apart, int64_t size) {
    return begin < size ? (size - begin + apart - 1) / apart : 0;
}

/* The taps that meet the places phase, phase + stride, ... of dx, in the order of dy's places. */
static Axis backward_axis(int64_t phase, int64_t size, int64_t kernel, int64_t stride, int64_t pad, int64_t dilation) {
    Axis a = {.begin = phase, .apart = stride, .places = places(phase, stride, size), .stride = 1};
    int64_t last = -1;
    for (int64_t k = kernel - 1; k >= 0; k--) {
        if ((phase + pad - k * dilation) % stride) continue;
        if (a.count == 1) a.step = k - last;
        if (!a.count++) a.first = k, a.at = (phase + pad - k * dilation) / stride;
        last = k;
    }
    a.along = -a.step * dilation / stride;
    return a;
}

/* What the places of a line have in common. */
typedef struct {
    const float *x;      /* the image */
    const float *filter; /* channels innermost, and after its taps a pixel of zeros */
    const float *bias;
    float *y;            /* the line */
    int64_t c, pitch, kernel_h, kernel_w;
    int64_t h, w;        /* of the image */
    int64_t relu, past;
} Line;

ALWAYS vec started(const Line *l, int64_t c, int64_t lanes) {
    return l->bias ? load_some(l->bias + c, lanes) : (vec){0};
}

ALWAYS void finished(const Line *l, Axis columns, int64_t i, vec sum, int64_t c, int64_t lanes) {
    float *to = l->y + (columns.begin + i * columns.apart) * l->c + c;
    put(to, l->relu ? where_positive(sum, sum) : sum, lanes, l->past);
}

/* Computes some channels of place i of a line, from the taps r and q that lie on the image. */
ALWAYS void place(const Line *l, Axis rows, Part r, int64_t row, Axis columns, Part q, int64_t i, int64_t c,
                  const int many, int64_t lanes) {
    vec sum[2];
    for (int v = 0; v < many; v++) sum[v] = started(l, c + v * LANES, lanes);
    for (int64_t k = r.from; k < r.to; k++)
        for (int64_t j = q.from; j < q.to; j++) {
            const int64_t down = row + k * rows.along, right = columns.at + i * columns.stride + j * columns.along;
            const int64_t tap = (rows.first + k * rows.step) * l->kernel_w + columns.first + j * columns.step;
            const float *x = l->x + (down * l->w + right) * l->c + c, *w = l->filter + tap * l->pitch + c;
            for (int v = 0; v < many; v++)
                sum[v] = fused(load_some(x + v * LANES, lanes), load_some(w + v * LANES, lanes), sum[v]);
        }
    for (int v = 0; v < many; v++) finished(l, columns, i, sum[v], c + v * LANES, lanes);
}

/* Where the pixels and taps of a tile lie. A pixel beyond the image is the pixel of zeros. */
typedef struct {
    int64_t rows, fresh, ahead;
    const float *pixel[FEW][PIXELS], *tap[FEW][FEW];
} Tile;

/* Computes some channels of the TILE places from place i on, each of `count` taps along a row. A pixel is loaded once
 * for all places of the tile that it meets. */
ALWAYS void tile_of(const Line *l, const Tile *at, Axis columns, int64_t i, const int count, const int stride,
                    int64_t c, const int many, int64_t lanes) {
    vec sum[TILE][2];
    _Pragma("GCC unroll 2") for (int v = 0; v < many; v++) {
        const vec start = started(l, c + v * LANES, lanes);
        _Pragma("GCC unroll 4") for (int t = 0; t < TILE; t++) sum[t][v] = start;
    }
    for (int64_t k = 0; k < at->rows; k++) {
        vec w[FEW][2];
        _Pragma("GCC unroll 3") for (int j = 0; j < count; j++)
            _Pragma("GCC unroll 2") for (int v = 0; v < many; v++)
                w[j][v] = load_some(at->tap[k][j] + c + v * LANES, lanes);
        _Pragma("GCC unroll 9") for (int u = 0; u < stride * (TILE - 1) + count; u++)
            _Pragma("GCC unroll 2") for (int v = 0; v < many; v++) {
                const vec x = load_some(at->pixel[k][u] + c + v * LANES, lanes);
                if (u < stride * TILE && k >= at->fresh)
                    __builtin_prefetch(at->pixel[k][u] + c + v * LANES + at->ahead, 0, NEAR);
                _Pragma("GCC unroll 4") for (int t = 0; t < TILE; t++) {
                    const int j = u - t * stride;
                    if (j >= 0 && j < count) sum[t][v] = fused(x, w[j][v], sum[t][v]);
                }
            }
    }
    _Pragma("GCC unroll 4") for (int t = 0; t < TILE; t++)
        _Pragma("GCC unroll 2") for (int v = 0; v < many; v++)
            finished(l, columns, i + t, sum[t][v], c + v * LANES, lanes);
}

/* Computes a line in tiles. The last one begins earlier if it must: some places are then computed twice. */
ALWAYS void tiles_of(const Line *l, Axis rows, Part r, int64_t row, Axis columns, const int count, const int stride) {
    const int pixels = stride * (TILE - 1) + count;
    const float *zeros = l->filter + l->kernel_h * l->kernel_w * l->pitch;
    Tile at = {.rows = r.to - r.from, .fresh = r.to - r.from - rows.stride, .ahead = rows.stride * l->w * l->c};
    for (int64_t k = 0; k < at.rows; k++)
        for (int j = 0; j < count; j++) {
            const int64_t down = rows.first + (r.from + k) * rows.step, right = columns.first + j * columns.step;
            at.tap[k][j] = l->filter + (down * l->kernel_w + right) * l->pitch;
        }
    for (int64_t next = 0; next < columns.places; next += TILE) {
        const int64_t i = at_most(columns.places - TILE, next), first = columns.at + i * stride;
        for (int64_t k = 0; k < at.rows; k++) {
            const float *line = l->x + (row + (r.from + k) * rows.along) * l->w * l->c;
            for (int u = 0; u < pixels; u++)
                at.pixel[k][u] = first + u >= 0 && first + u < l->w ? line + (first + u) * l->c : zeros;
        }
        ALL_CHANNELS(2, l->c, tile_of, l, &at, columns, i, count, stride);
    }
}

/* Computes the places of a line that are `columns`, at place `below` of `rows`. */
static void line_of(Line given, Axis rows, int64_t below, Axis columns) {
    const Line *l = &given;
    const Part r = on_image(rows, below, l->h);
    const int64_t row = rows.at + below * rows.stride, count = columns.count, stride = columns.stride;
    const int few = columns.along == 1 && r.to - r.from <= FEW && columns.places >= TILE;
    if (few && count == 3 && stride == 1)
        tiles_of(l, rows, r, row, columns, 3, 1);
    else if (few && count == 3 && stride == 2)
        tiles_of(l, rows, r, row, columns, 3, 2);
    else if (few && count == 2 && stride == 1)
        tiles_of(l, rows, r, row, columns, 2, 1);
    else
        for (int64_t i = 0; i < columns.places; i++) {
            const Part q = on_image(columns, i, l->w);
            ALL_CHANNELS(2, l->c, place, l, rows, r, row, columns, q, i);
        }
}

/* Copies the filters (channels, taps) as (taps, channels), and writes a pixel of zeros behind them. */
static void channels_inside(const Geometry *g, const float *w, float *to) {
    for (int64_t c = 0; c < g->c; c++)
        for (int64_t k = 0; k < taps(g); k++) to[k * pitch(g) + c] = w[c * taps(g) + k];
    memset(to + taps(g) * pitch(g), 0, 4 * pitch(g));
}

/* x w (b) -> y */
void depthwise_forward(const Geometry *g, const float *x, const float *w, const float *bias, float *y,
                       float *workspace) {
    const Axis rows = forward_axis(g->to_h, g->kernel_h, g->stride_h, g->pad_h, g->dilation_h);
    const Axis columns = forward_axis(g->to_w, g->kernel_w, g->stride_w, g->pad_w, g->dilation_w);
    const int past = goes_past(y, g->n * g->to_h * g->to_w, g->c);
    channels_inside(g, w, workspace);
#pragma omp parallel num_threads(g->threads) if (large(g))
    {
#pragma omp for schedule(static)
        for (int64_t line = 0; line < g->n * g->to_h; line++) {
            const Line l = {
                .x = x + line / g->to_h * g->h * g->w * g->c, .filter = workspace, .bias = bias,
                .y = y + line * g->to_w * g->c, .c = g->c, .pitch = pitch(g), .kernel_h = g->kernel_h,
                .kernel_w = g->kernel_w, .h = g->h, .w = g->w, .relu = g->relu, .past = past,
            };
            line_of(l, rows, line % g->to_h, columns);
        }
        if (past) stored_past();
    }
}

/* w dy -> dx. Here the image that is read is dy, h x w, and dx is to_h x to_w. */
void depthwise_backward(const Geometry *g, const float *w, const float *dy, float *dx, float *workspace) {
    const int past = goes_past(dx, g->n * g->to_h * g->to_w, g->c);
    channels_inside(g, w, workspace);
#pragma omp parallel num_threads(g->threads) if (large(g))
    {
#pragma omp for schedule(static)
        for (int64_t line = 0; line < g->n * g->to_h; line++) {
            const int64_t row = line % g->to_h, phase = row % g->stride_h;
            const Axis rows = backward_axis(phase, g->to_h, g->kernel_h, g->stride_h, g->pad_h, g->dilation_h);
            const Line l = {
                .x = dy + line / g->to_h * g->h * g->w * g->c, .filter = workspace, .y = dx + line * g->to_w * g->c,
                .c = g->c, .pitch = pitch(g), .kernel_h = g->kernel_h, .kernel_w = g->kernel_w, .h = g->h, .w = g->w,
                .past = past,
            };
            for (int64_t k = 0; k < at_most(g->stride_w, g->to_w); k++) {
                const Axis columns = backward_axis(k, g->to_w, g->kernel_w, g->stride_w, g->pad_w, g->dilation_w);
                line_of(l, rows, row / g->stride_h, columns);
            }
        }
        if (past) stored_past();
    }
}
