/* Convolution as a product of matrices A B, where A is never stored ("implicit GEMM"). The rows of A are windows of the
 * image, each a few runs of memory (a filter row of pixels, all channels). B is the filters.
 *
 * A strip is a few rows of one group of an image with their padding, copied into the workspace. In a strip all windows
 * have the same layout. Forward multiplies windows by filters, and backward-filter multiplies transposed windows by dy.
 * Backward-data multiplies dy's pixels by the filters, which gives windows, and adds these up where they overlap
 * ("col2im"). This works at any stride, and nothing is multiplied by padding.
 *
 * The code needs no alignment and allocates nothing. No sum depends on the number of threads.
 */
#include <omp.h>

#include "mirrored.h"
#include "pieces.h"
#include "product.h"

/* x and dx are images n x h x w x (group * from), y and dy are n x to_h x to_w x (group * to). */
typedef struct {
    int64_t n, h, w, from, to_h, to_w, to, group;
    int64_t kernel_h, kernel_w, stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w;
    int64_t per_row;         /* runs into which a filter's row is cut */
    int64_t relu;
    int64_t rows;            /* rows of y or dy at a time; in backward-data all */
    int64_t pieces;          /* backward-filter: partial sums, which are added up at the end */
    int64_t threads;
} Geometry;
MIRRORED(implicit_gemm, Geometry)

static int64_t strip_h(const Geometry *g) { return (g->rows - 1) * g->stride_h + (g->kernel_h - 1) * g->dilation_h + 1; }
static int64_t strip_w(const Geometry *g) { return (g->to_w - 1) * g->stride_w + (g->kernel_w - 1) * g->dilation_w + 1; }
static int64_t window(const Geometry *g) { return g->kernel_h * g->kernel_w * g->from; }
static int64_t panels(const Geometry *g) { return up(g->to, PANEL) / PANEL; }
static int64_t blocks_of_image(const Geometry *g) { return (g->to_h + g->rows - 1) / g->rows; }

/* The number of a window's runs, the floats of a run, and where in a strip run r begins. With dilation, a run is one
 * pixel. */
static int64_t runs(const Geometry *g) { return g->kernel_h * g->per_row; }
static int64_t run(const Geometry *g) { return window(g) / runs(g); }
static int64_t begins(const Geometry *g, int64_t r) {
    const int64_t along = g->dilation_w > 1 ? g->dilation_w * g->from : run(g);
    return r / g->per_row * g->dilation_h * strip_w(g) * g->from + r % g->per_row * along;
}

enum { BLOCK_FLOATS = 4096 }; /* floats of a panel's block of filters; a tile's panels fit the first-level cache */

/* Sizes of the parts of the workspace, in floats. */
static int64_t strip_floats(const Geometry *g) { return strip_h(g) * strip_w(g) * g->from; }
static int64_t filter_floats(const Geometry *g) { return g->group * panels(g) * window(g) * PANEL; }
static int64_t rest_floats(const Geometry *g) { return g->to % PANEL ? g->rows * g->to_w * PANEL : 0; }
static int64_t dy_floats(const Geometry *g) { return g->rows * g->to_w * up(g->to, PANEL); }
static int64_t window_panels(const Geometry *g) { return up(window(g), PANEL) / PANEL; }
static int64_t scattered_floats(const Geometry *g) { return window_panels(g) * PANEL * g->to; } /* filters as B */
static int64_t windows_floats(const Geometry *g) { return ROWS * window_panels(g) * PANEL; }
static int64_t table_floats(int64_t entries) { return entries * (sizeof(int64_t) / sizeof(float)); }

int64_t implicit_gemm_convolve_bytes(const Geometry *g) {
    return 4 * (table_floats(runs(g)) + filter_floats(g) + g->threads * (strip_floats(g) + rest_floats(g)));
}

int64_t implicit_gemm_gradient_bytes(const Geometry *g) {
    return 4 * (table_floats(g->rows) + g->pieces * filter_floats(g) + g->threads * (strip_floats(g) + dy_floats(g)));
}

int64_t implicit_gemm_scatter_bytes(const Geometry *g) {
    return 4 * (g->group * scattered_floats(g) + g->threads * (windows_floats(g) + strip_floats(g)));
}

