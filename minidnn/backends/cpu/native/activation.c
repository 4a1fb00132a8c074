/* Functions of single elements: ReLU, those of functions.h, and PReLU. Outputs may share the bytes of inputs.
 *
 * ReLU is x where x > 0, and slope * x elsewhere. Backward takes the sign of x from x, from y or from a mask of bytes.
 * With a slope of 0, y is x - x elsewhere: +0, or NaN if x is not finite.
 */
#include "bytes.h"
#include "columns.h"
#include "functions.h"
#include "mirrored.h"

typedef struct {
    int64_t size, threads;
    float slope;
} Geometry;
MIRRORED(activation, Geometry)

ALWAYS vec rectified(bits positive, vec x, float slope) { return choose(positive, x, slope == 0 ? x - x : slope * x); }

/* Rectifies n values of the source: kept where the mask is set or, without a mask, where x > 0. */
ALWAYS void piece(int64_t n, const float *x, const uint8_t *mask, const float *source, float *to, const float slope) {
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        const bits positive = mask ? widened(mask + i) != 0 : load(x + i) > 0;
        store(to + i, rectified(positive, load(source + i), slope));
    }
    for (; i < n; i++) {
        const float v = source[i];
        to[i] = (mask ? mask[i] != 0 : x[i] > 0) ? v : slope == 0 ? v - v : slope * v;
    }
}

static void signs(int64_t n, const float *x, uint8_t *mask) {
    for (int64_t i = 0; i < n; i++) mask[i] = x[i] > 0;
}

/* x -> y, and the mask unless it is null. */
void relu_forward(const Geometry *g, const float *x, float *y, uint8_t *mask) {
#pragma omp parallel for num_threads(g->threads) schedule(static) if (g->size > ALONE)
    for (int64_t i = 0; i < g->size; i += PIECE) {
        const int64_t n = at_most(PIECE, g->size - i);
        if (mask) signs(n, x + i, mask + i);
        if (g->slope == 0)
            piece(n, x + i, NULL, x + i, y + i, 0);
        else
            piece(n, x + i, NULL, x + i, y + i, g->slope);
    }
}

/* dy -> dx, by `saved` (x or y) or, unless it is null, by the mask. */
void relu_backward(const Geometry *g, const float *saved, const uint8_t *mask, const float *dy, float *dx) {
#pragma omp parallel for num_threads(g->threads) schedule(static) if (g->size > ALONE)
    for (int64_t i = 0; i < g->size; i += PIECE) {
        const int64_t n = at_most(PIECE, g->size - i);
        if (mask)
            piece(n, NULL, mask + i, dy + i, dx + i, g->slope);
        else if (g->slope == 0)
            piece(n, saved + i, NULL, dy + i, dx + i, 0);
        else
            piece(n, saved + i, NULL, dy + i, dx + i, g->slope);
    }
}

typedef struct {
    int64_t size, threads;
    double numbers[3];
} Function;
MIRRORED(activation_function, Function)

typedef wide Of(wide, const double *numbers);

/* to = f(from) or, unless dy is null, dy * f(from). Elements at the end are computed as all others are. (The numbers
 * are copied, since a compiler must assume that writes to `to` change the original.) */
ALWAYS void mapped(int64_t n, const float *from, const float *dy, float *to, const double *numbers, Of f) {
    const double k[3] = {numbers[0], numbers[1], numbers[2]};
    for (int64_t i = 0; i < n; i += WIDE) {
        const wide found = f(load_wide(from + i, n - i), k);
        store_wide(to + i, dy ? load_wide(dy + i, n - i) * found : found, n - i);
    }
}

#define BY_PIECES(g) \
    _Pragma("omp parallel for num_threads(g->threads) schedule(static) if (g->size > ALONE / 4)") \
    for (int64_t i = 0; i < g->size; i += PIECE)

/* x -> y */
#define FORWARD(name)                                                                                        \
    void name##_forward(const Function *g, const float *x, float *y) {                                       \
        BY_PIECES(g) mapped(at_most(PIECE, g->size - i), x + i, NULL, y + i, g->numbers, name##_value);      \
    }

