/* The innermost product of matrices: a few rows by two vectors, held in registers. */
#pragma once
#include "vector.h"

#if defined(__AVX512F__)
enum { ROWS = 12 };
#define EACH_COUNT_OF_ROWS(F) F(1) F(2) F(3) F(4) F(5) F(6) F(7) F(8) F(9) F(10) F(11) F(12)
#else
enum { ROWS = 6 };
#define EACH_COUNT_OF_ROWS(F) F(1) F(2) F(3) F(4) F(5) F(6)
#endif
enum { PANEL = 2 * LANES };

/* How C = start + A B lies, in floats. Columns of A (rows of B) come in `runs` of `depth`: a window of an image is not
 * one piece of memory. Columns of C come in panels. */
typedef struct {
    int64_t runs, depth;
    const int64_t *at;         /* where each run of A begins */
    int64_t down, along;       /* A: from row to row, from column to column of a run */
    int64_t step, over;        /* B: from row to row, from panel to panel */
    int64_t pitch, panels;     /* C: from row to row; panels lie side by side */
    int64_t start_down, start_over; /* as of C, or 0: the same for all rows, for all panels */
    int64_t relu;              /* of the result */
} Product;

static const int64_t ONE_RUN[1] = {0};
static const float ZEROS[PANEL];

/* R rows of it. */
#define KERNEL(R)                                                                                          \
    static void rows_##R(const Product *p, const float *a, const float *b, const float *start, float *c) { \
        const int64_t down = p->down, along = p->along, step = p->step, depth = p->depth;                  \
        const int relu = p->relu != 0;                                                                     \
        for (int64_t panel = 0; panel < p->panels; panel++) {                                              \
            const float *right = b + panel * p->over, *from = start + panel * p->start_over;               \
            float *to = c + panel * PANEL;                                                                 \
            vec sum[R][2];                                                                                 \
            _Pragma("GCC unroll 16") for (int i = 0; i < R; i++) {                                         \
                sum[i][0] = load(from + i * p->start_down);                                                \
                sum[i][1] = load(from + i * p->start_down + LANES);                                        \
            }                                                                                              \
            for (int64_t r = 0; r < p->runs; r++) {                                                        \
                const float *left = a + p->at[r];                                                          \
                for (int64_t k = 0; k < depth; k++, left += along, right += step) {                        \
                    const vec b0 = load(right), b1 = load(right + LANES);                                  \
                    _Pragma("GCC unroll 16") for (int i = 0; i < R; i++) {                                 \
                        const float one = left[i * down];                                                  \
                        sum[i][0] += one * b0;                                                             \
                        sum[i][1] += one * b1;                                                             \
                    }                                                                                      \
                }                                                                                          \
            }                                                                                              \
            _Pragma("GCC unroll 16") for (int i = 0; i < R; i++) {                                         \
                store(to + i * p->pitch, relu ? where_positive(sum[i][0], sum[i][0]) : sum[i][0]);         \
                store(to + i * p->pitch + LANES, relu ? where_positive(sum[i][1], sum[i][1]) : sum[i][1]); \
            }                                                                                              \
        }                                                                                                  \
    }
EACH_COUNT_OF_ROWS(KERNEL)

#define NAME_OF_KERNEL(R) rows_##R,
typedef void (*Kernel)(const Product *, const float *a, const float *b, const float *start, float *c);
static const Kernel kernels[] = {0, EACH_COUNT_OF_ROWS(NAME_OF_KERNEL)};

/* All `rows` rows, by kernels of as equal sizes as there are. */
ALWAYS void product(const Product *p, int64_t rows, const float *a, const float *b, const float *start, float *c) {
    const int64_t groups = (rows + ROWS - 1) / ROWS;
    for (int64_t group = 0; group < groups; group++) {
        const int64_t i = group * rows / groups, count = (group + 1) * rows / groups - i;
        kernels[count](p, a + i * p->down, b, start + i * p->start_down, c + i * p->pitch);
    }
}

/* A by any strides, B one packed panel, C of rows of a panel. */
static inline void multiply(int64_t rows, int64_t depth, const float *a, int64_t down, int64_t along, const float *b,
                            float *c, int accumulate) {
    const Product p = {1, depth, ONE_RUN, down, along, PANEL, 0, PANEL, 1, accumulate ? PANEL : 0, 0, 0};
    product(&p, rows, a, b, accumulate ? c : ZEROS, c);
}
