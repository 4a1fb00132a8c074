/* The filter's gradient of a depthwise convolution. Each piece of the lines of dy has sums of its own, which are added
 * up in their order. The pieces depend on sizes alone.
 */
#include "depthwise.h"

MIRRORED(depthwise_filter, Geometry)

/* The partial sums, and behind them a pixel of zeros. */
int64_t depthwise_filter_bytes(const Geometry *g) { return 4 * (g->pieces * taps(g) + 1) * pitch(g); }

/* A line of dy, and the sums (taps, channels) to which it adds. Tap 0 of the filter's rows r meets the image's row
 * `row`. */
typedef struct {
    const float *x, *dy; /* the image, the line */
    const float *zeros;  /* a pixel */
    float *sum;
    Part r;
    int64_t row, ahead;
} Adding;

/* The pixels of some rows that `tile` places of dy meet, and these places. */
typedef struct {
    const float *pixel[FEW][PIXELS], *dy[TILE];
} Meeting;

/* Adds what `tile` places of dy give to `count` taps of each of `rows` rows of the filter, from tap j of row k on. A
 * pixel is loaded once for all places that it meets. */
ALWAYS void add_places(const Geometry *g, const Adding *l, const Meeting *at, int64_t k, int64_t j, const int rows,
                       const int tile, const int count, const int stride, int64_t c, const int many, int64_t lanes) {
    vec tap[FEW][FEW][2], d[TILE][2];
    const int fresh = k + rows > l->r.to - g->stride_h;
    _Pragma("GCC unroll 2") for (int v = 0; v < many; v++) {
        _Pragma("GCC unroll 3") for (int r = 0; r < rows; r++)
            _Pragma("GCC unroll 3") for (int n = 0; n < count; n++) tap[r][n][v] = (vec){0};
        _Pragma("GCC unroll 4") for (int t = 0; t < tile; t++) {
            d[t][v] = load_some(at->dy[t] + c + v * LANES, lanes);
            if (fresh) __builtin_prefetch(at->dy[t] + g->to_w * g->c + c + v * LANES, 0, NEAR);
        }
    }
    _Pragma("GCC unroll 3") for (int r = 0; r < rows; r++)
        _Pragma("GCC unroll 9") for (int u = 0; u < stride * (tile - 1) + count; u++)
            _Pragma("GCC unroll 2") for (int v = 0; v < many; v++) {
                const float *pixel = at->pixel[r][u] + c + v * LANES;
                const vec x = load_some(pixel, lanes);
                if (fresh && r >= rows - stride && u < stride * tile) __builtin_prefetch(pixel + l->ahead, 0, NEAR);
                _Pragma("GCC unroll 4") for (int t = 0; t < tile; t++) {
                    const int n = u - t * stride;
                    if (n >= 0 && n < count) tap[r][n][v] = fused(x, d[t][v], tap[r][n][v]);
                }
            }
    float *to = l->sum + (k * g->kernel_w + j) * pitch(g) + c;
    _Pragma("GCC unroll 3") for (int r = 0; r < rows; r++)
        _Pragma("GCC unroll 3") for (int n = 0; n < count; n++)
            _Pragma("GCC unroll 2") for (int v = 0; v < many; v++) {
                float *sum = to + (r * g->kernel_w + n) * pitch(g) + v * LANES;
                store_some(sum, load_some(sum, lanes) + tap[r][n][v], lanes);
            }
}

/* Vectors at a time that leave registers for the taps of several rows. */
enum { TWO = LANES == 16 ? 2 : 1 };

/* Calls add_places for all channels, each once. */
#define ADD_PLACES(...)                                                                                         \
    do {                                                                                                        \
        int64_t c_ = 0;                                                                                         \
        for (; c_ + TWO * LANES <= g->c; c_ += TWO * LANES) add_places(g, l, __VA_ARGS__, c_, TWO, LANES);      \
        for (; c_ < g->c; c_ += LANES) add_places(g, l, __VA_ARGS__, c_, 1, at_most(LANES, g->c - c_));         \
    } while (0)

/* Adds a line, in tiles, to `rows` rows of a filter with FEW taps in a row, side by side. The last tile begins
 * earlier if it must: places that were added before are zeros in it. */
