/* Moves of elements: boxes, axes in another order, tiles, a circle. backends/moves.py describes a move as loops over the target,
 * whose elements follow each other in memory. */
#include "mirrored.h"
#include "pieces.h"
#include "runs.h"

enum { MOST = 33 };    /* loops: an axis each, and the tiles */
enum { ACROSS = 256 }; /* places of the last loop of a transposition, whose source a near cache holds */

/* In elements. A loop has places, a step from one to the next in the source, and the places that the source has. */
typedef struct {
    int64_t loops, size, start, threads;
    int64_t turned; /* for move_turned: the loop whose places follow each other in the source */
    int64_t places[MOST], step[MOST], low[MOST], high[MOST];
} Geometry;
MIRRORED(move, Geometry)

/* Places from..to of a row: copied where they are in the source, else 0. */
ALWAYS void part(const Geometry *g, int inside, int64_t from, int64_t to, const float *x, int past, float *y) {
    const int64_t last = g->loops - 1, step = g->step[last];
    const int64_t low = inside ? g->low[last] : to, high = inside ? g->high[last] : to;
    const int64_t begin = low < from ? from : at_most(low, to), end = high < begin ? begin : at_most(high, to);
    clear_run(begin - from, past, y);
    if (step == 1)
        copy_run(end - begin, x + begin, past, y + (begin - from));
    else
        for (int64_t i = begin; i < end; i++) y[i - from] = x[i * step];
    clear_run(to - end, past, y + (end - from));
}

static void piece(const Geometry *g, int64_t from, int64_t to, const float *x, int past, float *y) {
    const int64_t last = g->loops - 1;
    int64_t at[MOST], rest = from;
    for (int64_t k = last; k >= 0; k--) {
        at[k] = rest % g->places[k];
        rest /= g->places[k];
    }
    for (int64_t i = from; i < to;) {
        int64_t source = g->start;
        int inside = 1;
        for (int64_t k = 0; k < last; k++) {
            source += at[k] * g->step[k];
            inside &= at[k] >= g->low[k] && at[k] < g->high[k];
        }
        const int64_t n = at_most(g->places[last] - at[last], to - i);
        part(g, inside, at[last], at[last] + n, x + source, past, y + i);
        i += n;
        at[last] = 0;
        for (int64_t k = last - 1; k >= 0 && ++at[k] == g->places[k]; k--) at[k] = 0;
    }
}

/* Row by row of the target. */
void move_rows(const Geometry *g, const float *x, float *y) {
    const int64_t last = g->loops - 1;
    const int whole = g->low[last] % LANES == 0 && g->high[last] % LANES == 0 && g->step[last] == 1;
    const int past = whole && goes_past(y, g->size / g->places[last], g->places[last]);
#pragma omp parallel num_threads(g->threads) if (g->size > ALONE)
    {
#pragma omp for schedule(static)
        for (int64_t i = 0; i < g->size; i += PIECE) piece(g, i, at_most(i + PIECE, g->size), x, past, y);
        if (past) stored_past();
    }
}

/* LANES rows of the target beside each other, of which the first `rows` exist, `pitch` apart: n places of each. */
static void turned(int64_t rows, int64_t n, int64_t pitch, const float *x, int64_t step, int past, float *y) {
    for (int64_t i = 0; i < n; i += LANES) {
        vec square[LANES];
        for (int64_t j = 0; j < LANES; j++) square[j] = i + j < n ? load_some(x + (i + j) * step, rows) : (vec){0};
        transpose(square);
        for (int64_t j = 0; j < rows; j++) put(y + j * pitch + i, square[j], n - i, past);
    }
}

/* A transposition: squares of the loop g->turned and the last one. All places are in the source. */
void move_turned(const Geometry *g, const float *x, float *y) {
    const int64_t last = g->loops - 1, n = g->places[last], wide = g->places[g->turned];
    const int64_t strips = up(wide, LANES) / LANES, blocks = up(n, ACROSS) / ACROSS;
    int64_t pitch = 1; /* in the target, from one place of g->turned to the next */
    for (int64_t k = last; k > g->turned; k--) pitch *= g->places[k];
    const int past = goes_past(y, g->size / n, n);
#pragma omp parallel num_threads(g->threads) if (g->size > ALONE)
    {
#pragma omp for schedule(static)
        for (int64_t s = 0; s < g->size / n / wide * blocks * strips; s++) {
            const int64_t row = s % strips * LANES, begin = s / strips % blocks * ACROSS;
            int64_t rest = s / strips / blocks, behind = n;
            int64_t from = row + begin * g->step[last], to = row * pitch + begin;
            for (int64_t k = last - 1; k >= 0; k--) {
                if (k != g->turned) {
                    const int64_t at = rest % g->places[k];
                    from += at * g->step[k], to += at * behind, rest /= g->places[k];
                }
                behind *= g->places[k];
            }
            const int64_t rows = at_most(LANES, wide - row), across = at_most(ACROSS, n - begin);
            turned(rows, across, pitch, x + from, g->step[last], past, y + to);
        }
        if (past) stored_past();
    }
}

typedef struct {
    int64_t rows, width, tiles, threads;
} Tiles;
MIRRORED(move_tiles, Tiles)

/* The sum of tiles, from the first to the last. */
ALWAYS void added(int64_t width, int64_t tiles, const float *dy, float *dx) {
    int64_t i = 0;
    for (; i + LANES <= width; i += LANES) {
        vec sum = load(dy + i);
        for (int64_t t = 1; t < tiles; t++) sum += load(dy + t * width + i);
        store(dx + i, sum);
    }
    for (; i < width; i++) {
        float sum = dy[i];
        for (int64_t t = 1; t < tiles; t++) sum += dy[t * width + i];
        dx[i] = sum;
    }
}

/* Each row of dx is the sum of a row's tiles in dy. */
void move_tiles(const Tiles *g, const float *dy, float *dx) {
    const int64_t width = g->width, tiles = g->tiles, at_once = up(PIECE, width * tiles) / (width * tiles);
#pragma omp parallel for num_threads(g->threads) schedule(static) if (g->rows * width * tiles > ALONE)
    for (int64_t r = 0; r < g->rows; r += at_once)
        for (int64_t row = r; row < at_most(g->rows, r + at_once); row++)
            added(width, tiles, dy + row * tiles * width, dx + row * width);
}

typedef struct {
    int64_t rows, width, by, threads;
} Roll;
MIRRORED(move_roll, Roll)

/* Each row moved by so many places, in a circle. */
void move_roll(const Roll *g, const float *x, float *y) {
    const int64_t width = g->width, rest = width - g->by, at_once = up(PIECE, width) / width;
#pragma omp parallel for num_threads(g->threads) schedule(static) if (g->rows * width > ALONE)
    for (int64_t r = 0; r < g->rows; r += at_once)
        for (int64_t row = r; row < at_most(g->rows, r + at_once); row++) {
            copy_run(rest, x + row * width, 0, y + row * width + g->by);
            copy_run(g->by, x + row * width + rest, 0, y + row * width);
        }
}