/* Copies the strip that block b of y's rows needs: one group's channels, with padding. */
static void copy_strip(const Geometry *g, const float *x, int64_t b, int64_t group, float *strip) {
    const int64_t wide = strip_w(g), c = g->from, all = g->group * c;
    const int64_t top = b * g->rows * g->stride_h - g->pad_h;
    const int64_t before = g->pad_w < wide ? g->pad_w : wide;
    const int64_t there = g->w < wide - before ? g->w : wide - before;
    for (int64_t r = 0; r < strip_h(g); r++) {
        float *row = strip + r * wide * c;
        if (top + r < 0 || top + r >= g->h) {
            memset(row, 0, wide * c * sizeof(float));
            continue;
        }
        const float *source = x + (top + r) * g->w * all + group * c;
        memset(row, 0, before * c * sizeof(float));
        if (all == c)
            memcpy(row + before * c, source, there * c * sizeof(float));
        else
            for (int64_t i = 0; i < there; i++) memcpy(row + (before + i) * c, source + i * all, c * sizeof(float));
        memset(row + (before + there) * c, 0, (wide - before - there) * c * sizeof(float));
    }
}

/* Packs panel `item` of the filters as B: u[window][lane]. */
static void pack_filters(const Geometry *g, const float *w, int64_t item, float *u) {
    const int64_t group = item / panels(g), first = item % panels(g) * PANEL;
    const int64_t lanes = first + PANEL < g->to ? PANEL : g->to - first;
    memset(u, 0, window(g) * PANEL * sizeof(float));
    for (int64_t lane = 0; lane < lanes; lane++) {
        const float *filter = w + (group * g->to + first + lane) * window(g);
        for (int64_t k = 0; k < window(g); k++) u[k * PANEL + lane] = filter[k];
    }
}

/* Computes `rows` rows of some panels of the result, from a strip, into c, whose pixels are `pitch` apart. A block of
 * the filters, some runs of some panels, stays in the first-level cache while all windows are multiplied by it. The
 * next block's products are added to c. `bias`: for these channels, or null. */
static void convolve_panels(const Geometry *g, int64_t rows, int64_t panels, int half, const int64_t *at,
                            const float *strip, const float *u, const float *bias, int past, float *c, int64_t pitch) {
    const int64_t count = runs(g), fit = BLOCK_FLOATS / (run(g) * PANEL);
    const int64_t block = fit < 1 ? 1 : fit < count ? fit : count, most = fit < count ? ABREAST : fit / count * ABREAST;
    const int64_t down = g->stride_h * strip_w(g) * g->from;
    Product p = {
        .depth = run(g), .down = g->stride_w * g->from, .along = 1, .step = PANEL, .over = window(g) * PANEL,
        .pitch = pitch, .aside = PANEL, .half = half,
    };
    for (int64_t panel = 0; panel < panels; panel += most) {
        p.panels = panel + most < panels ? most : panels - panel;
        for (int64_t first = 0; first < count; first += block) {
            p.runs = first + block < count ? block : count - first;
            p.at = at + first;
            p.relu = g->relu && first + block >= count;
            p.past = past && first + block >= count;
            p.start_down = first ? pitch : 0;
            p.start_over = first || bias ? PANEL : 0;
            for (int64_t r = 0; r < rows; r++) {
                float *to = c + r * g->to_w * pitch + panel * PANEL;
                product(&p, g->to_w, strip + r * down, u + (panel * window(g) + first * run(g)) * PANEL,
                        first ? to : bias ? bias + panel * PANEL : ZEROS, to);
            }
        }
    }
}

/* Computes `rows` rows of y, one group's channels, from a strip. Channels that do not fill a panel are computed in
 * `rest` and copied. */
static void convolve_strip(const Geometry *g, int64_t rows, const int64_t *at, const float *strip, const float *u,
                           const float *bias, int past, float *y, float *rest) {
    const int64_t all = g->group * g->to, whole = g->to / PANEL * PANEL, left = g->to - whole;
    convolve_panels(g, rows, whole / PANEL, 0, at, strip, u, bias, past, y, all);
    if (left == 0) return;
    float padded[PANEL] = {0};
    if (bias) memcpy(padded, bias + whole, left * sizeof(float));
    convolve_panels(g, rows, 1, left <= LANES, at, strip, u + whole * window(g), padded, 0, rest, PANEL);
    for (int64_t i = 0; i < rows * g->to_w; i++) memcpy(y + i * all + whole, rest + i * PANEL, left * sizeof(float));
}

