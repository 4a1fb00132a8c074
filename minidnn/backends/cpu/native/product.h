/* The inner kernels of matrix products: a tile of C, a few rows by a few vectors, held in registers. */
#pragma once
#include "vector.h"

/* The largest number of rows of a tile that is 1, 2, ... WIDEST vectors wide. A wide tile loads fewer elements of A for
 * as many products. */
#if defined(__AVX512F__)
enum { WIDEST = 4, ROWS = 12 };
static const int ROWS_OF[] = {0, 12, 12, 8, 6};
#define EACH_TILE(F)                                                                                                  \
    F(1, 1) F(2, 1) F(3, 1) F(4, 1) F(5, 1) F(6, 1) F(7, 1) F(8, 1) F(9, 1) F(10, 1) F(11, 1) F(12, 1)                 \
    F(1, 2) F(2, 2) F(3, 2) F(4, 2) F(5, 2) F(6, 2) F(7, 2) F(8, 2) F(9, 2) F(10, 2) F(11, 2) F(12, 2)                 \
    F(1, 3) F(2, 3) F(3, 3) F(4, 3) F(5, 3) F(6, 3) F(7, 3) F(8, 3)                                                   \
    F(1, 4) F(2, 4) F(3, 4) F(4, 4) F(5, 4) F(6, 4)
#else
enum { WIDEST = 2, ROWS = 6 };
static const int ROWS_OF[] = {0, 6, 6};
#define EACH_TILE(F) \
    F(1, 1) F(2, 1) F(3, 1) F(4, 1) F(5, 1) F(6, 1) F(1, 2) F(2, 2) F(3, 2) F(4, 2) F(5, 2) F(6, 2)
#endif
enum { PANEL = 2 * LANES };
enum { ABREAST = WIDEST / 2 }; /* panels of the widest tile */
enum { DEEP = 128 };           /* rows of B's panels of a tile that stay in the first-level cache */

/* Loads a vector exactly once. Compilers like to repeat a load as an operand of each product, which costs as much as
 * the product. */
ALWAYS vec once(const float *p) { return *(const volatile loose *)p; }

enum { LINE = 16 }; /* floats of a cache line */

/* A piece of a matrix that is read next. Tiles ask for a few lines of it each, so that it comes from memory while they
 * compute. */
typedef struct {
    const float *row;
    int64_t rows, wide, pitch; /* `rows` of `wide` floats, `pitch` apart */
    int64_t from;              /* floats of the first row that have been asked for */
    int64_t each;              /* lines that a tile asks for */
} Ahead;

static Ahead ahead(const float *row, int64_t rows, int64_t wide, int64_t pitch, int64_t tiles) {
    return (Ahead){row, rows, wide, pitch, 0, rows * (up(wide, LINE) / LINE) / tiles + 1};
}

ALWAYS void ask(Ahead *a) {
    for (int64_t line = 0; line < a->each && a->rows > 0; line++) {
        __builtin_prefetch(a->row + a->from, 0, 2);
        a->from += LINE;
        if (a->from >= a->wide) a->from = 0, a->row += a->pitch, a->rows--;
    }
}

/* The layout of C = start + A B, in floats. Columns of A (rows of B) come in `runs` of `depth` each, because a window
 * of an image is not one piece of memory. Columns of C come in panels. */
typedef struct {
    int64_t runs, depth;
    const int64_t *at;              /* where each run of A begins */
    int64_t down, along;            /* strides of A: from row to row, from column to column of a run */
    int64_t step, over;             /* strides of B: from row to row, from panel to panel */
    int64_t pitch, aside;           /* strides of C: from row to row, from panel to panel */
    int64_t start_down, start_over; /* strides of `start`, by row and by panel; 0: the same for all of them */
    int64_t relu;                   /* whether ReLU is applied to the result */
    int64_t past;                   /* whether C goes past the caches to memory; then its rows are aligned vectors */
    int64_t panels;
    int64_t half;                   /* whether only the first vector of the last panel is computed */
    Ahead *coming;                  /* what is read next, of A and of B; or null */
    const float *then;              /* the panel of B that is read after all of these */
} Product;

static const int64_t ONE_RUN[1] = {0};
static const float ZEROS[PANEL];

/* Computes a tile of R rows by V vectors. An element of C has the same bits in a tile of any size. */
#define TILE_OF(R, V)                                                                                         \
    ALWAYS void tile_##R##x##V(const Product *p, const float *a, const float *b, const float *start, float *c) {\
        const int64_t down = p->down, along = p->along, step = p->step, over = p->over, depth = p->depth;     \
        const int64_t pitch = p->pitch, aside = p->aside;                                                     \
        vec sum[R][V];                                                                                        \
        _Pragma("GCC unroll 16") for (int i = 0; i < R; i++)                                                  \
            _Pragma("GCC unroll 4") for (int v = 0; v < V; v++)                                               \
                sum[i][v] = load(start + i * p->start_down + v / 2 * p->start_over + v % 2 * LANES);          \
        for (int64_t r = 0; r < p->runs; r++) {                                                               \
            const float *left = a + p->at[r];                                                                 \
            for (int64_t k = 0; k < depth; k++, left += along, b += step) {                                   \
                vec row[V];                                                                                   \
                _Pragma("GCC unroll 4") for (int v = 0; v < V; v++)                                           \
                    row[v] = once(b + v / 2 * over + v % 2 * LANES);                                          \
                _Pragma("GCC unroll 16") for (int i = 0; i < R; i++) {                                        \
                    const vec one = left[i * down] - (vec){0};                                                \
                    _Pragma("GCC unroll 4") for (int v = 0; v < V; v++) sum[i][v] = fused(one, row[v], sum[i][v]); \
                }                                                                                             \
            }                                                                                                 \
        }                                                                                                     \
        const int relu = p->relu != 0, past = p->past != 0;                                                   \
        _Pragma("GCC unroll 16") for (int i = 0; i < R; i++)                                                  \
            _Pragma("GCC unroll 4") for (int v = 0; v < V; v++)                                               \
                put(c + i * pitch + v / 2 * aside + v % 2 * LANES,                                            \
                    relu ? where_positive(sum[i][v], sum[i][v]) : sum[i][v], LANES, past);                    \
    }
