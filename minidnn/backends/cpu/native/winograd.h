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

#include "pieces.h"
#include "product.h"

#define JOINED(filter, name) winograd##filter##x##filter##_##name
#define WITH_FILTER(filter, name) JOINED(filter, name)
#define NAMED(name) WITH_FILTER(FILTER, name) /* winograd5x5_convolve */

enum { TILE = 6, STEP = 7 - FILTER, TAPS = FILTER * FILTER, POINTS = TILE * TILE };
enum { GROUP = 4 * 16 }; /* channels of the result whose products are transformed together; winograd.py has it too */

/* Powers of the point a = sqrt(1/2), and of the point b = sqrt(2). */
static const float A[] = {1, 0.70710678118654752f, 0.5f, 0.35355339059327376f, 0.25f};
static const float B[] = {1, 1.41421356237309505f, 2.0f, 2.82842712474619010f, 4.0f};

/* The one-dimensional transforms. A two-dimensional one is one of them on the columns, then on the rows. */

ALWAYS vec plus_by(vec sum, float factor, vec x) { return fused(x, factor - (vec){0}, sum); }

ALWAYS void of_input(const vec d[TILE], vec t[TILE]) { /* 6 -> 6, B^T */
    const vec even_a = plus_by(d[4], -B[2], d[2]), odd_a = plus_by(-B[1] * d[1], A[1], d[3]);
    const vec even_b = plus_by(d[4], -A[2], d[2]), odd_b = plus_by(-A[1] * d[1], B[1], d[3]);
    t[0] = plus_by(d[0], -2.5f, d[2]) + d[4];
    t[1] = even_a + odd_a;
    t[2] = even_a - odd_a;
    t[3] = even_b + odd_b;
    t[4] = even_b - odd_b;
    t[5] = plus_by(d[1], -2.5f, d[3]) + d[5];
}

/* The values at the six points of the polynomial with `count` coefficients g. This is G: count -> 6. */
ALWAYS void at_points(const vec *g, vec t[TILE], const int count) {
    const float a = -2.0f / 3, b = 1.0f / 6;
    vec even_a = a * g[0], odd_a = a * A[1] * g[1], even_b = b * g[0], odd_b = b * B[1] * g[1];
    _Pragma("GCC unroll 4") for (int k = 2; k < count; k++) {
        if (k % 2) {
            odd_a = plus_by(odd_a, a * A[k], g[k]);
            odd_b = plus_by(odd_b, b * B[k], g[k]);
        } else {
            even_a = plus_by(even_a, a * A[k], g[k]);
            even_b = plus_by(even_b, b * B[k], g[k]);
        }
    }
    t[0] = g[0];
    t[1] = even_a + odd_a;
    t[2] = even_a - odd_a;
    t[3] = even_b + odd_b;
    t[4] = even_b - odd_b;
    t[5] = g[count - 1];
}

/* `count` results from the products at the six points. This is A^T: 6 -> count. */
ALWAYS void from_points(const vec m[TILE], vec *y, const int count) {
    const vec sum_a = m[1] + m[2], difference_a = m[1] - m[2];
    const vec sum_b = m[3] + m[4], difference_b = m[3] - m[4];
    y[0] = m[0] + (sum_a + sum_b);
    _Pragma("GCC unroll 8") for (int k = 1; k < count; k++) {
        const vec of_a = k % 2 ? difference_a : sum_a, of_b = k % 2 ? difference_b : sum_b;
        const vec sum = plus_by(B[k] * of_b, A[k], of_a);
        y[k] = k == count - 1 ? sum + m[5] : sum;
    }
}

/* A loop of a transform, unrolled: its vectors are in registers. */
#define EACH(k, count) _Pragma("GCC unroll 8") for (int k = 0; k < (count); k++)