/* y = x * w (+ bias unless it is null, then ReLU if g->relu). */
void implicit_gemm_convolve(const Geometry *g, const float *x, const float *w, const float *bias, float *y,
                            float *workspace) {
    int64_t *at = (int64_t *)workspace;
    float *u = workspace + table_floats(runs(g)), *strips = u + filter_floats(g);
    const int64_t blocks = blocks_of_image(g), per_panel = window(g) * PANEL;
    const int past = g->to % LANES == 0 && goes_past(y, g->n * g->to_h * g->to_w, g->group * g->to);
    for (int64_t r = 0; r < runs(g); r++) at[r] = begins(g, r);
#pragma omp parallel num_threads(g->threads)
    {
        float *strip = strips + omp_get_thread_num() * (strip_floats(g) + rest_floats(g));
#pragma omp for schedule(static)
        for (int64_t item = 0; item < g->group * panels(g); item++) pack_filters(g, w, item, u + item * per_panel);
#pragma omp for schedule(dynamic)
        for (int64_t item = 0; item < g->n * blocks; item++) {
            const int64_t image = item / blocks, b = item % blocks, row = b * g->rows;
            const int64_t rows = row + g->rows < g->to_h ? g->rows : g->to_h - row;
            for (int64_t group = 0; group < g->group; group++) {
                copy_strip(g, x + image * g->h * g->w * g->group * g->from, b, group, strip);
                convolve_strip(g, rows, at, strip, u + group * panels(g) * per_panel, bias ? bias + group * g->to : 0,
                               past, y + (image * g->to_h + row) * g->to_w * g->group * g->to + group * g->to,
                               strip + strip_floats(g));
            }
        }
        if (past) stored_past();
    }
}

/* Packs one group's channels of `pixels` pixels of dy as B: d[panel][pixel][lane]. `left` floats of dy are left in
 * memory. A lane beyond the channels gets the floats that happen to follow: no lane enters the sums of another. */
static void pack_dy(const Geometry *g, const float *dy, int64_t left, int64_t pixels, float *d) {
    const int64_t all = g->group * g->to;
    for (int64_t c = 0; c < g->to; c += LANES) {
        float *to = d + c / PANEL * pixels * PANEL + c % PANEL;
        for (int64_t i = 0; i < pixels; i++) store(to + i * PANEL, load_some(dy + i * all + c, left - i * all - c));
    }
}

/* dw = the correlation of x with dy, first summed as s[piece][group][panel][window][lane]. */
void implicit_gemm_gradient(const Geometry *g, const float *x, const float *dy, float *dw, float *workspace) {
    int64_t *at = (int64_t *)workspace;
    float *s = workspace + table_floats(g->rows), *own = s + g->pieces * filter_floats(g);
    const int64_t blocks = blocks_of_image(g), items = g->n * blocks, per_panel = window(g) * PANEL;
    for (int64_t r = 0; r < g->rows; r++) at[r] = r * g->stride_h * strip_w(g) * g->from;
#pragma omp parallel num_threads(g->threads)
    {
        float *strip = own + omp_get_thread_num() * (strip_floats(g) + dy_floats(g)), *d = strip + strip_floats(g);
#pragma omp for schedule(dynamic)
        for (int64_t piece = 0; piece < g->pieces; piece++) {
            const int64_t begin = piece * items / g->pieces, end = (piece + 1) * items / g->pieces;
            for (int64_t item = begin; item < end; item++)
                for (int64_t group = 0; group < g->group; group++) {
                    const int64_t image = item / blocks, b = item % blocks, row = b * g->rows;
                    const int64_t rows = row + g->rows < g->to_h ? g->rows : g->to_h - row;
                    const int64_t pixels = rows * g->to_w, add = item > begin;
                    copy_strip(g, x + image * g->h * g->w * g->group * g->from, b, group, strip);
                    const int64_t before = (image * g->to_h + row) * g->to_w * g->group * g->to + group * g->to;
                    pack_dy(g, dy + before, g->n * g->to_h * g->to_w * g->group * g->to - before, pixels, d);
                    Product p = {
                        .runs = rows, .depth = g->to_w, .at = at, .down = 1, .along = g->stride_w * g->from,
                        .step = PANEL, .over = pixels * PANEL, .pitch = PANEL, .aside = per_panel,
                        .start_down = add ? PANEL : 0, .start_over = add ? per_panel : 0,
                    };
                    float *sum = s + piece * filter_floats(g) + group * panels(g) * per_panel;
                    for (int64_t panel = 0; panel < panels(g); panel += ABREAST) {
                        p.panels = at_most(ABREAST, panels(g) - panel);
                        p.half = g->to <= (panel + p.panels) * PANEL - LANES;
                        for (int64_t r = 0; r < runs(g); r++) {
                            float *to = sum + panel * per_panel + r * run(g) * PANEL;
                            product(&p, run(g), strip + begins(g, r), d + panel * pixels * PANEL, add ? to : ZEROS, to);
                        }
                    }
                }
        }
#pragma omp for schedule(static)
        for (int64_t item = 0; item < g->group * panels(g); item++) {
            const int64_t first = item % panels(g) * PANEL;
            float *to = dw + (item / panels(g) * g->to + first) * window(g);
            float *sum = s + item * per_panel;
            for (int64_t piece = 1; piece < g->pieces; piece++)
                for (int64_t i = 0; i < per_panel; i += LANES)
                    store(sum + i, load(sum + i) + load(sum + piece * filter_floats(g) + i));
            for (int64_t lane = 0; lane < PANEL && first + lane < g->to; lane++)
                for (int64_t k = 0; k < window(g); k++) to[lane * window(g) + k] = sum[k * PANEL + lane];
        }
    }
}

