/* Copies rows from one pitch to another, as Concat and its backward do for each part; and images to images of another
 * shape. */
#include "mirrored.h"
#include "pieces.h"
#include "runs.h"

/* In elements. */
typedef struct {
    int64_t rows, width;
    int64_t from, to; /* pitch, from row to row, of the source and of the target */
    int64_t threads;
} Geometry;
MIRRORED(join, Geometry)

/* x null: sets the rows of y to 0. */
void join_rows(const Geometry *g, const float *x, float *y) {
    const int64_t at_once = up(PIECE, g->width) / g->width, width = g->width, from = g->from, to = g->to;
    const int past = width % LANES == 0 && goes_past(y, g->rows, to);
#pragma omp parallel num_threads(g->threads) if (g->rows * width > ALONE)
    {
#pragma omp for schedule(static)
        for (int64_t r = 0; r < g->rows; r += at_once)
            for (int64_t i = r; i < at_most(g->rows, r + at_once); i++) {
                if (x)
                    copy_run(width, x + i * from, past, y + i * to);
                else
                    clear_run(width, past, y + i * to);
            }
        if (past) stored_past();
    }
}

typedef struct {
    int64_t size, xc, xh, xw, yc, yh, yw, threads;
} Images;
MIRRORED(join_images, Images)

/* The same elements in logical order, n, c, h, w, while both lie as n, h, w, c. Rare, and as slow as it looks. */
void join_images(const Images *g, const float *x, float *y) {
#pragma omp parallel for num_threads(g->threads) schedule(static) if (g->size > ALONE)
    for (int64_t pixel = 0; pixel < g->size / g->yc; pixel++) {
        const int64_t column = pixel % g->yw, row = pixel / g->yw % g->yh, image = pixel / g->yw / g->yh;
        for (int64_t c = 0; c < g->yc; c++) {
            const int64_t logical = ((image * g->yc + c) * g->yh + row) * g->yw + column, w = logical % g->xw;
            const int64_t line = logical / g->xw, h = line % g->xh, plane = line / g->xh;
            y[pixel * g->yc + c] = x[((plane / g->xc * g->xh + h) * g->xw + w) * g->xc + plane % g->xc];
        }
    }
}
