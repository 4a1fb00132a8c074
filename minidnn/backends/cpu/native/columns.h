/* Sums by channel of a matrix of rows x c channels. The rows are cut into pieces, by sizes alone. Each piece is summed
 * to a row of its own, then these rows are summed in their order. */
#pragma once
#include "pieces.h"

enum { MOST = 64 };       /* most pieces */
enum { LEAST = 1 << 15 }; /* least elements of a piece; the last may have fewer */

ALWAYS int64_t rows_of_piece(int64_t rows, int64_t c) {
    const int64_t by_number = up(rows, MOST) / MOST, by_size = up(LEAST, c) / c;
    return by_number > by_size ? by_number : by_size;
}

ALWAYS int64_t pieces_of(int64_t rows, int64_t c) { return up(rows, rows_of_piece(rows, c)) / rows_of_piece(rows, c); }

/* sum += the rows of x. Four rows are added at a time, one from each quarter of x: memory serves four streams faster
 * than one, and fewer roundings follow one another. */
static inline void add_rows(int64_t rows, int64_t c, const float *restrict x, float *restrict sum) {
    const int64_t quarter = rows / 4, apart = quarter * c;
    for (int64_t r = 0; r < quarter; r++, x += c)
        for (int64_t i = 0; i < c; i++) sum[i] += (x[i] + x[apart + i]) + (x[2 * apart + i] + x[3 * apart + i]);
    x += 3 * apart;
    for (int64_t r = 4 * quarter; r < rows; r++, x += c)
        for (int64_t i = 0; i < c; i++) sum[i] += x[i];
}
