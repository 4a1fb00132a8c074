/* Sums of up to four tensors of one shape, alone, or with a ReLU or its backward behind them. One pass over each tensor:
 * an element of all of them is read before it is written. So the result may have the bytes of any of them.
 */
#include "mirrored.h"
#include "pieces.h"

enum { MOST = 4 }; /* tensors */

typedef struct {
    int64_t size, count, threads; /* count: of tensors, from 2 to MOST */
    int64_t relu;                 /* whether a ReLU follows */
    float coefficients[MOST];
} Geometry;
MIRRORED(elementwise, Geometry)

/* LANES elements of the result, from the i-th on, of which the first n exist. `saved`: a ReLU's y, or null. */
ALWAYS vec result(const float *const x[], const float c[], const int count, const int relu, const float *saved,
                  int64_t i, int64_t n) {
    vec sum = c[0] * load_some(x[0] + i, n);
    for (int k = 1; k < count; k++) sum += c[k] * load_some(x[k] + i, n);
    return saved ? where_positive(load_some(saved + i, n), sum) : relu ? where_positive(sum, sum) : sum;
}

ALWAYS void piece(int64_t from, int64_t to, const float *const x[], const float c[], const int count, const int relu,
                  const float *saved, int past, float *y) {
    int64_t i = from;
    for (; i + LANES <= to; i += LANES) put(y + i, result(x, c, count, relu, saved, i, LANES), LANES, past);
    if (i < to) store_some(y + i, result(x, c, count, relu, saved, i, to - i), to - i);
}

/* Each combination is compiled apart: the numbers of tensors and the branches are constants in its loop. */
static void sums(const Geometry *g, int64_t from, int64_t to, const float *const x[], const float *saved, int past,
                 float *y) {
#define COUNT(n)                                                           \
    case n:                                                                \
        if (saved)                                                         \
            piece(from, to, x, g->coefficients, n, 0, saved, past, y);     \
        else if (g->relu)                                                  \
            piece(from, to, x, g->coefficients, n, 1, NULL, past, y);      \
        else                                                               \
            piece(from, to, x, g->coefficients, n, 0, NULL, past, y);      \
        break
    switch (g->count) {
        COUNT(2);
        COUNT(3);
        COUNT(4);
    }
}

/* y = c0 x0 + c1 x1 + ... of the first `count` tensors, then ReLU if g->relu. Unless `saved` is null, 0 where it is not
 * positive. */
void elementwise_sum(const Geometry *g, const float *saved, const float *x0, const float *x1, const float *x2,
                     const float *x3, float *y) {
    const float *const x[MOST] = {x0, x1, x2, x3};
    const int alone = y != saved && y != x0 && y != x1 && y != x2 && y != x3;
    const int past = alone && goes_past(y, g->size / LANES, LANES);
#pragma omp parallel num_threads(g->threads) if (g->size > ALONE)
    {
#pragma omp for schedule(static)
        for (int64_t i = 0; i < g->size; i += PIECE) sums(g, i, at_most(i + PIECE, g->size), x, saved, past, y);
        if (past) stored_past();
    }
}

typedef struct {
    int64_t rows, c, pitch, threads; /* elements of a row, and from one row of `a` to the next */
} Slice;
MIRRORED(elementwise_slice, Slice)

/* y = a + b, where a is a slice of a wider matrix. y may be b. */
void elementwise_add_slice(const Slice *g, const float *a, const float *b, float *y) {
#pragma omp parallel for num_threads(g->threads) schedule(static) if (g->rows * g->c > ALONE)
    for (int64_t r = 0; r < g->rows; r++) {
        const float *const ar = a + r * g->pitch, *const br = b + r * g->c;
        float *const yr = y + r * g->c;
        int64_t i = 0;
        for (; i + LANES <= g->c; i += LANES) store(yr + i, load(ar + i) + load(br + i));
        if (i < g->c) store_some(yr + i, load_some(ar + i, g->c - i) + load_some(br + i, g->c - i), g->c - i);
    }
}
