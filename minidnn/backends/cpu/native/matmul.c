/* Products of pairs of matrices: C = start + A B, where the start is a bias, nothing, or what C has; then a scale, or
 * ReLU. `batch` pairs lie one after another.
 *
 * C is cut into blocks, which threads share. For a block, `deepest` rows of B at a time are packed into panels. HIGH rows
 * of A at a time meet all panels, while they stay in the second-level cache. A transposed A is first copied into strips.
 * If A has few rows and B is transposed, as of a product with weights, B is read once and turned in registers.
 *
 * An element's sum begins at its start and goes from the first product to the last, whatever the blocks are. So no bit
 * depends on them, on threads, or on how many rows A has.
 *
 * A small C of deep matrices, as the filter gradient of a few channels, has too few blocks for the threads. It is the sum
 * of `pieces` products of equally many rows of A and B, added in their order. These are read as they lie: a copy would
 * take longer than its few products.
 */
#include <omp.h>

#include "mirrored.h"
#include "pieces.h"
#include "product.h"
#include "windows.h"

typedef struct {
    int64_t batch, rows, depth, columns; /* A is rows x depth, B depth x columns */
    int64_t turned_a, turned_b;          /* whether A lies as depth x rows, and B as columns x depth */
    int64_t relu, accumulate;            /* whether ReLU is applied to the result; whether C = C + A B */
    int64_t high, wide;                  /* rows and columns of a block of C; columns are a multiple of PANEL */
    int64_t deepest;                     /* rows of B that are packed at a time */
    int64_t pieces;                      /* partial sums of a small C; 0: it is no small one */
    int64_t threads;
    double scale;
    Windows windows;                     /* of images, which B is; if their filter has no height, B is a matrix */
} Geometry;
MIRRORED(matmul, Geometry)

enum { STRIP = 6 }; /* rows of a widest tile */
enum { HIGH = 32 * STRIP };

enum { FEW = 12 }; /* rows of A for which nothing is packed */
static int is_few(const Geometry *g) { return g->rows <= FEW && g->turned_b && !g->turned_a; }

/* Floats from strip to strip. A vector is stored for each column, and the last one's goes beyond the strip. */
ALWAYS int64_t strip_floats(int64_t depth) { return depth * STRIP + LANES; }

/* The workspace of a thread. */
static int64_t floats(const Geometry *g) {
    const int64_t depth = at_most(g->deepest, g->depth), rows = at_most(HIGH, at_most(g->high, g->rows));
    const int64_t strips = g->turned_a ? up(rows, STRIP) / STRIP * strip_floats(depth) : 0;
    return at_most(g->wide, up(g->columns, PANEL)) * depth + strips;
}

/* Rows of A and B of a small C that meet at a time: they stay in the first-level cache. */
enum { CACHED = 6144, SHALLOWEST = 16 };
static int64_t together(const Geometry *g) {
    const int64_t fit = CACHED / (g->rows + g->columns);
    return at_most(g->depth, fit > SHALLOWEST ? fit : SHALLOWEST);
}
static int64_t small_floats(const Geometry *g) { return LANES * together(g); }

int64_t matmul_bytes(const Geometry *g) {
    if (is_few(g)) return 0;
    if (g->pieces) return 4 * (g->pieces * g->rows * g->columns + g->threads * small_floats(g));
    return 4 * g->threads * floats(g);
}

/* Copies depth x rows of an A that lies so, whose rows of memory are `pitch` floats apart, of which `left` floats are
 * left. Beyond `rows` a strip gets the floats that happen to follow: no row enters the sums of another. */
static void copy_turned_strips(int64_t rows, int64_t depth, const float *a, int64_t pitch, int64_t left, float *to) {
    for (int64_t k = 0; k < depth; k += LANES, a += LANES * pitch, left -= LANES * pitch, to += LANES * STRIP) {
        const int64_t count = at_most(LANES, depth - k);
        for (int64_t r = 0; r < rows; r += STRIP) {
            float *strip = to + r / STRIP * strip_floats(depth);
            if (count == LANES && (LANES - 1) * pitch + r + LANES <= left)
                _Pragma("GCC unroll 16") for (int i = 0; i < LANES; i++)
                    store(strip + i * STRIP, load(a + i * pitch + r));
            else
                for (int64_t i = 0; i < count; i++)
                    store(strip + i * STRIP, load_some(a + i * pitch + r, left - i * pitch - r));
        }
    }
}

