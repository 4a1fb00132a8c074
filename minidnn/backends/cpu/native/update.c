/* Caffe's SGD: one pass over its tensors, at the speed of memory. */
#include <math.h>
#include <stddef.h>
#include <stdint.h>

#include "mirrored.h"
#include "pieces.h"

enum { NONE, L1, L2 };

typedef struct {
    int64_t size, threads;
    int64_t regularization; /* NONE, L1 or L2 */
    float decay, momentum, scale, lr_mult;
} Geometry;
MIRRORED(sgd, Geometry)

ALWAYS float sign(float x) { return x > 0 ? 1 : x < 0 ? -1 : x; }

/* Updates n elements in Caffe's order of operations. The last two arguments are constants at each call, so that the
 * compiler makes a loop for each case. */
ALWAYS void elements(const Geometry *g, int64_t n, float *restrict w, const float *restrict dw, float *restrict h,
                     float scale, float rate, const int regularization, const int has_momentum) {
    const float decay = g->decay, momentum = g->momentum;
    for (int64_t i = 0; i < n; i++) {
        float step = dw[i] * scale;
        if (regularization == L1) step += decay * sign(w[i]);
        if (regularization == L2) step += decay * w[i];
        step *= rate;
        if (has_momentum) h[i] = step = momentum * h[i] + step;
        w[i] -= step;
    }
}

static void piece(const Geometry *g, int64_t n, float *w, const float *dw, float *h, float scale, float rate) {
#define CASE(which)                                                             \
    case which:                                                                 \
        if (h)                                                                  \
            elements(g, n, w, dw, h, scale, rate, which, 1);                    \
        else                                                                    \
            elements(g, n, w, dw, h, scale, rate, which, 0);                    \
        break;
    switch (g->regularization) {
        CASE(NONE)
        CASE(L1)
        CASE(L2)
    }
#undef CASE
}

/* Updates w and h in place. h is null without momentum, clip (a factor) is null without clipping. Nothing is changed if
 * the objective or the factor is not finite. */
void update_sgd(const Geometry *g, float *w, const float *dw, float *h, const float *rate, const float *objective,
                const float *clip) {
    if (!isfinite(*objective) || (clip && !isfinite(*clip))) return;
    const float scale = clip ? *clip * g->scale : g->scale, step = *rate * g->lr_mult;
#pragma omp parallel for num_threads(g->threads) schedule(static) if (g->size > ALONE)
    for (int64_t i = 0; i < g->size; i += PIECE)
        piece(g, at_most(PIECE, g->size - i), w + i, dw + i, h ? h + i : NULL, scale, step);
}
