/* Optimizers other than SGD: a rule for each element, and the moments of LAMB. Each makes one pass over its
 * tensors, at the speed of memory. */
#include <math.h>
#include <stddef.h>
#include <stdint.h>

#include "mirrored.h"
#include "squares.h"

enum { NONE, L1, L2 };
enum { NESTEROV, ADAGRAD, RMSPROP, ADADELTA, ADAM, ADAMW, LARS };

typedef struct {
    int64_t size, threads;
    int64_t rule, regularization, every; /* every: micro-batches of an update */
    double numbers[3];                   /* the rule's own: see optimizers/rule.py and optimizers/trust.py */
    float decay, scale, lr_mult;
} Geometry;
MIRRORED(rule, Geometry)

/* What an update has for all its elements. */
typedef struct {
    float scale, rate, decay;  /* factors of dw, of the step, of w */
    float a, b, c;             /* the rule's numbers */
    float rest_a, rest_b;      /* 1 - a and 1 - b, which float32 would round before it subtracts */
    float first, second, keep; /* corrections of the means; what w keeps of itself */
} Numbers;

ALWAYS float sign(float x) { return x > 0 ? 1 : x < 0 ? -1 : x; }

static int counts(const float *objective, const float *clip) {
    return isfinite(*objective) && (!clip || isfinite(*clip));
}

/* b^t by multiplications, whose bits are the same on every device. */
static double power(double b, int64_t t) {
    double p = 1;
    for (; t; t >>= 1, b *= b)
        if (t & 1) p *= b;
    return p;
}

/* 1 / (1 - b1^t) and 1 / (1 - b2^t), for the t-th update. */
static void corrections(const Geometry *g, const int64_t *iteration, double *first, double *second) {
    const int64_t t = *iteration / g->every + 1;
    *first = 1 / (1 - power(g->numbers[0], t));
    *second = 1 / (1 - power(g->numbers[1], t));
}

static Numbers numbers(const Geometry *g, const float *rate, const float *clip, const int64_t *iteration) {
    Numbers n = {.scale = clip ? *clip * g->scale : g->scale, .rate = *rate * g->lr_mult, .decay = g->decay};
    n.a = (float)g->numbers[0], n.b = (float)g->numbers[1], n.c = (float)g->numbers[2], n.keep = 1;
    n.rest_a = (float)(1 - g->numbers[0]), n.rest_b = (float)(1 - g->numbers[1]);
    if (iteration) {
        double first, second;
        corrections(g, iteration, &first, &second);
        if (g->rule == ADAM) n.rate = (float)(n.rate * first / sqrt(second));
        n.first = (float)first, n.second = (float)second;
    }
    if (g->rule == ADAMW) n.keep = (float)(1 - (double)n.rate * g->decay);
    return n;
}

/* Updates n elements. The last two arguments are constants at each call: the compiler makes a loop for each case. */
ALWAYS void elements(const Numbers k, int64_t n, float *restrict w, const float *restrict dw, float *restrict h,
                     float *restrict v, const int rule, const int regularization) {
    for (int64_t i = 0; i < n; i++) {
        float g = dw[i] * k.scale;
        if (regularization == L1) g += k.decay * sign(w[i]);
        if (regularization == L2) g += k.decay * w[i];
        float step;
        if (rule == NESTEROV) {
            const float before = h[i];
            h[i] = k.a * before + k.rate * g;
            step = (1 + k.a) * h[i] - k.a * before;
        } else if (rule == LARS) {
            h[i] = step = k.a * h[i] + k.rate * g;
        } else if (rule == ADAGRAD) {
            h[i] += g * g;
            step = k.rate * g / (sqrtf(h[i]) + k.a);
        } else if (rule == RMSPROP) {
            h[i] = k.a * h[i] + k.rest_a * (g * g);
            step = k.rate * g / (sqrtf(h[i]) + k.b);
        } else if (rule == ADADELTA) {
            h[i] = k.a * h[i] + k.rest_a * (g * g);
            const float u = g * sqrtf((v[i] + k.b) / (h[i] + k.b));
            v[i] = k.a * v[i] + k.rest_a * (u * u);
            step = k.rate * u;
        } else {
            h[i] = k.a * h[i] + k.rest_a * g;
            v[i] = k.b * v[i] + k.rest_b * (g * g);
            step = rule == ADAM ? k.rate * h[i] / (sqrtf(v[i]) + k.c)
                                : k.rate * (h[i] * k.first) / (sqrtf(v[i] * k.second) + k.c);
        }
        w[i] = (rule == ADAMW ? k.keep * w[i] : w[i]) - step;
    }
}