/* Computes a tile of fewer columns than a panel, by way of a whole one. start: null is zero */
static void edge(const Product *whole, int64_t rows, int64_t columns, const float *a, const float *panel,
                 const float *start, float *c) {
    float tile[STRIP * PANEL] = {0};
    Product p = *whole;
    p.pitch = p.start_down = PANEL;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t j = 0; start && j < columns; j++) tile[r * PANEL + j] = start[r * whole->start_down + j];
    tiles_of[columns > LANES ? 2 : 1][rows](&p, a, panel, tile, tile);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t j = 0; j < columns; j++) c[r * whole->pitch + j] = tile[r * PANEL + j];
}

/* Computes rows x columns of C from strips of A, `next` floats apart, and panels of B. start: null is zero. `coming`:
 * what is read after it, of A and of B; the strips of an A that was not copied are asked for one by one. */
static void multiply_strips(const Product *p, int64_t rows, int64_t columns, const float *strips, int64_t next,
                            const float *panels, const float *start, float *c, Ahead coming[2]) {
    const int64_t whole = columns / PANEL * PANEL, lying = p->along == 1;
    for (int64_t j = 0; j < columns; j += ABREAST * PANEL) {
        const int64_t vectors = at_most(WIDEST, (whole - j) / LANES);
        for (int64_t r = 0; r < rows; r += STRIP) {
            const int64_t tall = at_most(STRIP, rows - r);
            const float *left = strips + r / STRIP * next;
            const float *from = start ? start + r * p->start_down : NULL;
            float *to = c + r * p->pitch;
            if (lying && j == 0) {
                Ahead rows_of_a = ahead(left + next, STRIP, p->depth, p->down, 1);
                ask(&rows_of_a);
            }
            ask(&coming[0]), ask(&coming[1]);
            if (vectors > 0)
                tiles_of[vectors][tall](p, left, panels + j * p->depth, from ? from + j : ZEROS, to + j);
            if (vectors < WIDEST && whole < columns)
                edge(p, tall, columns - whole, left, panels + whole * p->depth, from ? from + whole : NULL, to + whole);
        }
    }
}

/* Packs some rows of B from row k on, and `columns` columns from column `from` on. */
static void pack_of_b(const Geometry *g, int64_t k, int64_t rows, int64_t from, int64_t columns, const float *b,
                      float *panels) {
    if (g->windows.kernel_h)
        pack_windows(&g->windows, b, k, rows, from, columns, panels);
    else if (g->turned_b)
        pack_turned(b + from * g->depth + k, g->depth, rows, columns, panels);
    else
        pack(b + k * g->columns + from, g->columns, rows, columns, panels);
}

/* Computes rows x columns of C, from column `from` on. The pointers are to A's and C's first elements of it, and to all
 * of B; `left` floats of A are left in memory.
 *
 * An A that lies as rows x depth is read as it lies. */
static void block(const Geometry *g, int64_t rows, int64_t from, int64_t columns, const float *a, int64_t left,
                  const float *b, const float *bias, float *c, float *panels) {
    for (int64_t k = 0; k < g->depth; k += g->deepest) {
        const int64_t depth = at_most(g->deepest, g->depth - k), more = at_most(g->deepest, g->depth - k - depth);
        const int64_t tiles = up(at_most(HIGH, rows), STRIP) / STRIP * (up(columns, ABREAST * PANEL) / (ABREAST * PANEL));
        float *strips = panels + up(columns, PANEL) * depth;
        pack_of_b(g, k, depth, from, columns, b, panels);
        const int add = g->accumulate || k;
        const Product p = {
            .runs = 1, .depth = depth, .at = ONE_RUN, .step = PANEL, .over = depth * PANEL,
            .down = g->turned_a ? 1 : g->depth, .along = g->turned_a ? STRIP : 1,
            .pitch = g->columns, .aside = PANEL, .start_down = add ? g->columns : 0,
            .start_over = add || bias ? PANEL : 0, .relu = g->relu && k + depth == g->depth,
        };
        Ahead coming[2] = {{0}};
        if (!g->turned_b && !g->windows.kernel_h)
            coming[1] = ahead(b + (k + depth) * g->columns + from, more, columns, g->columns, tiles);
        for (int64_t i = 0; i < rows; i += HIGH) {
            const int64_t count = at_most(HIGH, rows - i), then = at_most(HIGH, rows - i - count);
            float *to = c + i * g->columns;
            const float *start = add ? to : bias;
            if (!g->turned_a) {
                multiply_strips(&p, count, columns, a + i * g->depth + k, STRIP * g->depth, panels, start, to, coming);
                continue;
            }
            const float *lying = a + k * g->rows + i;
            coming[0] = then ? ahead(lying + count, depth, then, g->rows, tiles)
                             : ahead(a + (k + depth) * g->rows, more, at_most(HIGH, rows), g->rows, tiles);
            copy_turned_strips(count, depth, lying, g->rows, left - (lying - a), strips);
            multiply_strips(&p, count, columns, strips, strip_floats(depth), panels, start, to, coming);
        }
    }
}

