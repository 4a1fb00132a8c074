/* Winograd convolution at stride 1 on NHWC activations (Lavin and Gray, "Fast Algorithms for Convolutional Neural
 * Networks", CVPR 2016, section 4). The file that includes this defines FILTER, the side of the filters: 3 or 5.
 *
 * All passes read the input in tiles of 6x6 that are STEP = 7 - FILTER apart. Forward, and backward-data with the
 * filter turned, are F(STEP x STEP, FILTER x FILTER): each tile gives STEP x STEP pixels of the output. Backward-filter
 * is F(FILTER x FILTER, STEP x STEP): each tile, with STEP x STEP pixels of dy, adds to dW. All evaluate polynomials
 * at 0, +-sqrt(1/2), +-sqrt(2) and infinity; points so near to 1 keep the rounding small.
 *
 * The code needs no alignment and allocates nothing: the caller brings the workspace. Each element of a result is
 * summed in one order, whatever the number of threads.
 */
#pragma once
#include <omp.h>

#include "product.h"

#define JOINED(filter, name) winograd##filter##x##filter##_##name
#define WITH_FILTER(filter, name) JOINED(filter, name)
#define NAMED(name) WITH_FILTER(FILTER, name) /* winograd5x5_convolve */

enum { TILE = 6, STEP = 7 - FILTER, TAPS = FILTER * FILTER, POINTS = TILE * TILE };
enum { GROUP = 4 * 16 }; /* channels of the result whose products are transformed together */

/* Powers of the point a = sqrt(1/2), and of the point b = sqrt(2). */
static const float A[] = {1, 0.70710678118654752f, 0.5f, 0.35355339059327376f, 0.25f};
static const float B[] = {1, 1.41421356237309505f, 2.0f, 2.82842712474619010f, 4.0f};

/* The one-dimensional transforms, which also work in place. A two-dimensional transform is one of them on the columns,
 * then on the rows. `s` is the stride of both input and output. */

ALWAYS void of_input(const vec *d, vec *t, int s, int count) { /* 6 -> 6, B^T */
    (void)count;
    vec d0 = d[0], d1 = d[s], d2 = d[2 * s], d3 = d[3 * s], d4 = d[4 * s], d5 = d[5 * s];
    vec even_a = d4 - B[2] * d2, odd_a = A[1] * d3 - B[1] * d1;
    vec even_b = d4 - A[2] * d2, odd_b = B[1] * d3 - A[1] * d1;
    t[0] = d0 - 2.5f * d2 + d4;
    t[s] = even_a + odd_a;
    t[2 * s] = even_a - odd_a;
    t[3 * s] = even_b + odd_b;
    t[4 * s] = even_b - odd_b;
    t[5 * s] = d1 - 2.5f * d3 + d5;
}

/* The values at the six points of the polynomial with `count` coefficients g. This is G: count -> 6. */
ALWAYS void at_points(const vec *g, vec *t, int s, const int count) {
    vec even_a = g[0], odd_a = A[1] * g[s], even_b = g[0], odd_b = B[1] * g[s];
    const vec first = g[0], last = g[(count - 1) * s];
    _Pragma("GCC unroll 4") for (int k = 2; k < count; k++) {
        if (k % 2) {
            odd_a += A[k] * g[k * s];
            odd_b += B[k] * g[k * s];
        } else {
            even_a += A[k] * g[k * s];
            even_b += B[k] * g[k * s];
        }
    }
    even_a *= -2.0f / 3, odd_a *= -2.0f / 3, even_b *= 1.0f / 6, odd_b *= 1.0f / 6;
    t[0] = first;
    t[s] = even_a + odd_a;
    t[2 * s] = even_a - odd_a;
    t[3 * s] = even_b + odd_b;
    t[4 * s] = even_b - odd_b;
    t[5 * s] = last;
}

/* `count` results from the products at the six points. This is A^T: 6 -> count. */
ALWAYS void from_points(const vec *m, vec *y, int s, const int count) {
    const vec first = m[0], last = m[5 * s];
    const vec sum_a = m[s] + m[2 * s], difference_a = m[s] - m[2 * s];
    const vec sum_b = m[3 * s] + m[4 * s], difference_b = m[3 * s] - m[4 * s];
    _Pragma("GCC unroll 8") for (int k = 0; k < count; k++) {
        const vec of_a = k % 2 ? difference_a : sum_a, of_b = k % 2 ? difference_b : sum_b;
        vec sum = A[k] * of_a + B[k] * of_b;
        if (k == 0) sum = first + sum;
        if (k == count - 1) sum += last;
        y[k * s] = sum;
    }
}

/* Applies `once` to the first `columns` columns of a field with rows of 6, then to its first `rows` rows. `count` is
 * the number of values that `once` reads (at_points) or writes (from_points). */
