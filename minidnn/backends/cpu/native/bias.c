/* Bias gradients, alone or fused with a ReLU's backward before them. The gradient of dy, a matrix of rows x channels in
 * memory, is the sum of its rows, in pieces (columns.h).
 *
 * The ReLU's y and dy may each be a slice of a wider matrix. Its rows lie `y_pitch` or `dy_pitch` elements apart.
 */
#include "columns.h"
#include "mirrored.h"

typedef struct {
    int64_t rows, c, y_pitch, dy_pitch, threads;
} Geometry;
MIRRORED(bias, Geometry)

enum { AT_ONCE = 1 << 14 }; /* elements that go through the ReLU before they are summed: they stay in a near cache */

int64_t bias_bytes(const Geometry *g) { return 4 * pieces_of(g->rows, g->c) * g->c; }

/* dx = dy where y > 0, elsewhere 0 (vector.h). */
static void rectify(int64_t n, const float *y, const float *dy, float *dx) {
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) store(dx + i, where_positive(load(y + i), load(dy + i)));
    store_some(dx + i, where_positive(load_some(y + i, n - i), load_some(dy + i, n - i)), n - i);
}

/* The same for `rows` rows of y and dy, which need not follow one another without gaps. If y is null, dx = dy. */
static void rectify_rows(const Geometry *g, int64_t rows, const float *y, const float *dy, float *dx) {
    if (y && g->y_pitch == g->c && g->dy_pitch == g->c) {
        rectify(rows * g->c, y, dy, dx);
        return;
    }
    for (int64_t r = 0; r < rows; r++, dy += g->dy_pitch, dx += g->c)
        if (y) rectify(g->c, y + r * g->y_pitch, dy, dx);
        else memcpy(dx, dy, 4 * g->c);
}

/* sum = the sum of `rows` rows of dy. Unless dx is null, it is computed from dy first, and the sum is of dx. */
static void piece(const Geometry *g, int64_t rows, const float *y, const float *dy, float *dx, float *sum) {
    const int64_t step = dx ? up(AT_ONCE, g->c) / g->c : rows;
    memset(sum, 0, 4 * g->c);
    for (int64_t r = 0; r < rows; r += step) {
        const int64_t some = at_most(step, rows - r);
        if (dx) rectify_rows(g, some, y ? y + r * g->y_pitch : NULL, dy + r * g->dy_pitch, dx + r * g->c);
        add_rows(some, g->c, dx ? dx + r * g->c : dy + r * g->dy_pitch, sum);
    }
}

static void sum_up(const Geometry *g, const float *y, const float *dy, float *dx, float *db, float *workspace) {
    const int64_t step = rows_of_piece(g->rows, g->c), count = pieces_of(g->rows, g->c);
#pragma omp parallel for num_threads(g->threads) schedule(static) if (g->rows * g->c > ALONE)
    for (int64_t k = 0; k < count; k++) {
        const int64_t at = k * step;
        piece(g, at_most(step, g->rows - at), y ? y + at * g->y_pitch : NULL, dy + at * g->dy_pitch,
              dx ? dx + at * g->c : NULL, workspace + k * g->c);
    }
    memset(db, 0, 4 * g->c);
    add_rows(count, g->c, workspace, db);
}

void bias_gradient(const Geometry *g, const float *dy, float *db, float *workspace) {
    sum_up(g, NULL, dy, NULL, db, workspace);
}

/* dy, a slice, to dx, and db, the sum of dx. */
void bias_gradient_slice(const Geometry *g, const float *dy, float *dx, float *db, float *workspace) {
    sum_up(g, NULL, dy, dx, db, workspace);
}

/* A ReLU's backward, y dy -> dx, and db, the sum of dx. The sum is taken while dx is still in a cache. dx may be dy,
 * unless dy is a slice. */
void bias_gradient_relu(const Geometry *g, const float *y, const float *dy, float *dx, float *db, float *workspace) {
    sum_up(g, y, dy, dx, db, workspace);
}
