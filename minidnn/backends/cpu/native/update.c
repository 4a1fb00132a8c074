/* Caffe's SGD, and the norm for gradient clipping. Each makes one pass over its tensors, at the speed of memory. */
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

/* For the common norm of all gradients. */
typedef struct {
    int64_t size, threads; /* of one gradient */
    int64_t count;         /* pieces of all gradients */
    double threshold;
} Norm;
MIRRORED(norm, Norm)

/* The workspace of one gradient: one sum for each piece, float64. */
int64_t update_squares_bytes(const Norm *g) { return 8 * (up(g->size, PIECE) / PIECE); }

/* The sum of squares of each piece of one gradient. */
void update_squares(const Norm *g, const float *dw, double *sums) {
#pragma omp parallel for num_threads(g->threads) schedule(static) if (g->size > ALONE)
    for (int64_t from = 0; from < g->size; from += PIECE) {
        const int64_t n = at_most(PIECE, g->size - from);
        double some[8] = {0}, sum = 0;
        int64_t i = 0;
        for (; i + 8 <= n; i += 8)
            for (int j = 0; j < 8; j++) some[j] += (double)dw[from + i + j] * dw[from + i + j];
        for (; i < n; i++) sum += (double)dw[from + i] * dw[from + i];
        for (int j = 0; j < 8; j++) sum += some[j];
        sums[from / PIECE] = sum;
    }
}

/* The factor that scales the norm, the root of the total of all sums, down to the threshold; 1 if it is not above. */
void update_clip(const Norm *g, const double *sums, float *factor) {
    double total = 0;
    for (int64_t i = 0; i < g->count; i++) total += sums[i];
    const double norm = sqrt(total);
    *factor = norm > g->threshold ? g->threshold / norm : 1;
}
