/* Gradients of inner products with little to compute for each byte of a matrix: of a few samples, dx = dy W, and
 * dW = dy^T x. All matrices are row after row in memory. These are products C = A B. Where A has a few rows, B is read as
 * it lies; otherwise blocks of B are packed into panels first. Threads share blocks of C, so no sum depends on their
 * number.
 */
#include <omp.h>

#include "mirrored.h"
#include "pieces.h"
#include "product.h"

/* C (rows x columns) = A (rows x depth; any strides) B (depth x columns). C is cut into blocks of high x wide, which
 * threads share. */
typedef struct {
    int64_t rows, depth, columns;
    int64_t down, along;        /* strides of A: from row to row, from column to column */
    int64_t deep, wide;         /* rows and columns of a block of B; columns are a multiple of PANEL */
    int64_t high;               /* rows of a block of A */
    int64_t packed;             /* whether blocks are packed; if not, each row of B is a stream from memory */
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
    const int once = g->depth <= g->deep, past = once && goes_past(c, g->rows, g->columns);
    for (int64_t k = 0; k < g->depth; k += g->deep) {
        const int64_t depth = k + g->deep < g->depth ? g->deep : g->depth - k;
        const float *lying = b + k * g->columns + from, *left = a + k * g->along;
        const int add = k > 0;
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
        product_along(&p, rows, left, g->packed ? block : lying, add, c);
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
