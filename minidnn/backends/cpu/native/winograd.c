/* Winograd convolution of 3x3 filters at stride 1 on NHWC activations (Lavin and Gray, "Fast Algorithms for
 * Convolutional Neural Networks", CVPR 2016, section 4).
 *
 * Everything meets tiles of 6x6 of the input, 4 apart: F(4x4,3x3) makes 4x4 of the output of each (forward and, with
 * the filter turned, backward-data), F(3x3,4x4) multiplies each with 4x4 of dy into 3x3 of dW (backward-filter). Both
 * evaluate polynomials at 0, +-sqrt(1/2), +-sqrt(2) and infinity; points that near to 1 keep the rounding small.
 *
 * Assumes nothing about alignment and allocates nothing: the caller brings the workspace (winograd.py lays it out with
 * the same numbers). Each element of a result is summed in one order, whatever the number of threads.
 */
#include <omp.h>

#include "product.h"

enum { TILE = 6, STEP = 4, POINTS = TILE * TILE };
enum { GROUP = 4 * 16 }; /* channels of the result between two transforms of products */

static const float A1 = 0.70710678118654752f, A2 = 0.5f, A3 = 0.35355339059327376f; /* powers of the point a */
static const float B1 = 1.41421356237309505f, B2 = 2.0f, B3 = 2.82842712474619010f; /* and of the point b */

/* The one-dimensional transforms, in place too; the two-dimensional ones are these on columns, then on rows.
 * s: the stride of what is read and of what is written. */

ALWAYS void of_input(const vec *d, vec *t, int s) { /* 6 -> 6, B^T */
    vec d0 = d[0], d1 = d[s], d2 = d[2 * s], d3 = d[3 * s], d4 = d[4 * s], d5 = d[5 * s];
    vec even_a = d4 - B2 * d2, odd_a = A1 * d3 - B1 * d1;
    vec even_b = d4 - A2 * d2, odd_b = B1 * d3 - A1 * d1;
    t[0] = d0 - 2.5f * d2 + d4;
    t[s] = even_a + odd_a;
    t[2 * s] = even_a - odd_a;
    t[3 * s] = even_b + odd_b;
    t[4 * s] = even_b - odd_b;
    t[5 * s] = d1 - 2.5f * d3 + d5;
}

ALWAYS void of_three(const vec *g, vec *t, int s) { /* 3 -> 6, G of F(4,3) */
    vec g0 = g[0], g1 = g[s], g2 = g[2 * s];
    vec even_a = (g0 + A2 * g2) * (-2.0f / 3), odd_a = g1 * (A1 * -2.0f / 3);
    vec even_b = (g0 + B2 * g2) * (1.0f / 6), odd_b = g1 * (B1 / 6);
    t[0] = g0;
    t[s] = even_a + odd_a;
    t[2 * s] = even_a - odd_a;
    t[3 * s] = even_b + odd_b;
    t[4 * s] = even_b - odd_b;
    t[5 * s] = g2;
}

ALWAYS void of_four(const vec *g, vec *t, int s) { /* 4 -> 6, G of F(3,4) */
    vec g0 = g[0], g1 = g[s], g2 = g[2 * s], g3 = g[3 * s];
    vec even_a = (g0 + A2 * g2) * (-2.0f / 3), odd_a = (A1 * g1 + A3 * g3) * (-2.0f / 3);
    vec even_b = (g0 + B2 * g2) * (1.0f / 6), odd_b = (B1 * g1 + B3 * g3) * (1.0f / 6);
    t[0] = g0;
    t[s] = even_a + odd_a;
    t[2 * s] = even_a - odd_a;
    t[3 * s] = even_b + odd_b;
    t[4 * s] = even_b - odd_b;
    t[5 * s] = g3;
}