/* The transform of `side` values: a whole tile's of the input, or fewer, of dy or of a filter. */
ALWAYS void to_points(const vec *values, vec t[TILE], const int side) {
    if (side == TILE)
        of_input(values, t);
    else
        at_points(values, t, side);
}

/* Column j of side x side values, transformed into a field with rows of 6. */
ALWAYS void column_in(const vec *values, vec field[POINTS], const int j, const int side) {
    vec t[TILE];
    to_points(values, t, side);
    EACH(i, TILE) field[i * TILE + j] = t[i];
}

/* The rows of that field, transformed and stored: the values at all points, `plane` floats apart. */
ALWAYS void rows_in(const vec field[POINTS], const int side, float *out, int64_t plane) {
    EACH(i, TILE) {
        vec t[TILE];
        to_points(field + i * TILE, t, side);
        EACH(j, TILE) store(out + (i * TILE + j) * plane, t[j]);
    }
}

/* The columns of the products at all points, `plane` floats apart: from 6 to `side` values each, in a field whose rows
 * are 6 long. */
ALWAYS void columns_out(const float *m, int64_t plane, vec field[POINTS], const int side) {
    EACH(j, TILE) {
        vec column[TILE], y[TILE];
        EACH(i, TILE) column[i] = load(m + (i * TILE + j) * plane);
        from_points(column, y, side);
        EACH(i, side) field[i * TILE + j] = y[i];
    }
}

typedef struct {
    int64_t h, w, c, pitch; /* c: channels of a group; pitch: floats from pixel to pixel, the channels of all groups */
} Image;

/* A tile is INSIDE if all its pixels and channels exist. At an EDGE some pixels lie outside of the image; if it is RAGGED,
 * so do some channels. */
enum { INSIDE, EDGE, RAGGED };

/* Transforms side x side pixels of an image from (top, left) on, zero outside of it, for channels [from, to). The value
 * of channel c at point p goes to out[(c / PANEL) * panel + c % PANEL + p * plane]. */
ALWAYS void tile_channels(const float *x, Image s, int64_t top, int64_t left, const int side, const int known,
                          int64_t from, int64_t to, float *out, int64_t panel, int64_t plane) {
    for (int64_t c = from; c < to; c += LANES) {
        vec field[POINTS];
        EACH(j, side) {
            const int64_t column = left + j;
            vec pixels[TILE];
            EACH(i, side) {
                const int64_t row = top + i;
                const int there = known == INSIDE || (row >= 0 && row < s.h && column >= 0 && column < s.w);
                const float *p = there ? x + (row * s.w + column) * s.pitch + c : ZEROS;
                pixels[i] = known == RAGGED && there ? load_some(p, s.c - c) : load(p);
            }
            column_in(pixels, field, j, side);
        }
        rows_in(field, side, out + c / PANEL * panel + c % PANEL, plane);
    }
}

/* The same for channels [0, padded). */
ALWAYS void tile_in(const float *x, Image s, int64_t top, int64_t left, const int side, int64_t padded, float *out,
                    int64_t panel, int64_t plane) {
    const int inside = top >= 0 && left >= 0 && top + side <= s.h && left + side <= s.w;
    const int64_t whole = s.c / LANES * LANES;
    if (inside)
        tile_channels(x, s, top, left, side, INSIDE, 0, whole, out, panel, plane);
    else
        tile_channels(x, s, top, left, side, EDGE, 0, whole, out, panel, plane);
    tile_channels(x, s, top, left, side, RAGGED, whole, padded, out, panel, plane);
}

/* The image of tile t, and the pixel of the result where the tile begins. */
ALWAYS void tile_at(int64_t t, int64_t down, int64_t across, int64_t *image, int64_t *top, int64_t *left) {
    *image = t / (down * across);
    *top = t / across % down * STEP;
    *left = t % across * STEP;
}

/* Floats from the values at one point to those at the next, for `rows` rows of `row` floats. The extra LANES avoid a
 * power of two, which would use few of the cache's sets. */