static void piece(const Geometry *g, const Numbers *k, int64_t n, float *w, const float *dw, float *h, float *v) {
#define CASE(which, what)                      \
    case which * 3 + what:                     \
        elements(*k, n, w, dw, h, v, which, what); \
        break;
#define CASES(which) CASE(which, NONE) CASE(which, L1) CASE(which, L2)
    switch (g->rule * 3 + g->regularization) {
        CASES(NESTEROV)
        CASES(ADAGRAD)
        CASES(RMSPROP)
        CASES(ADADELTA)
        CASES(ADAM)
        CASE(ADAMW, NONE)
        CASES(LARS)
    }
#undef CASES
#undef CASE
}

/* Updates w and the history h, v in place. v is null for a rule of one number of history, iteration for one that does
 * not count, clip without clipping, ratio but for LARS. Nothing changes in a step that does not count. */
void rule_update(const Geometry *g, float *w, const float *dw, float *h, float *v, const float *rate,
                 const float *objective, const int64_t *iteration, const float *ratio, const float *clip) {
    if (!counts(objective, clip) || (ratio && *ratio == 0)) return;
    Numbers k = numbers(g, rate, clip, iteration);
    if (ratio) k.rate *= *ratio;
#pragma omp parallel for num_threads(g->threads) schedule(static) if (g->size > ALONE)
    for (int64_t i = 0; i < g->size; i += PIECE)
        piece(g, &k, at_most(PIECE, g->size - i), w + i, dw + i, h + i, v ? v + i : NULL);
}

/* u = the corrected mean over the root of the corrected squares, + decay w: what LAMB takes from w. */
ALWAYS float lamb(const Numbers k, float w, float m, float v) {
    return (m * k.first) / (sqrtf(v * k.second) + k.c) + k.decay * w;
}

static void lamb_moments(const Numbers k, int64_t n, const float *restrict w, const float *restrict dw,
                         float *restrict m, float *restrict v, float *restrict u) {
    for (int64_t i = 0; i < n; i++) {
        const float g = dw[i] * k.scale;
        m[i] = k.a * m[i] + k.rest_a * g;
        v[i] = k.b * v[i] + k.rest_b * (g * g);
        u[i] = lamb(k, w[i], m[i], v[i]);
    }
}

/* w dw m v -> m v (sums): the sums of squares of w's blocks, then of the step's. In a step that does not count m and v
 * stay, and the sums are zeros. */
void rule_lamb_moments(const Geometry *g, const float *w, const float *dw, float *m, float *v, const float *objective,
                       const int64_t *iteration, const float *clip, double *sums) {
    const int64_t blocks = up(g->size, SQUARED) / SQUARED;
    if (!counts(objective, clip)) {
        for (int64_t i = 0; sums && i < 2 * blocks; i++) sums[i] = 0;
        return;
    }
    const float one = 1;
    const Numbers k = numbers(g, &one, clip, iteration);
#pragma omp parallel for num_threads(g->threads) schedule(static) if (g->size > ALONE)
    for (int64_t block = 0; block < blocks; block++) {
        const int64_t i = block * SQUARED, n = at_most(SQUARED, g->size - i);
        float u[SQUARED];
        lamb_moments(k, n, w + i, dw + i, m + i, v + i, u);
        if (sums) sums[block] = squares(n, w + i), sums[blocks + block] = squares(n, u);
    }
}

static void lamb_steps(const Numbers k, float rate, int64_t n, float *restrict w, const float *restrict m,
                       const float *restrict v) {
    for (int64_t i = 0; i < n; i++) w[i] -= rate * lamb(k, w[i], m[i], v[i]);
}

/* w -= rate ratio u; nothing if the ratio is 0. */
void rule_lamb_update(const Geometry *g, float *w, const float *rate, const float *m, const float *v,
                      const int64_t *iteration, const float *ratio) {
    if (*ratio == 0) return;
    const Numbers k = numbers(g, rate, NULL, iteration);
    const float step = k.rate * *ratio;
#pragma omp parallel for num_threads(g->threads) schedule(static) if (g->size > ALONE)
    for (int64_t i = 0; i < g->size; i += PIECE)
        lamb_steps(k, step, at_most(PIECE, g->size - i), w + i, m + i, v + i);
}
