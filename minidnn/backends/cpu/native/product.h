/* The inner kernel of matrix products: a few rows by two vectors of C, held in registers. */
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

/* Loads a vector exactly once. Compilers like to repeat a load as an operand of each product, which costs as much as
 * the product. */
ALWAYS vec once(const float *p) { return *(const volatile loose *)p; }

/* The layout of C = start + A B, in floats. Columns of A (rows of B) come in `runs` of `depth` each, because a window
 * of an image is not one piece of memory. Columns of C come in panels. */
typedef struct {
    int64_t runs, depth;
    const int64_t *at;              /* where each run of A begins */
    int64_t down, along;            /* strides of A: from row to row, from column to column of a run */
    int64_t step, over;             /* strides of B: from row to row, from panel to panel */
    int64_t pitch, panels;          /* stride of C from row to row; its panels lie side by side */
    int64_t start_down, start_over; /* strides of `start`, by row and by panel; 0: the same for all of them */
    int64_t relu;                   /* whether ReLU is applied to the result */
    int64_t half;                   /* whether only the first vector of each panel is computed */
} Product;

static const int64_t ONE_RUN[1] = {0};
static const float ZEROS[PANEL];

/* Computes R rows of C, V vectors of each panel. */
#define KERNEL(R, V, NAME)                                                                                    static void NAME(const Product *p, const float *a, const float *b, const float *start, float *c) {    \
        const int64_t down = p->down, along = p->along, step = p->step, depth = p->depth;                 \
        const int relu = p->relu != 0;                                                                    \
        for (int64_t panel = 0; panel < p->panels; panel++) {                                             \
            const float *right = b + panel * p->over, *from = start + panel * p->start_over;              \
            float *to = c + panel * PANEL;                                                                \
            vec sum[R][V];                                                                                \
            _Pragma("GCC unroll 16") for (int i = 0; i < R; i++)                                          \
                _Pragma("GCC unroll 2") for (int v = 0; v < V; v++)                                       \
                    sum[i][v] = load(from + i * p->start_down + v * LANES);                               \
            for (int64_t r = 0; r < p->runs; r++) {                                                       \
                const float *left = a + p->at[r];                                                         \
                for (int64_t k = 0; k < depth; k++, left += along, right += step) {                       \
                    vec row[V];                                                                           \
                    _Pragma("GCC unroll 2") for (int v = 0; v < V; v++) row[v] = once(right + v * LANES); \
                    _Pragma("GCC unroll 16") for (int i = 0; i < R; i++) {                                \
                        const float one = left[i * down];                                                 \
                        _Pragma("GCC unroll 2") for (int v = 0; v < V; v++) sum[i][v] += one * row[v];    \
                    }                                                                                     \
                }                                                                                         \
            }                                                                                             \
            _Pragma("GCC unroll 16") for (int i = 0; i < R; i++)                                          \
                _Pragma("GCC unroll 2") for (int v = 0; v < V; v++)                                       \
                    store(to + i * p->pitch + v * LANES,                                                  \
                          relu ? where_positive(sum[i][v], sum[i][v]) : sum[i][v]);                       \
        }                                                                                                 \
    }
#define KERNELS(R) KERNEL(R, 1, half_rows_##R) KERNEL(R, 2, rows_##R)
EACH_COUNT_OF_ROWS(KERNELS)

#define HALF(R) half_rows_##R,
#define WHOLE(R) rows_##R,
typedef void (*Kernel)(const Product *, const float *a, const float *b, const float *start, float *c);
static const Kernel halves[] = {0, EACH_COUNT_OF_ROWS(HALF)}, wholes[] = {0, EACH_COUNT_OF_ROWS(WHOLE)};

/* Computes `rows` rows of C, in groups of at most ROWS that are as equal as possible. */
ALWAYS void product(const Product *p, int64_t rows, const float *a, const float *b, const float *start, float *c) {
    const int64_t groups = (rows + ROWS - 1) / ROWS;
    const Kernel *kernels = p->half ? halves : wholes;
    for (int64_t group = 0; group < groups; group++) {
        const int64_t i = group * rows / groups, count = (group + 1) * rows / groups - i;
        kernels[count](p, a + i * p->down, b, start + i * p->start_down, c + i * p->pitch);
    }
}

/* C = A B, or C += A B to accumulate. A has any strides, B is one packed panel, and a row of C is one panel. */
static inline void multiply(int64_t rows, int64_t depth, const float *a, int64_t down, int64_t along, const float *b,
                            float *c, int accumulate) {
    const Product p = {1, depth, ONE_RUN, down, along, PANEL, 0, PANEL, 1, accumulate ? PANEL : 0, 0, 0, 0};
    product(&p, rows, a, b, accumulate ? c : ZEROS, c);
}
