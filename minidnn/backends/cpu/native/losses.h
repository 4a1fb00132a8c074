/* What the kernels of losses share: the softmax of a row, labels that name a class, the divisor of a sum. */
#pragma once
#include <float.h>
#include <math.h>

#include "floats.h"
#include "pieces.h"

ALWAYS float total(vec v) {
    float sum = v[0];
    for (int j = 1; j < LANES; j++) sum += v[j];
    return sum;
}

/* The larger of two numbers; NaN counts as the largest. */
ALWAYS float larger(float x, float than) { return x > than || isnan(x) ? x : than; }

static inline float largest(int64_t n, const float *x) {
    float one = -INFINITY;
    if (n < LANES) {
        for (int64_t c = 0; c < n; c++) one = larger(x[c], one);
        return one;
    }
    vec most = load(x + n - LANES); /* the loop reads some of these again */
    for (int64_t c = 0; c + LANES <= n; c += LANES) {
        const vec v = load(x + c);
        most = choose((v > most) | (v != v), v, most);
    }
    for (int j = 0; j < LANES; j++) one = larger(most[j], one);
    return one;
}

static inline void softmax_of_row(int64_t n, const float *x, float *y) {
    const float most = largest(n, x);
    vec sum = {0};
    for (int64_t c = 0; c < n; c += LANES) store_some(y + c, falling_exponential(load_some(x + c, n - c) - most), n - c);
    for (int64_t c = 0; c < n; c += LANES) sum += load_some(y + c, n - c);
    const float all = total(sum);
    for (int64_t c = 0; c < n; c += LANES) store_some(y + c, load_some(y + c, n - c) / all, n - c);
}

/* The loss of one row by its probabilities: -log(p) of its label, as Caffe does it. The smoothed part is the mean of
 * -log(p), by the scores' largest and sum: so it is right also where p is 0. */
static inline double loss_of_row(int64_t n, const float *p, int32_t label, double smoothing, double most, double sum) {
    const double own = -log(p[label] < FLT_MIN ? FLT_MIN : p[label]);
    if (smoothing == 0) return own;
    return (1 - smoothing) * own + smoothing * (most - log(largest(n, p)) - sum / n);
}

/* The gradients of a row's scores: factor (p - 1 at the label), smoothed. d may be p. */
static inline void slopes_of_row(int64_t n, const float *p, int32_t label, double smoothing, float factor, float *d) {
    const float each = (float)(smoothing / n), own = p[label] - each - (float)(1 - smoothing);
    for (int64_t c = 0; c < n; c++) d[c] = (p[c] - each) * factor;
    d[label] = own * factor;
}

/* How the sum of a loss is made: which labels (or targets) do not count, and what it is divided by. */
typedef struct {
    int64_t ignores, ignored; /* whether one label is ignored, and which */
    int64_t divisor;          /* 0: the number that count */
} Counting;

ALWAYS int counts(const Counting *c, int32_t label) { return !(c->ignores && label == c->ignored); }

/* The number of labels that count. If one of these names none of the classes: -1 - r, where r is its row. */
ALWAYS int64_t counted(const Counting *c, int64_t rows, int64_t classes, const int32_t *label) {
    int64_t count = 0;
    for (int64_t r = 0; r < rows; r++) {
        if (!counts(c, label[r])) continue;
        if (label[r] < 0 || label[r] >= classes) return -1 - r;
        count++;
    }
    return count;
}

ALWAYS double divided_by(const Counting *c, int64_t count) {
    const int64_t by = c->divisor ? c->divisor : count;
    return by > 1 ? (double)by : 1;
}
