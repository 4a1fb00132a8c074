/* ReLU: y = x where x > 0, and slope * x elsewhere. Backward takes the sign of x from x, from y or from a mask of
 * bytes. Outputs may share the bytes of inputs. With a slope of 0, y is x - x elsewhere: +0, or NaN if x is not finite.
 */
#include "bytes.h"
#include "mirrored.h"
#include "pieces.h"

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