#define BOTH_WAYS(once, field, columns, rows, count)                                                     \
    do {                                                                                                \
        for (int k_ = 0; k_ < (columns); k_++) once((field) + k_, (field) + k_, TILE, count);           \
        for (int k_ = 0; k_ < (rows); k_++) once((field) + k_ * TILE, (field) + k_ * TILE, 1, count);   \
    } while (0)

typedef struct {
    int64_t h, w, c, pitch; /* c: channels of a group; pitch: floats from pixel to pixel, the channels of all groups */
} Image;

/* Transforms side x side pixels of an image from (top, left) on, zero outside of it, for channels [from, to). The value
 * of channel c at point p goes to out[(c / PANEL) * panel + c % PANEL + p * plane]. `whole`: all these pixels and
 * channels exist. */
ALWAYS void tile_channels(const float *x, Image s, int64_t top, int64_t left, const int side, const int whole,
                          int64_t from, int64_t to, float *out, int64_t panel, int64_t plane) {
    for (int64_t c = from; c < to; c += LANES) {
        vec field[POINTS];
        for (int i = 0; i < side; i++)
            for (int j = 0; j < side; j++) {
                int64_t row = top + i, column = left + j;
                const int there = whole || (row >= 0 && row < s.h && column >= 0 && column < s.w && c < s.c);
                const float *p = x + (there ? (row * s.w + column) * s.pitch + c : 0);
                field[i * TILE + j] = whole ? load(p) : there ? load_some(p, s.c - c) : (vec){0};
            }
        if (side == TILE)
            BOTH_WAYS(of_input, field, TILE, TILE, TILE);
        else
            BOTH_WAYS(at_points, field, STEP, TILE, STEP);
        float *at = out + c / PANEL * panel + c % PANEL;
        for (int p = 0; p < POINTS; p++) store(at + p * plane, field[p]);
    }
}

/* The same for channels [0, padded). Whole vectors of a tile inside the image need no check of the image's edges. */
ALWAYS void tile_in(const float *x, Image s, int64_t top, int64_t left, const int side, int64_t padded, float *out,
                    int64_t panel, int64_t plane) {
    const int inside = top >= 0 && left >= 0 && top + side <= s.h && left + side <= s.w;
    const int64_t whole = inside ? s.c / LANES * LANES : 0;
    tile_channels(x, s, top, left, side, 1, 0, whole, out, panel, plane);
    tile_channels(x, s, top, left, side, 0, whole, padded, out, panel, plane);
}

/* The image of tile t, and the pixel of the result where the tile begins. */
ALWAYS void tile_at(int64_t t, int64_t down, int64_t across, int64_t *image, int64_t *top, int64_t *left) {
    *image = t / (down * across);
    *top = t / across % down * STEP;
    *left = t % across * STEP;
}

/* Transforms the filters of the result's channels [first, last) into the products' B, from the panel of `first` on:
 * u[result panel][point][contracted][lane]. The filters w lie as O, taps, I.
 * Forward sums over I and its vectors are over O, so blocks of LANES x LANES are transposed on the way.
 * Backward-data sums over O and its vectors are over I; the filter is turned by half a circle. */
static void filters(const float *w, int64_t o, int64_t i, int backward, int64_t first, int64_t last, float *u) {
    const int64_t depth = backward ? o : i, groups = up(last - first, PANEL) / LANES;
    const int64_t count = up(depth, LANES) / LANES;
#pragma omp for schedule(static)
    for (int64_t item = 0; item < groups * count; item++) {
        const int64_t r = first + item / count * LANES, from = item % count * LANES;
        const int64_t to = from + LANES < depth ? from + LANES : depth;
        float *panel = u + (r - first) / PANEL * POINTS * depth * PANEL + r % PANEL;
        float turned[TAPS][LANES][LANES];
        if (!backward)
            for (int lane = 0; lane < LANES; lane++)
                for (int tap = 0; tap < TAPS; tap++)
                    for (int64_t k = from; k < to; k++)
                        turned[tap][k - from][lane] = r + lane < o ? w[((r + lane) * TAPS + tap) * i + k] : 0;
        for (int64_t k = from; k < to; k++) {
            vec field[POINTS];
            for (int tap = 0; tap < TAPS; tap++)
                field[tap / FILTER * TILE + tap % FILTER] =
                    backward ? load_some(w + (k * TAPS + TAPS - 1 - tap) * i + r, i - r) : load(turned[tap][k - from]);
            BOTH_WAYS(at_points, field, FILTER, TILE, FILTER);
            for (int p = 0; p < POINTS; p++) store(panel + (p * depth + k) * PANEL, field[p]);
        }
    }
}