ALWAYS void to_four(const vec *m, vec *y, int s) { /* 6 -> 4, A^T of F(4,3) */
    vec sum_a = m[s] + m[2 * s], difference_a = m[s] - m[2 * s];
    vec sum_b = m[3 * s] + m[4 * s], difference_b = m[3 * s] - m[4 * s];
    y[0] = m[0] + sum_a + sum_b;
    y[s] = A1 * difference_a + B1 * difference_b;
    y[2 * s] = A2 * sum_a + B2 * sum_b;
    y[3 * s] = A3 * difference_a + B3 * difference_b + m[5 * s];
}

ALWAYS void to_three(const vec *m, vec *y, int s) { /* 6 -> 3, A^T of F(3,4) */
    vec sum_a = m[s] + m[2 * s], difference_a = m[s] - m[2 * s];
    vec sum_b = m[3 * s] + m[4 * s], difference_b = m[3 * s] - m[4 * s];
    y[0] = m[0] + sum_a + sum_b;
    y[s] = A1 * difference_a + B1 * difference_b;
    y[2 * s] = A2 * sum_a + B2 * sum_b + m[5 * s];
}

/* On a field of rows of 6. */
#define BOTH_WAYS(once, field, columns, rows)                       \
    do {                                                            \
        for (int k_ = 0; k_ < (columns); k_++) once((field) + k_, (field) + k_, TILE);           \
        for (int k_ = 0; k_ < (rows); k_++) once((field) + k_ * TILE, (field) + k_ * TILE, 1);   \
    } while (0)

typedef struct {
    int64_t n, h, w, c;
} Image;

/* side x side pixels of an image from (top, left) on, zero outside of it, transformed: of channels [from, to), for
 * each point p, to out[(c / PANEL) * panel + c % PANEL + p * plane]. `whole`: all pixels and channels exist. */
ALWAYS void tile_channels(const float *x, Image s, int64_t top, int64_t left, const int side, const int whole,
                          int64_t from, int64_t to, float *out, int64_t panel, int64_t plane) {
    for (int64_t c = from; c < to; c += LANES) {
        vec field[POINTS];
        for (int i = 0; i < side; i++)
            for (int j = 0; j < side; j++) {
                int64_t row = top + i, column = left + j;
                const int there = whole || (row >= 0 && row < s.h && column >= 0 && column < s.w && c < s.c);
                const float *p = x + (there ? (row * s.w + column) * s.c + c : 0);
                field[i * TILE + j] = whole ? load(p) : there ? load_some(p, s.c - c) : (vec){0};
            }
        if (side == TILE)
            BOTH_WAYS(of_input, field, TILE, TILE);
        else
            BOTH_WAYS(of_four, field, STEP, TILE);
        float *at = out + c / PANEL * panel + c % PANEL;
        for (int p = 0; p < POINTS; p++) store(at + p * plane, field[p]);
    }
}

/* The same for channels [0, padded), as much of it as may be without asking where the image ends. */
ALWAYS void tile_in(const float *x, Image s, int64_t top, int64_t left, const int side, int64_t padded, float *out,
                    int64_t panel, int64_t plane) {
    const int inside = top >= 0 && left >= 0 && top + side <= s.h && left + side <= s.w;
    const int64_t whole = inside ? s.c / LANES * LANES : 0;
    tile_channels(x, s, top, left, side, 1, 0, whole, out, panel, plane);
    tile_channels(x, s, top, left, side, 0, whole, padded, out, panel, plane);
}

/* Where tile t of an image's grid begins, without padding. */
ALWAYS void tile_at(int64_t t, int64_t down, int64_t across, int64_t *image, int64_t *top, int64_t *left) {
    *image = t / (down * across);
    *top = t / across % down * STEP;
    *left = t % across * STEP;
}

/* Filters of the results [first, last) as the kernel's B: u[result panel][point][contracted][lane], from the panel of
 * `first` on. The filters w lie as O, 3, 3, I.
 * Forward contracts I, vectors are over O: LANES x LANES are turned over on the way.
 * Backward-data contracts O, vectors are over I, and the filter is turned by half a circle. */
