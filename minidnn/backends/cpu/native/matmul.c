/* Products of pairs of matrices: y = scale * A B (+ bias), for each of `batch` pairs, which lie one after another.
 *
 * y is cut into blocks of HIGH x WIDE, which threads share. For each block, DEEPEST rows of B at a time are packed into
 * panels; a transposed B is turned on the way. An element's sum goes from the first product to the last whatever the
 * blocks are, so no bit depends on them or on threads.
 */
#include <omp.h>

#include "mirrored.h"
#include "pieces.h"
#include "product.h"

typedef struct {
    int64_t batch, rows, depth, columns; /* A is rows x depth, B depth x columns */
    int64_t turned_a, turned_b;          /* whether A lies as depth x rows, and B as columns x depth */
    int64_t threads;
    double scale;
} Geometry;
MIRRORED(matmul, Geometry)

enum { HIGH = 384, WIDE = 256, DEEPEST = 256 };

static int64_t floats(const Geometry *g) { return at_most(DEEPEST, g->depth) * up(at_most(WIDE, g->columns), PANEL); }

int64_t matmul_bytes(const Geometry *g) { return 4 * g->threads * floats(g); }

/* y = y * scale + bias */
static void finish(const Geometry *g, int64_t rows, int64_t columns, const float *bias, float *y) {
    const float scale = (float)g->scale;
    for (int64_t i = 0; i < rows; i++, y += g->columns)
        for (int64_t j = 0; j < columns; j++) y[j] = y[j] * scale + (bias ? bias[j] : 0);
}

/* Computes a block of y, whose first element is at y. */
static void block(const Geometry *g, int64_t rows, int64_t columns, const float *a, const float *b, const float *bias,
                  float *y, float *panels) {
    const int64_t whole = columns / PANEL * PANEL;
    for (int64_t k = 0; k < g->depth; k += DEEPEST) {
        const int64_t depth = at_most(DEEPEST, g->depth - k);
        if (g->turned_b)
            pack_turned(b + k, g->depth, depth, columns, panels);
        else
            pack(b + k * g->columns, g->columns, depth, columns, panels);
        const Product p = {
            .runs = 1, .depth = depth, .at = ONE_RUN,
            .down = g->turned_a ? 1 : g->depth, .along = g->turned_a ? g->rows : 1,
            .step = PANEL, .over = depth * PANEL, .pitch = g->columns, .aside = PANEL, .panels = whole / PANEL,
        };
        const float *left = a + k * p.along;
        multiply(p, rows, left, panels, y, k > 0);
        if (whole < columns) ragged(p, rows, columns - whole, left, panels + whole * depth, k > 0, y + whole);
    }
    if (g->scale != 1 || bias) finish(g, rows, columns, bias, y);
}

/* a b (bias) -> y */
void matmul_forward(const Geometry *g, const float *a, const float *b, const float *bias, float *y, float *workspace) {
    const int64_t down = (g->rows + HIGH - 1) / HIGH, across = (g->columns + WIDE - 1) / WIDE;
    const int64_t each = down * across;
#pragma omp parallel for schedule(static) num_threads(g->threads) if (g->batch * g->rows * g->columns > ALONE / 16)
    for (int64_t item = 0; item < g->batch * each; item++) {
        const int64_t pair = item / each, i = item % each % down * HIGH, j = item % each / down * WIDE;
        block(g, at_most(HIGH, g->rows - i), at_most(WIDE, g->columns - j),
              a + pair * g->rows * g->depth + i * (g->turned_a ? 1 : g->depth),
              b + pair * g->depth * g->columns + j * (g->turned_b ? g->depth : 1), bias ? bias + j : NULL,
              y + (pair * g->rows + i) * g->columns + j, workspace + omp_get_thread_num() * floats(g));
    }
}