EACH_TILE(TILE_OF)

#define NAMED_TILE(R, V) [V][R] = tile_##R##x##V,
typedef void (*Kernel)(const Product *, const float *a, const float *b, const float *start, float *c);
static const Kernel tiles_of[WIDEST + 1][ROWS + 1] = {EACH_TILE(NAMED_TILE)};

/* Computes `rows` rows of C, tile by tile. Each of B's panels meets all rows before the next. The tiles of a panel are
 * as equally high as possible. */
ALWAYS void product(const Product *p, int64_t rows, const float *a, const float *b, const float *start, float *c) {
    const int64_t vectors = 2 * p->panels - (p->half != 0);
    for (int64_t panel = 0; 2 * panel < vectors; panel += ABREAST) {
        const int64_t wide = vectors - 2 * panel < WIDEST ? vectors - 2 * panel : WIDEST;
        const int64_t groups = (rows + ROWS_OF[wide] - 1) / ROWS_OF[wide];
        for (int64_t group = 0; group < groups; group++) {
            const int64_t i = group * rows / groups, count = (group + 1) * rows / groups - i;
            if (p->coming) ask(&p->coming[0]), ask(&p->coming[1]);
            tiles_of[wide][count](p, a + i * p->down, b + panel * p->over,
                                  start + i * p->start_down + panel * p->start_over,
                                  c + i * p->pitch + panel * p->aside);
        }
    }
}

/* C = A B, or C += A B to accumulate, for one run, of which at most DEEP rows of B are taken at a time. `p` has the
 * strides and sizes; its start is ignored. */
static inline void multiply(Product p, int64_t rows, const float *a, const float *b, float *c, int accumulate) {
    const int64_t panels = p.panels, half = p.half, depth = p.depth, pieces = (depth + DEEP - 1) / DEEP;
    const int64_t tiles = (rows + ROWS - 1) / ROWS;
    p.runs = 1, p.at = ONE_RUN;
    for (int64_t panel = 0; panel < panels; panel += ABREAST) {
        float *to = c + panel * p.aside;
        p.panels = panels - panel < ABREAST ? panels - panel : ABREAST;
        p.half = half && panel + p.panels == panels;
        for (int64_t piece = 0; piece < pieces; piece++) {
            const int64_t k = piece * depth / pieces;
            const int add = accumulate || k;
            p.depth = (piece + 1) * depth / pieces - k;
            if (p.coming) {
                const int64_t last = piece + 1 == pieces, from = last ? 0 : (piece + 1) * depth / pieces;
                const float *next = last && panel + ABREAST >= panels ? p.then : b + (panel + last * ABREAST) * p.over;
                const int64_t floats = (last ? depth / pieces : (piece + 2) * depth / pieces - from) * p.step;
                p.coming[1] = ahead(next + from * p.step, 1, floats, 0, tiles);
            }
            p.start_down = add ? p.pitch : 0, p.start_over = add ? p.aside : 0;
            product(&p, rows, a + k * p.along, b + panel * p.over + k * p.step, add ? to : ZEROS, to);
        }
    }
}

/* Packs rows x columns of b into panels, with zeros beyond the columns. */
static inline void pack(const float *b, int64_t pitch, int64_t rows, int64_t columns, float *panels) {
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

/* Packs rows x columns of a B that lies as columns x rows, a square of LANES x LANES at a time. */
static inline void pack_turned(const float *b, int64_t pitch, int64_t rows, int64_t columns, float *panels) {
    for (int64_t j = 0; j < up(columns, PANEL); j += LANES) {
        float *to = panels + j / PANEL * PANEL * rows + j % PANEL;
        for (int64_t k = 0; k < rows; k += LANES, to += LANES * PANEL) {
            vec square[LANES];
            for (int i = 0; i < LANES; i++)
                square[i] = j + i < columns ? load_some(b + (j + i) * pitch + k, rows - k) : (vec){0};
            transpose(square);
            for (int i = 0; i < LANES && k + i < rows; i++) store(to + i * PANEL, square[i]);
        }
    }
}

/* Computes the columns of C in the last, incomplete panel, by way of whole tiles. */
static inline void ragged(Product p, int64_t rows, int64_t columns, const float *a, const float *panel,
                          int accumulate, float *c) {
    float tile[ROWS * PANEL] = {0};
    const int64_t pitch = p.pitch;
    p.pitch = p.step = PANEL, p.panels = 1, p.half = columns <= LANES, p.past = 0;
    for (int64_t i = 0; i < rows; i += ROWS, c += ROWS * pitch) {
        const int64_t count = i + ROWS < rows ? ROWS : rows - i;
        for (int64_t r = 0; accumulate && r < count; r++)
            for (int64_t j = 0; j < columns; j++) tile[r * PANEL + j] = c[r * pitch + j];
        multiply(p, count, a + i * p.down, panel, tile, accumulate);
        for (int64_t r = 0; r < count; r++)
            for (int64_t j = 0; j < columns; j++) c[r * pitch + j] = tile[r * PANEL + j];
    }
}