/* Packs the columns that do not fill a vector, of `depth` rows of a B, with zeros beyond them. */
static void pack_rest(const float *b, int64_t pitch, int64_t depth, int64_t columns, float *to) {
    for (int64_t k = 0; k < depth; k++) store(to + k * LANES, load_some(b + k * pitch, columns));
}

/* Computes one piece of a small C, the sum over `depth` rows of A and B. */
static void piece_of_small(const Geometry *g, int64_t depth, const float *a, const float *b, float *c, float *packed) {
    const int64_t rows = g->rows, columns = g->columns, whole = columns / LANES * LANES, most = together(g);
    const int64_t tiles = up(rows, STRIP) / STRIP * (up(columns, WIDEST * LANES) / (WIDEST * LANES));
    for (int64_t k = 0, count; k < depth; k += count, a += count * rows, b += count * columns) {
        count = at_most(most, depth - k);
        const int64_t more = at_most(most, depth - k - count);
        const Product p = {
            .runs = 1, .depth = count, .at = ONE_RUN, .step = columns, .over = PANEL, .down = 1, .along = rows,
            .pitch = columns, .aside = PANEL, .start_down = k ? columns : 0, .start_over = k ? PANEL : 0,
        };
        Product rest = p;
        rest.step = LANES;
        Ahead coming[2] = {
            ahead(a + count * rows, 1, more * rows, 0, tiles), ahead(b + count * columns, 1, more * columns, 0, tiles),
        };
        if (whole < columns) pack_rest(b + whole, columns, count, columns - whole, packed);
        for (int64_t r = 0; r < rows; r += STRIP) {
            const int64_t tall = at_most(STRIP, rows - r);
            float *to = c + r * columns;
            for (int64_t j = 0; j < columns; j += WIDEST * LANES) {
                const int64_t vectors = at_most(WIDEST, (whole - j) / LANES);
                ask(&coming[0]), ask(&coming[1]);
                if (vectors > 0) tiles_of[vectors][tall](&p, a + r, b + j, k ? to + j : ZEROS, to + j);
                if (vectors < WIDEST && whole < columns)
                    edge(&rest, tall, columns - whole, a + r, packed, k ? to + whole : NULL, to + whole);
            }
        }
    }
}

/* a b -> y, where y is small. Its pieces are s[piece][row][column]. */
void matmul_small(const Geometry *g, const float *a, const float *b, float *y, float *workspace) {
    const int64_t size = g->rows * g->columns;
    float *s = workspace, *packed = s + g->pieces * size;
#pragma omp parallel num_threads(g->threads)
    {
#pragma omp for schedule(dynamic)
        for (int64_t piece = 0; piece < g->pieces; piece++) {
            const int64_t from = piece * g->depth / g->pieces, to = (piece + 1) * g->depth / g->pieces;
            piece_of_small(g, to - from, a + from * g->rows, b + from * g->columns, s + piece * size,
                           packed + omp_get_thread_num() * small_floats(g));
        }
#pragma omp for schedule(static)
        for (int64_t row = 0; row < g->rows; row++)
            for (int64_t j = row * g->columns; j < (row + 1) * g->columns; j++) {
                float sum = s[j];
                for (int64_t piece = 1; piece < g->pieces; piece++) sum += s[piece * size + j];
                y[j] = sum;
            }
    }
}

enum { LONG = 2048 };   /* elements of each row of B that meet some rows of A before the next */
enum { AHEAD = 256 };   /* elements of B that are prefetched before they are needed */

