/* Copies rows from one pitch to another. Concat and its backward do this for each part. */
#include "mirrored.h"
#include "pieces.h"

/* In elements. */
typedef struct {
    int64_t rows, width;
    int64_t from, to; /* pitch, from row to row, of the source and of the target */
    int64_t threads;
} Geometry;
MIRRORED(join, Geometry)

static void copy(int64_t n, const float *restrict x, int past, float *restrict y) {
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) put(y + i, load(x + i), LANES, past);
    if (i < n && n >= LANES) /* the last vector overlaps the one before: some elements are copied twice */
        store(y + n - LANES, load(x + n - LANES));
    else
        for (; i < n; i++) y[i] = x[i];
}

void join_rows(const Geometry *g, const float *x, float *y) {
    const int64_t at_once = up(PIECE, g->width) / g->width, width = g->width, from = g->from, to = g->to;
    const int past = width % LANES == 0 && goes_past(y, g->rows, to);
#pragma omp parallel num_threads(g->threads) if (g->rows * width > ALONE)
    {
#pragma omp for schedule(static)
        for (int64_t r = 0; r < g->rows; r += at_once)
            for (int64_t i = r; i < at_most(g->rows, r + at_once); i++) copy(width, x + i * from, past, y + i * to);
        if (past) stored_past();
    }
}
