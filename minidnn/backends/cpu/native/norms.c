/* Sums of squares by blocks, clipping, the loss's scale, and the ratios of LARS and LAMB. */
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

/* The norm of all tensors. `counts`: each tensor's blocks. */
static double norm_of(const int64_t *counts, const Norm *g, const double *sums) {
    double total = 0;
    for (int64_t i = 0, first = 0; i < g->tensors; first += counts[i], i++)
        total += total_squares(sums, g->ranks, g->row, first, counts[i]);
    return sqrt(total);
}

/* The factor that scales the norm down to the threshold; 1 if it is not above. */
void norms_clip(const int64_t *counts, const Norm *g, const double *sums, float *factor) {
    const double norm = norm_of(counts, g, sums);
    *factor = norm > g->threshold ? g->threshold / norm : 1;
}

/* For the loss's scale. */
typedef struct {
    Norm norm; /* a threshold below 0: nothing is clipped */
    int64_t period;
    float most, least;
} Unscale;
MIRRORED(unscale, Unscale)

/* The factor that undoes the scale and clips; it is NaN if the step does not count. `state`: the scale, and the good
 * steps since it changed. */
void norms_unscale(const int64_t *counts, const Unscale *g, const double *sums, const float *objective, const float *from,
                   float *state, float *factor) {
    const float scale = from[0], good = from[1];
    const double norm = norm_of(counts, &g->norm, sums) / scale, threshold = g->norm.threshold;
    *factor = (threshold >= 0 && norm > threshold ? threshold / norm : 1) / scale;
    state[0] = scale;
    state[1] = good;
    if (!isfinite(*objective)) return;
    if (isfinite(norm)) {
        const int due = good + 1 >= g->period;
        if (due && scale * 2 <= g->most) state[0] = scale * 2;
        state[1] = due ? 0 : good + 1;
    } else if (scale / 2 >= g->least) {
        state[0] = scale / 2;
        state[1] = 0;
        *factor = NAN;
    }
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
