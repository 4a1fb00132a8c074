/* Sums of squares by blocks, clipping, and the ratios of LARS and LAMB. */
#include <math.h>
#include <stddef.h>
#include <stdint.h>

#include "mirrored.h"
#include "squares.h"

/* For sums of squares. */
typedef struct {
    int64_t size, threads; /* of one tensor */
} Squares;
MIRRORED(squares, Squares)

/* The sum of squares of each block. */
void norms_squares(const Squares *g, const float *x, double *sums) {
#pragma omp parallel for num_threads(g->threads) schedule(static) if (g->size > ALONE)
    for (int64_t from = 0; from < g->size; from += SQUARED)
        sums[from / SQUARED] = squares(at_most(SQUARED, g->size - from), x + from);
}

/* For the common norm of all gradients. */
typedef struct {
    int64_t tensors, ranks, row; /* the sums in a row */
    double threshold;
} Norm;
MIRRORED(norm, Norm)

/* The factor that scales the norm down to the threshold; 1 if it is not above. `counts`: each tensor's blocks. */
void norms_clip(const int64_t *counts, const Norm *g, const double *sums, float *factor) {
    double total = 0;
    for (int64_t i = 0, first = 0; i < g->tensors; first += counts[i], i++)
        total += total_squares(sums, g->ranks, g->row, first, counts[i]);
    const double norm = sqrt(total);
    *factor = norm > g->threshold ? g->threshold / norm : 1;
}

/* For the ratio of a weight. */
typedef struct {
    int64_t blocks, ranks; /* a rank's sums of the weight's squares, as many of the step's behind them; 0: ratio 1 */
    double trust;          /* LARS's coefficient */
    float decay, scale;
} Ratio;
MIRRORED(ratio, Ratio)

static int counts(const float *objective, const float *clip) {
    return isfinite(*objective) && (!clip || isfinite(*clip));
}

static void norms(const Ratio *g, const double *sums, double *weight, double *step) {
    *weight = sqrt(total_squares(sums, g->ranks, 2 * g->blocks, 0, g->blocks));
    *step = sqrt(total_squares(sums, g->ranks, 2 * g->blocks, g->blocks, g->blocks));
}

/* sums -> ratio, for LARS. */
void norms_lars(const Ratio *g, const double *sums, const float *objective, const float *clip, float *ratio) {
    double weight, step;
    norms(g, sums, &weight, &step);
    step *= clip ? *clip * g->scale : g->scale;
    *ratio = weight > 0 && step > 0 ? (float)(g->trust * weight / (step + g->decay * weight)) : 1;
    if (!counts(objective, clip)) *ratio = 0;
}

/* sums -> ratio, for LAMB. */
void norms_lamb(const Ratio *g, const double *sums, const float *objective, const float *clip, float *ratio) {
    double weight, step;
    norms(g, sums, &weight, &step);
    *ratio = weight > 0 && step > 0 ? (float)(weight / step) : 1;
    if (!counts(objective, clip)) *ratio = 0;
}