/* The geometry, for both entries. */
typedef struct {
    int64_t n, h, w, c;          /* of the tensor that is read in 6x6 tiles; c: channels of a group */
    int64_t to_h, to_w, to_c;    /* of the convolution's result, or of dy */
    int64_t group;
    int64_t pad_h, pad_w;
    int64_t turned;              /* whether this is backward-data: then w lies as c, taps, to_c */
    int64_t relu;                /* whether a ReLU follows the bias */
    int64_t block, threads;      /* block: tiles at a time; even unless backward-filter */
} Geometry;

static int64_t tiles_down(const Geometry *g) { return up(g->to_h, STEP) / STEP; }
static int64_t tiles_across(const Geometry *g) { return up(g->to_w, STEP) / STEP; }
static int64_t tiles(const Geometry *g) { return g->n * tiles_down(g) * tiles_across(g); }
/* Floats from tile to tile. The extra LANES avoid a power of two, which would use few of the cache's sets. */
static int64_t pitch(int64_t channels) { return up(channels, LANES) + LANES; }

/* Whether each thread has at most one block. Then filters are transformed for GROUP channels of the result at once. */
static int in_one_round(const Geometry *g) { return g->group == 1 && tiles(g) <= g->block * g->threads; }
/* Whether all tiles are one block, and there are enough panels for all threads. Then a thread needs the sums of only
 * one panel at a time. */
static int in_one_block(const Geometry *g) { return tiles(g) <= g->block && up(g->c, PANEL) / PANEL >= g->threads; }

/* Sizes of the parts of the workspace, in floats. */
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

int64_t NAMED(convolve_bytes)(const Geometry *g) {
    return 4 * (g->group * filter_floats(g) + g->threads * (read_floats(g) + product_floats(g)));
}

int64_t NAMED(gradient_bytes)(const Geometry *g) { return 4 * (panel_floats(g) + dy_floats(g) + sum_floats(g)); }

/* Writes GROUP channels, from `from` on, of `count` tiles of y, from their products m[panel][point][tile][lane]. */
static void tiles_out(const Geometry *g, const float *m, int64_t first, int64_t count, int64_t from, const float *bias,
                      float *y) {
    const int64_t to = from + GROUP < g->to_c ? from + GROUP : g->to_c, pitch_of_y = g->group * g->to_c;
    for (int64_t t = 0; t < count; t++) {
        int64_t image, top, left;
        tile_at(first + t, tiles_down(g), tiles_across(g), &image, &top, &left);
        for (int64_t c = from; c < to; c += LANES) {
            const float *panel = m + (c - from) / PANEL * POINTS * g->block * PANEL + t * PANEL + c % PANEL;
            vec field[POINTS];
            for (int p = 0; p < POINTS; p++) field[p] = load(panel + p * g->block * PANEL);
            BOTH_WAYS(from_points, field, TILE, STEP, STEP);
            const vec added = bias ? load_some(bias + c, g->to_c - c) : (vec){0};
            for (int64_t a = 0; a < STEP && top + a < g->to_h; a++)
                for (int64_t b = 0; b < STEP && left + b < g->to_w; b++) {
                    const vec one = field[a * TILE + b] + added;
                    store_some(y + ((image * g->to_h + top + a) * g->to_w + left + b) * pitch_of_y + c,
                               g->relu ? where_positive(one, one) : one, g->to_c - c);
                }
        }
    }
}

static int64_t count_from(const Geometry *g, int64_t first) {
    const int64_t left_over = tiles(g) - first;
    return left_over < g->block ? left_over : g->block;
}

/* Transforms a block of tiles of x into v[point][tile][channel]. */
static void block_in(const Geometry *g, int64_t first, const float *x, float *v) {
    const Image in = {g->h, g->w, g->c, g->group * g->c};
    const int64_t row = pitch(g->c), plane = g->block * row, count = count_from(g, first);
    for (int64_t t = 0; t < count; t++) {
        int64_t image, top, left;
        tile_at(first + t, tiles_down(g), tiles_across(g), &image, &top, &left);
        tile_in(x + image * g->h * g->w * in.pitch, in, top - g->pad_h, left - g->pad_w, TILE, up(g->c, LANES),
                v + t * row, PANEL, plane);
    }
}

/* Computes GROUP channels, from r on, of a block's result; u has the panels of these channels. The products m of
 * tiles_out lie after v in memory. */
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

