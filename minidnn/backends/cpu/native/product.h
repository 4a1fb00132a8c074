/* The innermost product of matrices: a few rows by two vectors, held in registers. */
#pragma once
#include "vector.h"

#if defined(__AVX512F__)
enum { ROWS = 12 };
#else
enum { ROWS = 6 };
#endif
enum { PANEL = 2 * LANES };

/* rows x PANEL of C (+)= A B: A by any strides, B a panel of depth x PANEL, C with rows of `pitch`. */
#define KERNEL(R)                                                                                             \
    static void rows_##R(int64_t depth, const float *a, int64_t down, int64_t along, const float *b, float *c, \
                         int64_t pitch, int accumulate) {                                                     \
        vec sum[R][2];                                                                                        \
        _Pragma("GCC unroll 16") for (int i = 0; i < R; i++) {                                                \
            sum[i][0] = accumulate ? load(c + i * pitch) : (vec){0};                                          \
            sum[i][1] = accumulate ? load(c + i * pitch + LANES) : (vec){0};                                  \
        }                                                                                                     \
        for (int64_t k = 0; k < depth; k++, a += along, b += PANEL) {                                         \
            vec left = load(b), right = load(b + LANES);                                                      \
            _Pragma("GCC unroll 16") for (int i = 0; i < R; i++) {                                            \
                float one = a[i * down];                                                                      \
                sum[i][0] += one * left;                                                                      \
                sum[i][1] += one * right;                                                                     \
            }                                                                                                 \
        }                                                                                                     \
        _Pragma("GCC unroll 16") for (int i = 0; i < R; i++) {                                                \
            store(c + i * pitch, sum[i][0]);                                                                  \
            store(c + i * pitch + LANES, sum[i][1]);                                                          \
        }                                                                                                     \
    }

#if defined(__AVX512F__)
KERNEL(12)
#define rows_most rows_12
#else
KERNEL(6)
#define rows_most rows_6
#endif
KERNEL(2)

/* For an even number of rows. */
static void multiply(int64_t rows, int64_t depth, const float *a, int64_t down, int64_t along, const float *b,
                     float *c, int accumulate) {
    int64_t i = 0;
    for (; i + ROWS <= rows; i += ROWS)
        rows_most(depth, a + i * down, down, along, b, c + i * PANEL, PANEL, accumulate);
    for (; i < rows; i += 2) rows_2(depth, a + i * down, down, along, b, c + i * PANEL, PANEL, accumulate);
}