static int64_t plane(int64_t rows, int64_t row) { return rows * row + LANES; }

/* The filters w, which lie as O, taps, I, for one pass. Forward sums over I and its vectors are over O, so blocks of
 * LANES x LANES are transposed on the way. Backward-data sums over O and its vectors are over I; the filter is turned
 * by half a circle. */
typedef struct {
    const float *w;
    int64_t o, i;
    int backward;
} Filters;

/* Each filter is a few cache lines, far from the next filter's; a CPU does not prefetch them by itself. They go to the
 * second-level cache, since these distances use few sets of the first. */
enum { FILTERS_AHEAD = 4 };

/* Transforms the filters of up to LANES channels of the result, from r on, and up to LANES contracted ones, [from, to).
 * The values for contracted channel k at point p go to u + p * plane + (k - from) * PANEL. */
static void filters_of_lanes(Filters f, int64_t r, int64_t from, int64_t to, float *u, int64_t plane) {
    vec turned[TAPS][LANES];
    if (!f.backward)
        for (int tap = 0; tap < TAPS; tap++) {
            for (int64_t lane = 0; lane < LANES; lane++) {
                const float *at = f.w + ((r + lane) * TAPS + tap) * f.i + from;
                turned[tap][lane] = r + lane < f.o ? load_some(at, f.i - from) : (vec){0};
                __builtin_prefetch(at + LANES, 0, 2);
            }
            transpose(turned[tap]);
        }
    for (int64_t k = from; k < to; k++, u += PANEL) {
        vec field[POINTS];
        EACH(j, FILTER) {
            vec taps[FILTER];
            EACH(i, FILTER) {
                const int tap = i * FILTER + j;
                const float *at = f.w + (k * TAPS + TAPS - 1 - tap) * f.i + r;
                taps[i] = f.backward ? load_some(at, f.i - r) : turned[tap][k - from];
                if (f.backward) __builtin_prefetch(at + FILTERS_AHEAD * TAPS * f.i, 0, 2);
            }
            column_in(taps, field, j, FILTER);
        }
        rows_in(field, FILTER, u, plane);
    }
}

/* The same for one piece of the channels [first, last) of the result and the contracted channels [from, to).
 * `filter_pieces` counts the pieces, and `item` is the piece's number. The values for `first` and `from` go to u.
 * Successive pieces lie side by side in w. */
static void filters(Filters f, int64_t first, int64_t last, int64_t from, int64_t to, int64_t item, float *u,
                    int64_t plane) {
    const int64_t across = up(last - first, LANES) / LANES, down = up(to - from, LANES) / LANES;
    const int64_t r = (f.backward ? item % across : item / down) * LANES;
    const int64_t k = (f.backward ? item / across : item % down) * LANES;
    filters_of_lanes(f, first + r, from + k, from + k + LANES < to ? from + k + LANES : to,
                     u + r / PANEL * POINTS * plane + r % PANEL + k * PANEL, plane);
}

static int64_t filter_pieces(int64_t channels, int64_t contracted) {
    return up(channels, LANES) / LANES * (up(contracted, LANES) / LANES);
}

/* The geometry, for both entries. */
typedef struct {
    int64_t n, h, w, c;          /* of the tensor that is read in 6x6 tiles; c: channels of a group */
    int64_t to_h, to_w, to_c;    /* of the convolution's result, or of dy */
    int64_t group;
    int64_t pad_h, pad_w;
    int64_t turned;              /* whether this is backward-data: then w lies as c, taps, to_c */
    int64_t relu;                /* whether a ReLU follows the bias */
    int64_t block, threads;      /* block: tiles at a time */
    int64_t few;                 /* whether a block has all tiles, and threads share the channels of the result */
} Geometry;