static void filters(const float *w, int64_t o, int64_t i, int backward, int64_t first, int64_t last, float *u) {
    const int64_t depth = backward ? o : i, groups = up(last - first, PANEL) / LANES;
    const int64_t count = up(depth, LANES) / LANES;
#pragma omp for schedule(static)
    for (int64_t item = 0; item < groups * count; item++) {
        const int64_t r = first + item / count * LANES, from = item % count * LANES;
        const int64_t to = from + LANES < depth ? from + LANES : depth;
        float *panel = u + (r - first) / PANEL * POINTS * depth * PANEL + r % PANEL;
        float turned[9][LANES][LANES];
        if (!backward)
            for (int lane = 0; lane < LANES; lane++)
                for (int tap = 0; tap < 9; tap++)
                    for (int64_t k = from; k < to; k++)
                        turned[tap][k - from][lane] = r + lane < o ? w[((r + lane) * 9 + tap) * i + k] : 0;
        for (int64_t k = from; k < to; k++) {
            vec field[POINTS];
            for (int tap = 0; tap < 9; tap++)
                field[tap / 3 * TILE + tap % 3] =
                    backward ? load_some(w + (k * 9 + 8 - tap) * i + r, i - r) : load(turned[tap][k - from]);
            BOTH_WAYS(of_three, field, 3, TILE);
            for (int p = 0; p < POINTS; p++) store(panel + (p * depth + k) * PANEL, field[p]);
        }
    }
}

/* What both entries are told; mirrored by winograd.py. */
typedef struct {
    int64_t n, h, w, c;          /* what is read by tiles of 6x6 */
    int64_t to_h, to_w, to_c;    /* the convolution's result, or dy */
    int64_t pad_h, pad_w;
    int64_t turned;              /* backward-data: w lies as c, 3, 3, to_c */
    int64_t relu;                /* behind the bias */
    int64_t block, threads;      /* tiles at a time; even in a convolution */
} Geometry;

static int64_t tiles_down(const Geometry *g) { return up(g->to_h, STEP) / STEP; }
static int64_t tiles_across(const Geometry *g) { return up(g->to_w, STEP) / STEP; }
static int64_t tiles(const Geometry *g) { return g->n * tiles_down(g) * tiles_across(g); }
static int64_t pitch(int64_t channels) { return up(channels, LANES) + LANES; } /* no power of two: cache sets */

/* Whether each thread has one block at most: then filters are transformed for GROUP channels of the result at a time. */
static int in_one_round(const Geometry *g) { return tiles(g) <= g->block * g->threads; }
/* Whether all tiles are one block, of panels for every thread: then a panel's sums are wanted one at a time. */
static int in_one_block(const Geometry *g) { return tiles(g) <= g->block && up(g->c, PANEL) / PANEL >= g->threads; }

/* The workspaces, in floats. */
static int64_t filter_floats(const Geometry *g) {
    const int64_t channels = up(g->to_c, PANEL);
    return POINTS * g->c * (in_one_round(g) && channels > GROUP ? GROUP : channels);
}
static int64_t read_floats(const Geometry *g) { return POINTS * g->block * pitch(g->c); }
static int64_t product_floats(const Geometry *g) {
    const int64_t channels = up(g->to_c, PANEL);
    return POINTS * g->block * (channels < GROUP ? channels : GROUP);
}
static int64_t panel_floats(const Geometry *g) { return POINTS * g->block * up(g->c, PANEL); }
static int64_t dy_floats(const Geometry *g) { return POINTS * g->block * pitch(g->to_c); }
static int64_t sum_floats(const Geometry *g) {
    return POINTS * up(g->to_c, 2) * (in_one_block(g) ? g->threads * PANEL : up(g->c, PANEL));
}

int64_t winograd_convolve_bytes(const Geometry *g) {
    return 4 * (filter_floats(g) + g->threads * (read_floats(g) + product_floats(g)));
}

int64_t winograd_gradient_bytes(const Geometry *g) { return 4 * (panel_floats(g) + dy_floats(g) + sum_floats(g)); }