/* sums[r] += the products of `depth` elements of row r of A and of LANES rows of B. */
ALWAYS void turned_dots(const int rows, int64_t depth, const float *a, int64_t pitch, const float *const b[LANES],
                        vec *sums) {
    vec sum[STRIP], square[LANES];
    int64_t k = 0;
    _Pragma("GCC unroll 6") for (int r = 0; r < rows; r++) sum[r] = sums[r];
    for (; k + LANES <= depth; k += LANES, a += LANES) {
        _Pragma("GCC unroll 16") for (int i = 0; i < LANES; i++) {
            square[i] = once(b[i] + k);
            __builtin_prefetch(b[i] + k + AHEAD);
        }
        transpose(square);
        _Pragma("GCC unroll 16") for (int i = 0; i < LANES; i++)
            _Pragma("GCC unroll 6") for (int r = 0; r < rows; r++)
                sum[r] = fused(a[r * pitch + i] - (vec){0}, square[i], sum[r]);
    }
    for (; k < depth; k++, a++) {
        vec column;
        for (int i = 0; i < LANES; i++) column[i] = b[i][k];
        _Pragma("GCC unroll 6") for (int r = 0; r < rows; r++)
            sum[r] = fused(a[r * pitch] - (vec){0}, column, sum[r]);
    }
    _Pragma("GCC unroll 6") for (int r = 0; r < rows; r++) sums[r] = sum[r];
}

/* Computes rows x columns of C for few rows, where B lies as columns x depth. */
static void few(const Geometry *g, int64_t rows, int64_t columns, const float *a, const float *b, const float *bias,
                float *c) {
    for (int64_t j = 0; j < columns; j += LANES) {
        const float *of_b[LANES];
        vec sums[FEW];
        for (int64_t i = 0; i < LANES; i++) of_b[i] = b + at_most(columns - 1, j + i) * g->depth;
        for (int64_t r = 0; r < rows; r++)
            sums[r] = g->accumulate ? load_some(c + r * g->columns + j, columns - j)
                      : bias ? load_some(bias + j, columns - j) : (vec){0};
        for (int64_t k = 0; k < g->depth; k += LONG) {
            for (int64_t r = 0; r < rows; r += STRIP) {
#define COUNT(R)                                                                                         \
    case R:                                                                                              \
        turned_dots(R, at_most(LONG, g->depth - k), a + r * g->depth + k, g->depth, of_b, sums + r);     \
        break;
                switch (at_most(STRIP, rows - r)) { COUNT(1) COUNT(2) COUNT(3) COUNT(4) COUNT(5) COUNT(6) }
#undef COUNT
            }
            for (int i = 0; i < LANES; i++) of_b[i] += LONG;
        }
        for (int64_t r = 0; r < rows; r++)
            store_some(c + r * g->columns + j, g->relu ? where_positive(sums[r], sums[r]) : sums[r], columns - j);
    }
}

/* y = y * scale + bias */
static void finish(const Geometry *g, int64_t rows, int64_t columns, const float *bias, float *y) {
    const float scale = (float)g->scale;
    for (int64_t i = 0; i < rows; i++, y += g->columns)
        for (int64_t j = 0; j < columns; j++) y[j] = y[j] * scale + (bias ? bias[j] : 0);
}

/* a b (bias) -> y */
void matmul_forward(const Geometry *g, const float *a, const float *b, const float *bias, float *y, float *workspace) {
    const int64_t down = up(g->rows, g->high) / g->high, across = up(g->columns, g->wide) / g->wide;
    const int64_t each = down * across;
    const int scaled = g->scale != 1;
#pragma omp parallel for schedule(static) num_threads(g->threads) if (g->batch * g->rows * g->columns > ALONE / 16)
    for (int64_t item = 0; item < g->batch * each; item++) {
        const int64_t pair = item / each, i = item % each % down * g->high, j = item % each / down * g->wide;
        const int64_t rows = at_most(g->high, g->rows - i), columns = at_most(g->wide, g->columns - j);
        const float *left = a + pair * g->rows * g->depth + i * (g->turned_a ? 1 : g->depth);
        const float *right = b + pair * g->depth * g->columns;
        const float *constant = bias ? bias + j : NULL;
        float *to = y + (pair * g->rows + i) * g->columns + j;
        if (is_few(g))
            few(g, rows, columns, left, right + j * g->depth, scaled ? NULL : constant, to);
        else
            block(g, rows, j, columns, left, a + g->batch * g->rows * g->depth - left, right, scaled ? NULL : constant, to,
                  workspace + omp_get_thread_num() * floats(g));
        if (scaled) finish(g, rows, columns, constant, to);
    }
}