static int64_t tiles_down(const Geometry *g) { return up(g->to_h, STEP) / STEP; }
static int64_t tiles_across(const Geometry *g) { return up(g->to_w, STEP) / STEP; }
static int64_t tiles(const Geometry *g) { return g->n * tiles_down(g) * tiles_across(g); }
/* Floats from tile to tile; the extra LANES as in `plane`. */
static int64_t pitch(int64_t channels) { return up(channels, LANES) + LANES; }

/* Sizes of the parts of the workspace, in floats. */
static int64_t filters_plane(const Geometry *g) {
    return plane(g->few && g->c > DEEP ? DEEP : g->c, PANEL);
}
static int64_t filter_floats(const Geometry *g) {
    return POINTS * filters_plane(g) * (up(g->few ? GROUP : g->to_c, PANEL) / PANEL);
}
static int64_t read_plane(const Geometry *g) { return plane(g->block, pitch(g->c)); }
static int64_t read_floats(const Geometry *g) { return POINTS * read_plane(g); }
static int64_t products_plane(const Geometry *g) { return plane(g->block, PANEL); }
static int64_t product_floats(const Geometry *g) {
    const int64_t channels = up(g->to_c, PANEL);
    return POINTS * products_plane(g) * ((channels < GROUP ? channels : GROUP) / PANEL);
}

int64_t NAMED(convolve_bytes)(const Geometry *g) {
    if (g->few) return 4 * (read_floats(g) + g->threads * (filter_floats(g) + product_floats(g)));
    return 4 * (g->group * filter_floats(g) + g->threads * (read_floats(g) + product_floats(g)));
}

/* Whether a vector is a line of the caches, and each group's channels are whole vectors. Only whole lines may go past
 * the caches, one by one. */
static int by_lines(const Geometry *g) { return sizeof(vec) == 64 && g->to_c % LANES == 0; }

/* Writes channels [from, to) of `count` tiles of y, from their products m[panel][point][tile][lane]. */
static void tiles_out(const Geometry *g, const float *m, int64_t first, int64_t count, int64_t from, int64_t to,
                      const float *bias, int past, float *y) {
    const int64_t pitch_of_y = g->group * g->to_c;
    for (int64_t t = 0; t < count; t++) {
        int64_t image, top, left;
        tile_at(first + t, tiles_down(g), tiles_across(g), &image, &top, &left);
        for (int64_t c = from; c < to; c += LANES) {
            const int64_t k = c - from;
            const float *panel = m + k / PANEL * POINTS * products_plane(g) + t * PANEL + k % PANEL;
            vec field[POINTS];
            columns_out(panel, products_plane(g), field, STEP);
            const vec added = bias ? load_some(bias + c, g->to_c - c) : (vec){0};
            for (int64_t a = 0; a < STEP && top + a < g->to_h; a++) {
                vec row[STEP];
                from_points(field + a * TILE, row, STEP);
                EACH(b, STEP) {
                    const vec one = row[b] + added;
                    if (left + b < g->to_w)
                        put(y + ((image * g->to_h + top + a) * g->to_w + left + b) * pitch_of_y + c,
                            g->relu ? where_positive(one, one) : one, g->to_c - c, past);
                }
            }
        }
    }
}

static int64_t count_from(const Geometry *g, int64_t first) {
    const int64_t left_over = tiles(g) - first;
    return left_over < g->block ? left_over : g->block;
}

/* Transforms tile `first + t` of x into v[point][t][channel]. */
static void one_in(const Geometry *g, int64_t first, int64_t t, const float *x, float *v) {
    const Image in = {g->h, g->w, g->c, g->group * g->c};
    int64_t image, top, left;
    tile_at(first + t, tiles_down(g), tiles_across(g), &image, &top, &left);
    tile_in(x + image * g->h * g->w * in.pitch, in, top - g->pad_h, left - g->pad_w, TILE, up(g->c, LANES),
            v + t * pitch(g->c), PANEL, read_plane(g));
}