/* GROUP channels of `count` tiles of y from their products m[panel][point][tile][lane]. */
static void tiles_out(const Geometry *g, const float *m, int64_t first, int64_t count, int64_t from, const float *bias,
                      float *y) {
    const int64_t to = from + GROUP < g->to_c ? from + GROUP : g->to_c;
    for (int64_t t = 0; t < count; t++) {
        int64_t image, top, left;
        tile_at(first + t, tiles_down(g), tiles_across(g), &image, &top, &left);
        for (int64_t c = from; c < to; c += LANES) {
            const float *panel = m + (c - from) / PANEL * POINTS * g->block * PANEL + t * PANEL + c % PANEL;
            vec field[POINTS];
            for (int p = 0; p < POINTS; p++) field[p] = load(panel + p * g->block * PANEL);
            BOTH_WAYS(to_four, field, TILE, STEP);
            const vec added = bias ? load_some(bias + c, g->to_c - c) : (vec){0};
            for (int64_t a = 0; a < STEP && top + a < g->to_h; a++)
                for (int64_t b = 0; b < STEP && left + b < g->to_w; b++) {
                    const vec one = field[a * TILE + b] + added;
                    store_some(y + ((image * g->to_h + top + a) * g->to_w + left + b) * g->to_c + c,
                               g->relu ? where_positive(one, one) : one, g->to_c - c);
                }
        }
    }
}

static int64_t count_from(const Geometry *g, int64_t first) {
    const int64_t left_over = tiles(g) - first;
    return left_over < g->block ? left_over : g->block;
}

/* A block of tiles, transformed: v[point][tile][channel]. */
static void block_in(const Geometry *g, int64_t first, const float *x, float *v) {
    const Image in = {g->n, g->h, g->w, g->c};
    const int64_t row = pitch(g->c), plane = g->block * row;
    for (int64_t t = 0; t < count_from(g, first); t++) {
        int64_t image, top, left;
        tile_at(first + t, tiles_down(g), tiles_across(g), &image, &top, &left);
        tile_in(x + image * g->h * g->w * g->c, in, top - g->pad_h, left - g->pad_w, TILE, up(g->c, LANES), v + t * row,
                PANEL, plane);
    }
}

/* GROUP channels of a block's result from r on, of u's panels for these; behind v stands m, as above. */
static void group_out(const Geometry *g, int64_t first, int64_t r, const float *u, const float *bias, float *y,
                      float *v) {
    const int64_t count = count_from(g, first), row = pitch(g->c), plane = g->block * row;
    float *m = v + read_floats(g);
    for (int p = 0; p < POINTS; p++)
        for (int64_t c = 0; c < GROUP && r + c < g->to_c; c += PANEL)
            multiply(up(count, 2), g->c, v + p * plane, row, 1, u + (c / PANEL * POINTS + p) * g->c * PANEL,
                     m + (c / PANEL * POINTS + p) * g->block * PANEL, 0);
    tiles_out(g, m, first, count, r, bias, y);
}

/* y = x * w (+ bias where it is not null, then ReLU where it is asked for), or dx of dy with the filter turned; NHWC
 * and OHWI. */
void winograd_convolve(const Geometry *g, const float *x, const float *w, const float *bias, float *y,
                       float *workspace) {
    float *u = workspace;
    const int64_t o = g->turned ? g->c : g->to_c, i = g->turned ? g->to_c : g->c;
#pragma omp parallel num_threads(g->threads)
    {
        float *own = u + filter_floats(g);
        const int64_t each = read_floats(g) + product_floats(g);
        if (in_one_round(g)) {
#pragma omp for schedule(static)
            for (int64_t first = 0; first < tiles(g); first += g->block)
                block_in(g, first, x, own + first / g->block * each);
            for (int64_t r = 0; r < g->to_c; r += GROUP) {
                filters(w, o, i, g->turned, r, r + GROUP < g->to_c ? r + GROUP : g->to_c, u);
#pragma omp for schedule(static)
                for (int64_t first = 0; first < tiles(g); first += g->block)
                    group_out(g, first, r, u, bias, y, own + first / g->block * each);
            }
        } else {
            filters(w, o, i, g->turned, 0, g->to_c, u);
            own += omp_get_thread_num() * each;
#pragma omp for schedule(dynamic)
            for (int64_t first = 0; first < tiles(g); first += g->block) {
                block_in(g, first, x, own);
                for (int64_t r = 0; r < g->to_c; r += GROUP)
                    group_out(g, first, r, u + r * POINTS * g->c, bias, y, own);
            }
        }
    }
}

