/* Sums of squares by blocks (optimizers/squares.py), in float64. */
#pragma once
#include "pieces.h"

enum { SQUARED = PIECE, SOME = 8 }; /* elements of a block; sums that are made side by side */

/* The sum of n squares. The i-th is added to the sum i % SOME: zeros behind them change nothing. */
ALWAYS double squares(int64_t n, const float *x) {
    double some[SOME] = {0};
    int64_t i = 0;
    for (; i + SOME <= n; i += SOME)
        for (int j = 0; j < SOME; j++) some[j] += (double)x[i + j] * x[i + j];
    for (int j = 0; i + j < n; j++) some[j] += (double)x[i + j] * x[i + j];
    double sum = 0;
    for (int j = 0; j < SOME; j++) sum += some[j];
    return sum;
}

/* The sum of one tensor's squares: `count` sums of blocks from `first` on in each rank's row of `row` sums. */
ALWAYS double total_squares(const double *sums, int64_t ranks, int64_t row, int64_t first, int64_t count) {
    double total = 0;
    for (int64_t rank = 0; rank < ranks; rank++)
        for (int64_t i = 0; i < count; i++) total += sums[rank * row + first + i];
    return total;
}