/* saved dy -> dx, where `saved` is x or y. */
#define BACKWARD(name)                                                                                       \
    void name##_backward(const Function *g, const float *saved, const float *dy, float *dx) {                \
        BY_PIECES(g) mapped(at_most(PIECE, g->size - i), saved + i, dy + i, dx + i, g->numbers, name##_slope); \
    }

FUNCTIONS(FORWARD)
FUNCTIONS(BACKWARD)
FORWARD(threshold)

typedef vec Quick(vec, const float *numbers);

/* The same by a function of floats. */
ALWAYS void mapped_quickly(int64_t n, const float *from, const float *dy, float *to, const double *numbers, Quick f) {
    const float k[3] = {(float)numbers[0], (float)numbers[1], (float)numbers[2]};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        const vec found = f(load(from + i), k);
        store(to + i, dy ? load(dy + i) * found : found);
    }
    if (i < n) {
        const vec found = f(load_some(from + i, n - i), k);
        store_some(to + i, dy ? load_some(dy + i, n - i) * found : found, n - i);
    }
}

#define QUICK_FORWARD(name)                                                                                  \
    void name##_forward(const Function *g, const float *x, float *y) {                                       \
        BY_PIECES(g) mapped_quickly(at_most(PIECE, g->size - i), x + i, NULL, y + i, g->numbers, name##_value); \
    }
#define QUICK_BACKWARD(name)                                                                                 \
    void name##_backward(const Function *g, const float *saved, const float *dy, float *dx) {                \
        BY_PIECES(g)                                                                                         \
        mapped_quickly(at_most(PIECE, g->size - i), saved + i, dy + i, dx + i, g->numbers, name##_slope);    \
    }
QUICK(QUICK_FORWARD)
QUICK(QUICK_BACKWARD)

/* PReLU: y = x where x > 0, and slope[c] * x elsewhere. Channels are innermost. */
typedef struct {
    int64_t rows, c, shared, threads; /* shared: whether all channels have one slope */
} PReLU;
MIRRORED(activation_prelu, PReLU)

ALWAYS int64_t rows_at_once(int64_t c) { return up(PIECE, c) / c; }

/* from -> to: kept where x > 0, and elsewhere times the slope. Forward if `from` is x, and backward if it is dy. */
void prelu(const PReLU *g, const float *x, const float *from, const float *slope, float *to) {
    const int64_t c = g->c, step = rows_at_once(c);
#pragma omp parallel for num_threads(g->threads) schedule(static) if (g->rows * c > ALONE)
    for (int64_t begin = 0; begin < g->rows; begin += step)
        for (int64_t r = begin; r < at_most(begin + step, g->rows); r++)
            for (int64_t k = 0; k < c; k += LANES) {
                const vec v = load_some(from + r * c + k, c - k);
                const vec s = g->shared ? (vec){0} + slope[0] : load_some(slope + k, c - k);
                store_some(to + r * c + k, choose(load_some(x + r * c + k, c - k) > 0, v, s * v), c - k);
            }
}

int64_t prelu_bytes(const PReLU *g) { return 4 * (pieces_of(g->rows, g->c) + 1) * g->c; }

/* x dy -> dslope, the sum of x dy where x is not positive. */
void prelu_backward_filter(const PReLU *g, const float *x, const float *dy, float *dslope, float *workspace) {
    const int64_t c = g->c, step = rows_of_piece(g->rows, c), count = pieces_of(g->rows, c);
#pragma omp parallel for num_threads(g->threads) schedule(static) if (g->rows * c > ALONE)
    for (int64_t piece = 0; piece < count; piece++) {
        float *const sum = workspace + piece * c;
        memset(sum, 0, 4 * c);
        for (int64_t r = piece * step; r < at_most((piece + 1) * step, g->rows); r++)
            for (int64_t k = 0; k < c; k += LANES) {
                const vec v = load_some(x + r * c + k, c - k), product = v * load_some(dy + r * c + k, c - k);
                store_some(sum + k, load_some(sum + k, c - k) + choose(v > 0, (vec){0}, product), c - k);
            }
    }
    float *const total = g->shared ? workspace + count * c : dslope;
    memset(total, 0, 4 * c);
    add_rows(count, c, workspace, total);
    if (g->shared) {
        *dslope = 0;
        add_rows(c, 1, total, dslope);
    }
}