ALWAYS void add_rows(const Geometry *g, const Adding *l, int64_t k, const int rows, const int stride) {
    const int pixels = stride * (TILE - 1) + FEW;
    Meeting at;
    for (int64_t next = 0; next < g->to_w; next += TILE) {
        const int64_t i = at_most(g->to_w - TILE, next), first = i * stride - g->pad_w;
        const int inside = first >= 0 && first + pixels <= g->w;
        for (int t = 0; t < TILE; t++) at.dy[t] = i + t < next ? l->zeros : l->dy + (i + t) * g->c;
        for (int r = 0; r < rows; r++) {
            const float *line = l->x + ((l->row + (k + r) * g->dilation_h) * g->w + first) * g->c;
            for (int u = 0; u < pixels; u++)
                at.pixel[r][u] = inside || (first + u >= 0 && first + u < g->w) ? line + u * g->c : l->zeros;
        }
        ADD_PLACES(&at, k, 0, rows, TILE, FEW, stride);
    }
}

/* Adds a line to all rows of the filter that lie on the image, FEW at a time if there are so many. */
ALWAYS void add_line(const Geometry *g, const Adding *l, const int stride) {
    int64_t k = l->r.from;
    for (; k + FEW <= l->r.to; k += FEW) add_rows(g, l, k, FEW, stride);
    for (; k < l->r.to; k++) add_rows(g, l, k, 1, stride);
}

/* The same for any filter: tap by tap, at the places where it meets the image. */
static void add_taps(const Geometry *g, const Adding *l, Axis columns) {
    for (int64_t k = l->r.from; k < l->r.to; k++)
        for (int64_t i = 0; i < g->to_w; i++) {
            const Part q = on_image(columns, i, g->w);
            for (int64_t j = q.from; j < q.to; j++) {
                const int64_t at = columns.at + i * columns.stride + j * columns.along;
                const float *pixel = l->x + ((l->row + k * g->dilation_h) * g->w + at) * g->c;
                const Meeting one = {{{pixel}}, {l->dy + i * g->c}};
                ADD_PLACES(&one, k, j, 1, 1, 1, 1);
            }
        }
}

/* Adds lines [from, to) of dy to `sum`. */
static void add_lines(const Geometry *given, const float *x, const float *dy, int64_t from, int64_t to,
                      const float *zeros, float *sum) {
    const Geometry here = *given, *g = &here; /* a compiler must assume that writes to the sums change the original */
    const Axis rows = forward_axis(g->to_h, g->kernel_h, g->stride_h, g->pad_h, g->dilation_h);
    const Axis columns = forward_axis(g->to_w, g->kernel_w, g->stride_w, g->pad_w, g->dilation_w);
    const int few = columns.count == FEW && columns.along == 1 && columns.places >= TILE;
    memset(sum, 0, 4 * taps(g) * pitch(g));
    for (int64_t line = from; line < to; line++) {
        const int64_t row = line % g->to_h;
        const Adding l = {
            .x = x + line / g->to_h * g->h * g->w * g->c, .dy = dy + line * g->to_w * g->c, .zeros = zeros, .sum = sum,
            .r = on_image(rows, row, g->h), .row = rows.at + row * rows.stride, .ahead = rows.stride * g->w * g->c,
        };
        if (few && columns.stride == 1)
            add_line(g, &l, 1);
        else if (few && columns.stride == 2)
            add_line(g, &l, 2);
        else
            add_taps(g, &l, columns);
    }
}

/* x dy -> dw */
void depthwise_filter(const Geometry *g, const float *x, const float *dy, float *dw, float *workspace) {
    const int64_t lines = g->n * g->to_h, each = taps(g) * pitch(g);
    float *zeros = workspace + g->pieces * each;
    memset(zeros, 0, 4 * pitch(g));
#pragma omp parallel for num_threads(g->threads) schedule(static) if (large(g))
    for (int64_t p = 0; p < g->pieces; p++)
        add_lines(g, x, dy, p * lines / g->pieces, (p + 1) * lines / g->pieces, zeros, workspace + p * each);
    for (int64_t p = 1; p < g->pieces; p++)
        for (int64_t k = 0; k < each; k++) workspace[k] += workspace[p * each + k];
    for (int64_t c = 0; c < g->c; c++)
        for (int64_t k = 0; k < taps(g); k++) dw[c * taps(g) + k] = workspace[k * pitch(g) + c];
}