/* The products of `count` tiles at a point. They are for `wide` channels of the result, and sum over the contracted
 * channels [k, k + depth). The filters' panels in u begin with these channels and with k. The products go to
 * m[panel][point][tile][lane], and are added to it if k is not 0. */
static void products(const Geometry *g, int point, int64_t count, int64_t wide, int64_t k, int64_t depth,
                     const float *u, const float *v, float *m) {
    const int64_t panels = up(wide, PANEL) / PANEL;
    const int64_t tiles = up(count, ROWS) / ROWS * panels * (up(depth, DEEP) / DEEP);
    const float *a = v + point * read_plane(g) + k;
    Ahead coming[2] = {ahead(a + read_plane(g), count, depth, pitch(g->c), tiles)};
    const Product p = {
        .depth = depth, .down = pitch(g->c), .along = 1, .step = PANEL, .over = POINTS * filters_plane(g),
        .pitch = PANEL, .aside = POINTS * products_plane(g), .panels = panels, .half = wide <= panels * PANEL - LANES,
        .coming = coming, .then = u + (point + 1) * filters_plane(g),
    };
    multiply(p, count, a, u + point * filters_plane(g), m + point * products_plane(g), k > 0);
}

/* `convolve`, if g->few. A thread transforms only the filters of its own channels, DEEP contracted ones at a time.
 * These and their products stay in its cache. */
static void convolve_few(const Geometry *g, Filters f, const float *x, const float *bias, float *y, float *workspace) {
    const int64_t count = tiles(g), vectors = up(g->to_c, LANES) / LANES;
    float *v = workspace, *each = v + read_floats(g);
#pragma omp parallel num_threads(g->threads)
    {
        float *u = each + omp_get_thread_num() * (filter_floats(g) + product_floats(g)), *m = u + filter_floats(g);
#pragma omp for schedule(static)
        for (int64_t t = 0; t < count; t++) one_in(g, 0, t, x, v);
#pragma omp for schedule(static)
        for (int64_t part = 0; part < g->threads; part++) {
            const int64_t begin = part * vectors / g->threads * LANES, end = (part + 1) * vectors / g->threads * LANES;
            for (int64_t r = begin; r < end; r += GROUP) {
                const int64_t most = end < g->to_c ? end : g->to_c, last = r + GROUP < most ? r + GROUP : most;
                for (int64_t k = 0; k < g->c; k += DEEP) {
                    const int64_t to = k + DEEP < g->c ? k + DEEP : g->c;
                    for (int64_t item = 0; item < filter_pieces(last - r, to - k); item++)
                        filters(f, r, last, k, to, item, u, filters_plane(g));
                    for (int point = 0; point < POINTS; point++)
                        products(g, point, count, last - r, k, to - k, u, v, m);
                }
                tiles_out(g, m, 0, count, r, last, bias, 0, y);
            }
        }
    }
}