/* One filter of dw, LANES channels of it from c on, of their panel's sums s[point][filter][lane]. */
ALWAYS void filter_out(const Geometry *g, const float *s, int64_t o, int64_t c, float *dw) {
    const int64_t rows = up(g->to_c, 2);
    vec field[POINTS];
    for (int p = 0; p < POINTS; p++) field[p] = load(s + (p * rows + o) * PANEL + c % PANEL);
    BOTH_WAYS(to_three, field, TILE, 3);
    for (int tap = 0; tap < 9; tap++)
        store_some(dw + (o * 9 + tap) * g->c + c, field[tap / 3 * TILE + tap % 3], g->c - c);
}

/* dw = the correlation of x with dy. Sums over all tiles in the order of the blocks: s[panel][point][filter][lane]. */
void winograd_gradient(const Geometry *g, const float *x, const float *dy, float *dw, float *workspace) {
    const Image in = {g->n, g->h, g->w, g->c}, from = {g->n, g->to_h, g->to_w, g->to_c};
    float *v = workspace, *d = v + panel_floats(g), *s = d + dy_floats(g);
    const int64_t panels = up(g->c, PANEL) / PANEL, rows = up(g->to_c, 2), row = pitch(g->to_c);
    const int64_t plane = g->block * PANEL, panel = POINTS * plane, sums = POINTS * rows * PANEL;
    const int once = in_one_block(g);
#pragma omp parallel num_threads(g->threads)
    {
        for (int64_t first = 0; first < tiles(g); first += g->block) {
            const int64_t count = count_from(g, first);
#pragma omp for schedule(static)
            for (int64_t t = 0; t < count; t++) {
                int64_t image, top, left;
                tile_at(first + t, tiles_down(g), tiles_across(g), &image, &top, &left);
                tile_in(x + image * g->h * g->w * g->c, in, top - g->pad_h, left - g->pad_w, TILE, up(g->c, PANEL),
                        v + t * PANEL, panel, plane);
                tile_in(dy + image * g->to_h * g->to_w * g->to_c, from, top, left, STEP, up(g->to_c, LANES),
                        d + t * row, PANEL, g->block * row);
            }
            if (!once) {
#pragma omp for schedule(static)
                for (int64_t item = 0; item < POINTS * panels; item++) {
                    const int64_t p = item / panels, each = item % panels;
                    multiply(rows, count, d + p * g->block * row, 1, row, v + each * panel + p * plane,
                             s + each * sums + p * rows * PANEL, first > 0);
                }
            }
        }
        if (once) {
            float *own = s + omp_get_thread_num() * sums;
#pragma omp for schedule(static)
            for (int64_t each = 0; each < panels; each++) {
                for (int p = 0; p < POINTS; p++)
                    multiply(rows, tiles(g), d + p * g->block * row, 1, row, v + each * panel + p * plane,
                             own + p * rows * PANEL, 0);
                for (int64_t o = 0; o < g->to_c; o++)
                    for (int64_t c = each * PANEL; c < (each + 1) * PANEL && c < g->c; c += LANES)
                        filter_out(g, own, o, c, dw);
            }
        } else {
#pragma omp for schedule(static)
            for (int64_t o = 0; o < g->to_c; o++)
                for (int64_t c = 0; c < g->c; c += LANES) filter_out(g, s + c / PANEL * sums, o, c, dw);
        }
    }
}
