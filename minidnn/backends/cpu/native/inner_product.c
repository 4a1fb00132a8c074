/* Inner products: y = x W^T (+ b, then ReLU), dx = dy W, dW = dy^T x. All matrices are row after row in memory.
 *
 * Forward takes dot products of the rows of x and W. Nothing is packed, and each byte of W comes from memory once. The
 * other two are products C = A B. If A has more than a few rows, blocks of B are packed into panels first. Threads
 * share the outputs of forward and blocks of C, so no sum depends on their number.
 */
#include <omp.h>

#include "mirrored.h"
#include "pieces.h"
#include "product.h"

typedef struct {
    int64_t n, inputs, outputs; /* y is n x outputs */
    int64_t relu, threads;
} Geometry;
MIRRORED(inner_product, Geometry)

/* Rows of x by rows of W whose dot products are taken at a time. Twelve sums, three vectors of W and one of x fill
 * sixteen registers. */
enum { OF_X = 4, OF_W = 3 };
enum { LONG = 8192 };   /* elements of a row between two additions to y */
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
    for (int64_t k = 0; k < g->inputs; k += LONG) {
        const int last = k + LONG >= g->inputs;
        const int64_t depth = last ? g->inputs - k : LONG;
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

/* C (rows x columns) = A (rows x depth; any strides) B (depth x columns). C is cut into blocks of high x wide, which
 * threads share. */
typedef struct {
    int64_t rows, depth, columns;
    int64_t down, along;        /* strides of A: from row to row, from column to column */
    int64_t deep, wide;         /* rows and columns of a block of B; columns are a multiple of PANEL */
    int64_t high;               /* rows of a block of A */
    int64_t packed;             /* whether blocks are packed; if not, each row of B is a stream from memory */
    int64_t accumulate;         /* whether C = C + A B */
    int64_t threads;
} Matrices;
MIRRORED(matrices, Matrices)

/* Whether a block of A is copied, so that its rows lie together for each column. */
static int copied(const Matrices *g) { return g->packed && g->down == 1; }
/* A thread's workspace: a packed block of B, or only its ragged edge; and a copied block of A. */
static int64_t packed_floats(const Matrices *g) { return g->deep * (g->packed ? g->wide : PANEL); }
/* Floats from column to column of a copied block. The extra LANES avoid a power of two, which would use few of the
 * cache's sets. */
static int64_t copied_along(const Matrices *g) { return up(g->high, LANES) + LANES; }
static int64_t block_floats(const Matrices *g) {
    return packed_floats(g) + (copied(g) ? g->deep * copied_along(g) : 0);
}

int64_t inner_product_multiply_bytes(const Matrices *g) { return 4 * g->threads * block_floats(g); }

/* C = A B, or C += A B to accumulate, by tiles of a panel, along C's rows. It serves where there is little to compute
 * for each byte of B, or of C. Both are then long pieces of memory, and no tile costs a call. There is a loop for each
 * number of rows. */
#define ALONG_1(R)
#define ALONG_2(R)                                                                              \
    case R:                                                                                     \
        for (int64_t panel = 0; panel < p->panels; panel++) {                                   \
            float *to = c + i * p->pitch + panel * PANEL;                                       \
            tile_##R##x2(p, a + i * p->down, b + panel * p->over, accumulate ? to : ZEROS, to); \
        }                                                                                       \
        break;
#define ALONG_3(R)
#define ALONG_4(R)
#define ALONG(R, V) ALONG_##V(R)
static void product_along(const Product *p, int64_t rows, const float *a, const float *b, int accumulate, float *c) {
    for (int64_t i = 0; i < rows; i += ROWS) switch (at_most(ROWS, rows - i)) { EACH_TILE(ALONG) }
}

/* Computes rows x width of C, from column `from` on. */
static void block_of(const Matrices *g, int64_t rows, int64_t from, int64_t width, const float *a, const float *b,
                     float *c, float *block) {
    const int64_t whole = width / PANEL * PANEL, column = copied_along(g);
    float *few = block + packed_floats(g);
    const int once = g->depth <= g->deep, past = once && !g->accumulate && goes_past(c, g->rows, g->columns);
    for (int64_t k = 0; k < g->depth; k += g->deep) {
        const int64_t depth = k + g->deep < g->depth ? g->deep : g->depth - k;
        const float *lying = b + k * g->columns + from, *left = a + k * g->along;
        const int add = g->accumulate || k;
        if (g->packed)
            pack(lying, g->columns, depth, width, block);
        else
            pack(lying + whole, g->columns, depth, width - whole, block);
        if (copied(g)) {
            for (int64_t j = 0; j < depth; j++) memcpy(few + j * column, left + j * g->along, rows * sizeof *few);
            left = few;
        }
        const Product p = {
            .runs = 1, .depth = depth, .at = ONE_RUN, .down = g->down, .along = copied(g) ? column : g->along,
            .step = g->packed ? PANEL : g->columns, .over = g->packed ? depth * PANEL : PANEL,
            .pitch = g->columns, .aside = PANEL,
            .panels = whole / PANEL,
            .start_down = add ? g->columns : 0, .start_over = add ? PANEL : 0, .past = past,
        };
        const float *right = g->packed ? block : lying;
        if (g->packed && !once)
            product(&p, rows, left, right, add ? c : ZEROS, c);
        else
            product_along(&p, rows, left, right, add, c);
        if (whole < width)
            ragged(p, rows, width - whole, left, g->packed ? block + whole * depth : block, add, c + whole);
    }
    if (past) stored_past();
}

void inner_product_multiply(const Matrices *g, const float *a, const float *b, float *c, float *workspace) {
    const int64_t across = (g->columns + g->wide - 1) / g->wide, down = (g->rows + g->high - 1) / g->high;
#pragma omp parallel for schedule(static) num_threads(g->threads)
    for (int64_t item = 0; item < across * down; item++) {
        const int64_t from = item / down * g->wide, first = item % down * g->high;
        block_of(g, first + g->high < g->rows ? g->high : g->rows - first, from,
                 from + g->wide < g->columns ? g->wide : g->columns - from, a + first * g->down, b,
                 c + first * g->columns + from, workspace + omp_get_thread_num() * block_floats(g));
    }
}