/* y = x * w (+ bias unless it is null, then ReLU if g->relu). If g->turned, x is dy and y is dx. NHWC and OHWI. */
void NAMED(convolve)(const Geometry *g, const float *x, const float *w, const float *bias, float *y,
                     float *workspace) {
    const int64_t o = g->turned ? g->c : g->to_c, i = g->turned ? g->to_c : g->c, all = tiles(g);
    const int64_t blocks = (all + g->block - 1) / g->block, each = read_floats(g) + product_floats(g);
    float *u = workspace, *own = u + g->group * filter_floats(g);
    const int once = in_one_round(g);
#pragma omp parallel num_threads(g->threads)
    if (once) {
#pragma omp for schedule(static)
        for (int64_t k = 0; k < blocks; k++) block_in(g, k * g->block, x, own + k * each);
        for (int64_t r = 0; r < g->to_c; r += GROUP) {
            filters(w, o, i, g->turned, r, r + GROUP < g->to_c ? r + GROUP : g->to_c, u);
#pragma omp for schedule(static)
            for (int64_t k = 0; k < blocks; k++) group_out(g, k * g->block, r, u, bias, y, own + k * each);
        }
    } else {
        for (int64_t group = 0; group < g->group; group++)
            filters(w + group * o * TAPS * i, o, i, g->turned, 0, g->to_c, u + group * filter_floats(g));
        float *v = own + omp_get_thread_num() * each;
#pragma omp for schedule(dynamic)
        for (int64_t item = 0; item < g->group * blocks; item++) {
            const int64_t group = item / blocks, first = item % blocks * g->block;
            block_in(g, first, x + group * g->c, v);
            for (int64_t r = 0; r < g->to_c; r += GROUP)
                group_out(g, first, r, u + group * filter_floats(g) + r * POINTS * g->c,
                          bias ? bias + group * g->to_c : bias, y + group * g->to_c, v);
        }
    }
}

/* Writes LANES channels, from c on, of filter o of dw, from their panel's sums s[point][filter][lane]. */
ALWAYS void filter_out(const Geometry *g, const float *s, int64_t rows, int64_t o, int64_t c, float *dw) {
    vec field[POINTS];
    for (int p = 0; p < POINTS; p++) field[p] = load(s + (p * rows + o) * PANEL + c % PANEL);
    BOTH_WAYS(from_points, field, TILE, FILTER, FILTER);
    for (int tap = 0; tap < TAPS; tap++)
        store_some(dw + (o * TAPS + tap) * g->c + c, field[tap / FILTER * TILE + tap % FILTER], g->c - c);
}

/* dw = the correlation of x with dy. The sums s[panel][point][filter][lane] take the blocks of tiles in their order. */
void NAMED(gradient)(const Geometry *g, const float *x, const float *dy, float *dw, float *workspace) {
    const Image in = {g->h, g->w, g->c, g->group * g->c}, from = {g->to_h, g->to_w, g->to_c, g->group * g->to_c};
    float *v = workspace, *d = v + panel_floats(g), *s = d + dy_floats(g);
    const int64_t panels = up(g->c, PANEL) / PANEL, rows = up(g->to_c, 2), row = pitch(g->to_c), all = tiles(g);
    const int64_t plane = g->block * PANEL, panel = POINTS * plane, sums = POINTS * rows * PANEL;
    const int once = in_one_block(g);
#pragma omp parallel num_threads(g->threads)
    for (int64_t group = 0; group < g->group; group++) {
        float *of_group = dw + group * g->to_c * TAPS * g->c;
        for (int64_t first = 0; first < all; first += g->block) {
            const int64_t count = count_from(g, first);
#pragma omp for schedule(static)
            for (int64_t t = 0; t < count; t++) {
                int64_t image, top, left;
                tile_at(first + t, tiles_down(g), tiles_across(g), &image, &top, &left);
                tile_in(x + image * g->h * g->w * in.pitch + group * g->c, in, top - g->pad_h, left - g->pad_w, TILE,
                        up(g->c, PANEL), v + t * PANEL, panel, plane);
                tile_in(dy + image * g->to_h * g->to_w * from.pitch + group * g->to_c, from, top, left, STEP,
                        up(g->to_c, LANES), d + t * row, PANEL, g->block * row);
            }
            if (!once) {
#pragma omp for schedule(static)
                for (int64_t item = 0; item < POINTS * panels; item++) {
                    const int64_t p = item / panels, one = item % panels;
                    multiply(rows, count, d + p * g->block * row, 1, row, v + one * panel + p * plane,
                             s + one * sums + p * rows * PANEL, first > 0);
                }
            }
        }
        if (once) {
            float *own = s + omp_get_thread_num() * sums;
#pragma omp for schedule(static)
            for (int64_t one = 0; one < panels; one++) {
                for (int p = 0; p < POINTS; p++)
                    multiply(rows, all, d + p * g->block * row, 1, row, v + one * panel + p * plane,
                             own + p * rows * PANEL, 0);
                for (int64_t o = 0; o < g->to_c; o++)
                    for (int64_t c = one * PANEL; c < (one + 1) * PANEL && c < g->c; c += LANES)
                        filter_out(g, own, rows, o, c, of_group);
            }
        } else {
#pragma omp for schedule(static)
            for (int64_t o = 0; o < g->to_c; o++)
                for (int64_t c = 0; c < g->c; c += LANES) filter_out(g, s + c / PANEL * sums, rows, o, c, of_group);
        }
    }
}
