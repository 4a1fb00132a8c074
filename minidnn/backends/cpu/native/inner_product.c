/* Inner products: y = x W^T (+ b, then ReLU), dx = dy W, dW = dy^T x. All matrices are row after row in memory.
 *
 * Forward takes dot products of the rows of x and W. Nothing is packed, and each byte of W comes from memory once. The
 * other two are products C = A B. If A has more than a few rows, blocks of B are packed into panels first. Threads
 * share the outputs of forward and the columns of C, so no sum depends on their number.
 */
#include <omp.h>

#include "mirrored.h"
#include "product.h"

typedef struct {
    int64_t n, inputs, outputs; /* y is n x outputs */
    int64_t relu, threads;
} Geometry;
MIRRORED(inner_product, Geometry)

/* Rows of x by rows of W whose dot products are taken at a time. Twelve sums, three vectors of W and one of x fill
 * sixteen registers. */
enum { OF_X = 4, OF_W = 3 };
enum { DEEP = 8192 };   /* elements of a row between two additions to y */
enum { AHEAD = 256 };   /* elements of W that are prefetched before they are needed */

ALWAYS float total(vec v) {
    float lanes[LANES];
    store(lanes, v);
    for (int half = LANES / 2; half; half /= 2)
        for (int j = 0; j < half; j++) lanes[j] += lanes[j + half];
    return lanes[0];
}

static void dot_products(int64_t depth, const float *const x[OF_X], const float *const w[OF_W],
                         float dots[OF_X][OF_W]) {
    vec sum[OF_X][OF_W] = {0};
    int64_t k = 0;
    for (; k + LANES <= depth; k += LANES) {
        vec right[OF_W];
        _Pragma("GCC unroll 4") for (int j = 0; j < OF_W; j++) {
            right[j] = once(w[j] + k);
            __builtin_prefetch(w[j] + k + AHEAD);
        }
        _Pragma("GCC unroll 4") for (int i = 0; i < OF_X; i++) {
            const vec left = once(x[i] + k);
            _Pragma("GCC unroll 4") for (int j = 0; j < OF_W; j++) sum[i][j] += left * right[j];
        }
    }
    _Pragma("GCC unroll 4") for (int i = 0; i < OF_X; i++)
        _Pragma("GCC unroll 4") for (int j = 0; j < OF_W; j++) {
            dots[i][j] = total(sum[i][j]);
            for (int64_t rest = k; rest < depth; rest++) dots[i][j] += x[i][rest] * w[j][rest];
        }
}

/* Row i of a matrix, or the last row if i is beyond it: the results of such a row are not stored. */
ALWAYS const float *row_of(const float *matrix, int64_t i, int64_t rows, int64_t pitch) {
    return matrix + (i < rows ? i : rows - 1) * pitch;
}

void inner_product_forward(const Geometry *g, const float *x, const float *w, const float *bias, float *y) {
#pragma omp parallel num_threads(g->threads)
    for (int64_t k = 0; k < g->inputs; k += DEEP) {
        const int last = k + DEEP >= g->inputs;
        const int64_t depth = last ? g->inputs - k : DEEP;
/* A thread has the same outputs for each k, so threads need not wait for each other. */
#pragma omp for schedule(static) nowait
        for (int64_t o = 0; o < g->outputs; o += OF_W) {
            const float *of_w[OF_W];
            for (int j = 0; j < OF_W; j++) of_w[j] = row_of(w, o + j, g->outputs, g->inputs) + k;
            for (int64_t n = 0; n < g->n; n += OF_X) {
                const float *of_x[OF_X];
                float dots[OF_X][OF_W];
                for (int i = 0; i < OF_X; i++) of_x[i] = row_of(x, n + i, g->n, g->inputs) + k;
                dot_products(depth, of_x, of_w, dots);
                for (int i = 0; i < OF_X && n + i < g->n; i++)
                    for (int j = 0; j < OF_W && o + j < g->outputs; j++) {
                        float *to = y + (n + i) * g->outputs + o + j;
                        const float sum = (k ? *to : bias ? bias[o + j] : 0) + dots[i][j];
                        *to = !(last && g->relu) || sum > 0 ? sum : sum - sum; /* as where_positive */
                    }
            }
        }
    }
}