/* y = x * w (+ bias unless it is null, then ReLU if g->relu). If g->turned, x is dy and y is dx. NHWC and OHWI. */
void NAMED(convolve)(const Geometry *g, const float *x, const float *w, const float *bias, float *y,
                     float *workspace) {
    const int64_t o = g->turned ? g->c : g->to_c, i = g->turned ? g->to_c : g->c;
    const int64_t blocks = (tiles(g) + g->block - 1) / g->block, each = read_floats(g) + product_floats(g);
    const int64_t pieces = filter_pieces(g->to_c, g->c);
    float *u = workspace, *own = u + g->group * filter_floats(g);
    if (g->few) {
        convolve_few(g, (Filters){w, o, i, g->turned != 0}, x, bias, y, workspace);
        return;
    }
    const int past = by_lines(g) && goes_past(y, g->n * g->to_h * g->to_w, g->group * g->to_c);
#pragma omp parallel num_threads(g->threads)
    {
        float *v = own + omp_get_thread_num() * each, *m = v + read_floats(g);
#pragma omp for schedule(static)
        for (int64_t item = 0; item < g->group * pieces; item++) {
            const int64_t group = item / pieces;
            filters((Filters){w + group * o * TAPS * i, o, i, g->turned != 0}, 0, g->to_c, 0, g->c, item % pieces,
                    u + group * filter_floats(g), filters_plane(g));
        }
#pragma omp for schedule(dynamic)
        for (int64_t item = 0; item < g->group * blocks; item++) {
            const int64_t group = item / blocks, first = item % blocks * g->block, count = count_from(g, first);
            for (int64_t t = 0; t < count; t++) one_in(g, first, t, x + group * g->c, v);
            for (int64_t r = 0; r < g->to_c; r += GROUP) {
                const float *panels = u + group * filter_floats(g) + r / PANEL * POINTS * filters_plane(g);
                const int64_t last = r + GROUP < g->to_c ? r + GROUP : g->to_c;
                for (int point = 0; point < POINTS; point++) products(g, point, count, last - r, 0, g->c, panels, v, m);
                tiles_out(g, m, first, count, r, last, bias ? bias + group * g->to_c : bias, past,
                          y + group * g->to_c);
            }
        }
        if (past) stored_past();
    }
}

/* Filters and channels (panels of them) at a time. Of so many filters, a block of dy at a point stays in the first-level
 * cache while the panels meet it; and all their sums fit the second-level cache. */
enum { HIGH = 64, WIDE = GROUP / PANEL };
/* Whether all tiles are one block, and there is work for all threads. Then a thread needs the sums of only HIGH filters
 * of a tile's panels at a time. */
static int in_one_block(const Geometry *g) {
    const int64_t pieces = up(g->c, GROUP) / GROUP * (up(g->to_c, HIGH) / HIGH);
    return tiles(g) <= g->block && pieces >= g->threads;
}

static int64_t panels_at_once(const Geometry *g) { return at_most(WIDE, up(g->c, PANEL) / PANEL); }
static int64_t x_plane(const Geometry *g) { return plane(g->block, PANEL); }
static int64_t dy_plane(const Geometry *g) { return plane(g->block, pitch(g->to_c)); }
static int64_t sums_plane(const Geometry *g) { return plane(in_one_block(g) ? at_most(HIGH, g->to_c) : g->to_c, PANEL); }
static int64_t x_floats(const Geometry *g) { return POINTS * x_plane(g) * (up(g->c, PANEL) / PANEL); }
static int64_t sum_floats(const Geometry *g) {
    return POINTS * sums_plane(g) * (in_one_block(g) ? g->threads * panels_at_once(g) : up(g->c, PANEL) / PANEL);
}

int64_t NAMED(gradient_bytes)(const Geometry *g) { return 4 * (x_floats(g) + POINTS * dy_plane(g) + sum_floats(g)); }

/* Writes LANES channels, from c on, of filter o of dw, from its sums of these channels at s + point * plane. */
ALWAYS void filter_out(const Geometry *g, const float *s, int64_t o, int64_t c, float *dw) {
    vec field[POINTS];
    columns_out(s, sums_plane(g), field, FILTER);
    EACH(i, FILTER) {
        vec row[FILTER];
        from_points(field + i * TILE, row, FILTER);
        EACH(j, FILTER) store_some(dw + (o * TAPS + i * FILTER + j) * g->c + c, row[j], g->c - c);
    }
}

/* The products at a point of up to HIGH filters, from `begin` on, with up to WIDE panels of channels, from panel `one` on:
 * written to sums, or added to them. */