/* Adds the windows of `count` pixels, from `first` on, to their places in the strip, one after the other. */
static void add_windows(const Geometry *g, int64_t first, int64_t count, const float *windows, float *strip) {
    for (int64_t i = 0; i < count; i++) {
        const int64_t row = (first + i) / g->to_w, column = (first + i) % g->to_w;
        float *at = strip + (row * g->stride_h * strip_w(g) + column * g->stride_w) * g->from;
        for (int64_t r = 0; r < runs(g); r++) {
            const float *restrict one = windows + i * window_panels(g) * PANEL + r * run(g);
            float *restrict to = at + begins(g, r);
            for (int64_t k = 0; k < run(g); k++) to[k] += one[k];
        }
    }
}

/* Copies the image's part of the strip, one group's channels, to dx; zero where no window reaches. */
static void copy_back(const Geometry *g, const float *strip, float *dx) {
    const int64_t all = g->group * g->from, high = strip_h(g), wide = strip_w(g);
    for (int64_t row = 0; row < g->h; row++)
        for (int64_t column = 0; column < g->w; column++) {
            const int64_t r = row + g->pad_h, c = column + g->pad_w;
            float *to = dx + (row * g->w + column) * all;
            if (r < high && c < wide)
                memcpy(to, strip + (r * wide + c) * g->from, g->from * sizeof(float));
            else
                memset(to, 0, g->from * sizeof(float));
        }
}

/* dy w -> dx */
void implicit_gemm_scatter(const Geometry *g, const float *dy, const float *w, float *dx, float *workspace) {
    const int64_t pixels = g->to_h * g->to_w, all = g->group * g->to, across = window_panels(g);
    float *u = workspace, *own = u + g->group * scattered_floats(g);
    const Product p = {
        .runs = 1, .depth = g->to, .at = ONE_RUN, .down = all, .along = 1, .step = PANEL, .over = g->to * PANEL,
        .pitch = across * PANEL, .aside = PANEL, .panels = across,
    };
#pragma omp parallel num_threads(g->threads)
    {
        float *windows = own + omp_get_thread_num() * (windows_floats(g) + strip_floats(g));
        float *strip = windows + windows_floats(g);
#pragma omp for schedule(static)
        for (int64_t o = 0; o < all; o++)
            for (int64_t k = 0; k < window(g); k += LANES)
                store(u + o / g->to * scattered_floats(g) + (k / PANEL * g->to + o % g->to) * PANEL + k % PANEL,
                      load_some(w + o * window(g) + k, window(g) - k));
#pragma omp for schedule(dynamic)
        for (int64_t item = 0; item < g->n * g->group; item++) {
            const int64_t image = item / g->group, group = item % g->group;
            const float *from = dy + image * pixels * all + group * g->to;
            memset(strip, 0, strip_floats(g) * sizeof(float));
            for (int64_t i = 0; i < pixels; i += ROWS) {
                const int64_t count = i + ROWS < pixels ? ROWS : pixels - i;
                product(&p, count, from + i * all, u + group * scattered_floats(g), ZEROS, windows);
                add_windows(g, i, count, windows, strip);
            }
            copy_back(g, strip, dx + (image * g->h * g->w * g->group + group) * g->from);
        }
    }
}