enum { COPIED = 8 * PANEL }; /* columns of C from which on copying the rows of A, to lie together, pays */

/* C (rows x columns) = A (rows x depth; any strides) B (depth x columns). */
typedef struct {
    int64_t rows, depth, columns;
    int64_t down, along;        /* strides of A: from row to row, from column to column */
    int64_t deep, wide;         /* rows and columns of a block of B; columns are a multiple of PANEL */
    int64_t packed;             /* whether blocks are packed; if not, each row of B is a stream from memory */
    int64_t threads;
} Matrices;
MIRRORED(matrices, Matrices)

/* A thread's workspace: a packed block of B, or only its ragged edge, and the part of a few rows of A that goes with
 * the block. */
static int64_t block_floats(const Matrices *g) { return g->deep * ((g->packed ? g->wide : PANEL) + ROWS); }

int64_t inner_product_multiply_bytes(const Matrices *g) { return 4 * g->threads * block_floats(g); }

/* Packs rows x columns of b into panels, with zeros beyond the columns. */
static void pack(const float *b, int64_t pitch, int64_t rows, int64_t columns, float *panels) {
    const int64_t whole = columns / PANEL * PANEL;
    for (int64_t k = 0; k < rows; k++) {
        const float *row = b + k * pitch;
        float *to = panels + k * PANEL;
        for (int64_t j = 0; j < whole; j += PANEL, to += rows * PANEL) {
            store(to, load(row + j));
            store(to + LANES, load(row + j + LANES));
        }
        if (whole < columns) {
            store(to, load_some(row + whole, columns - whole));
            store(to + LANES, load_some(row + whole + LANES, columns - whole - LANES));
        }
    }
}

/* Computes the columns of C in the last, incomplete panel, by way of a whole tile. */
static void ragged(const Product *p, int64_t rows, int64_t columns, const float *a, const float *panel, int accumulate,
                   float *c) {
    float tile[ROWS * PANEL];
    multiply(rows, p->depth, a, p->down, p->along, panel, tile, 0);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++)
            c[i * p->pitch + j] = (accumulate ? c[i * p->pitch + j] : 0) + tile[i * PANEL + j];
}

void inner_product_multiply(const Matrices *g, const float *a, const float *b, float *c, float *workspace) {
    const int64_t groups = (g->rows + ROWS - 1) / ROWS;
#pragma omp parallel for schedule(static) num_threads(g->threads)
    for (int64_t from = 0; from < g->columns; from += g->wide) {
        const int64_t width = from + g->wide < g->columns ? g->wide : g->columns - from;
        const int64_t whole = width / PANEL * PANEL, copied = whole >= COPIED;
        float *block = workspace + omp_get_thread_num() * block_floats(g);
        float *few = block + (g->packed ? g->wide : PANEL) * g->deep;
        for (int64_t k = 0; k < g->depth; k += g->deep) {
            const int64_t depth = k + g->deep < g->depth ? g->deep : g->depth - k;
            const float *lying = b + k * g->columns + from;
            if (g->packed)
                pack(lying, g->columns, depth, width, block);
            else
                pack(lying + whole, g->columns, depth, width - whole, block);
            const Product p = {
                .runs = 1, .depth = depth, .at = ONE_RUN,
                .down = copied ? 1 : g->down, .along = copied ? ROWS : g->along,
                .step = g->packed ? PANEL : g->columns, .over = g->packed ? depth * PANEL : PANEL,
                .pitch = g->columns, .panels = whole / PANEL,
                .start_down = k ? g->columns : 0, .start_over = k ? PANEL : 0,
            };
            for (int64_t group = 0; group < groups; group++) {
                const int64_t i = group * g->rows / groups, rows = (group + 1) * g->rows / groups - i;
                float *to = c + i * g->columns + from;
                const float *left = a + i * g->down + k * g->along;
                if (copied) {
                    for (int64_t j = 0; j < depth; j++)
                        for (int64_t r = 0; r < rows; r++) few[j * ROWS + r] = left[r * g->down + j * g->along];
                    left = few;
                }
                wholes[rows](&p, left, g->packed ? block : lying, k ? to : ZEROS, to);
                if (whole < width)
                    ragged(&p, rows, width - whole, left, g->packed ? block + whole * depth : block, k > 0, to + whole);
            }
        }
    }
}