static void sums_of(const Geometry *g, Product form, int64_t point, int64_t one, int64_t begin, const float *d,
                    const float *v, float *sums, int add) {
    const int64_t count = at_most(HIGH, g->to_c - begin), panels = up(g->c, PANEL) / PANEL;
    const float *a = d + point * dy_plane(g) + begin, *b = v + one * form.over + point * x_plane(g);
    Ahead coming[2] = {ahead(a + dy_plane(g), form.depth, count, form.along, up(count, ROWS) / ROWS * WIDE)};
    form.coming = coming, form.then = b + x_plane(g);
    form.panels = at_most(WIDE, panels - one);
    form.half = g->c <= (one + form.panels) * PANEL - LANES;
    multiply(form, count, a, b, sums, add);
}

/* dw = the correlation of x with dy. The sums s[panel][point][filter][lane] take the blocks of tiles in their order. */
void NAMED(gradient)(const Geometry *g, const float *x, const float *dy, float *dw, float *workspace) {
    const Image in = {g->h, g->w, g->c, g->group * g->c}, from = {g->to_h, g->to_w, g->to_c, g->group * g->to_c};
    float *v = workspace, *d = v + x_floats(g), *s = d + POINTS * dy_plane(g);
    const int64_t panels = up(g->c, PANEL) / PANEL, row = pitch(g->to_c), all = tiles(g);
    const int64_t panel = POINTS * x_plane(g), sums = POINTS * sums_plane(g), wide = up(panels, WIDE) / WIDE;
    const int once = in_one_block(g);
    Product form = {.down = 1, .along = row, .step = PANEL, .over = panel, .pitch = PANEL, .aside = sums};
#pragma omp parallel num_threads(g->threads) firstprivate(form)
    for (int64_t group = 0; group < g->group; group++) {
        float *of_group = dw + group * g->to_c * TAPS * g->c;
        for (int64_t first = 0; first < all; first += g->block) {
            form.depth = count_from(g, first);
#pragma omp for schedule(static)
            for (int64_t t = 0; t < form.depth; t++) {
                int64_t image, top, left;
                tile_at(first + t, tiles_down(g), tiles_across(g), &image, &top, &left);
                tile_in(x + image * g->h * g->w * in.pitch + group * g->c, in, top - g->pad_h, left - g->pad_w, TILE,
                        up(g->c, PANEL), v + t * PANEL, panel, x_plane(g));
                tile_in(dy + image * g->to_h * g->to_w * from.pitch + group * g->to_c, from, top, left, STEP,
                        up(g->to_c, LANES), d + t * row, PANEL, dy_plane(g));
            }
            if (!once) {
#pragma omp for schedule(static)
                for (int64_t item = 0; item < POINTS * wide; item++) {
                    const int64_t p = item / wide, one = item % wide * WIDE;
                    for (int64_t begin = 0; begin < g->to_c; begin += HIGH)
                        sums_of(g, form, p, one, begin, d, v, s + one * sums + p * sums_plane(g) + begin * PANEL,
                                first > 0);
                }
            }
        }
        if (once) {
            float *own = s + omp_get_thread_num() * panels_at_once(g) * sums;
            const int64_t high = up(g->to_c, HIGH) / HIGH;
#pragma omp for schedule(dynamic)
            for (int64_t item = 0; item < wide * high; item++) {
                const int64_t one = item / high * WIDE, begin = item % high * HIGH;
                const int64_t end = at_most(g->to_c, begin + HIGH), last = at_most(g->c, (one + WIDE) * PANEL);
                for (int p = 0; p < POINTS; p++)
                    sums_of(g, form, p, one, begin, d, v, own + p * sums_plane(g), 0);
                for (int64_t o = begin; o < end; o++)
                    for (int64_t c = one * PANEL; c < last; c += LANES)
                        filter_out(g, own + (c / PANEL - one) * sums + (o - begin) * PANEL + c % PANEL, o, c,
                                   of_group);
            }
        } else {
#pragma omp for schedule(static)
            for (int64_t o = 0; o < g->to_c; o++)
                for (int64_t c = 0; c < g->c; c += LANES)
                    filter_out(g, s + c / PANEL * sums + o * PANEL + c % PANEL, o, c, of_group);
        }
    }
}
