/* Batch normalization, alone or with the Scale and the ReLU after it, on rows of channels. A row is a pixel of NHWC
 * images, or a sample of N x C.
 *
 *   u = (x - mean) * factor + beta, where factor = gamma / sqrt(variance + eps);  y = u, or max(u, 0) if rectified
 *
 * With a shortcut, which has an element for each of x, y = max(u + shortcut, 0).
 *
 * Sums are taken over pieces of rows in float32, then over the pieces, in their order, in float64. The pieces depend on
 * the shape alone, so the bits are the same for any number of threads. The code needs no alignment and allocates
 * nothing: the caller brings the workspace. A second pass goes from the last piece to the first, because the last is
 * still in a cache.
 */
#include <math.h>

#include "mirrored.h"
#include "pieces.h"

typedef struct {
    int64_t rows, c, height; /* height: rows of a piece; the last may have fewer */
    int64_t rectified, threads;
    int64_t count; /* rows of the whole batch, of which these may be a part */
    double eps;
} Geometry;
MIRRORED(normalization, Geometry)

typedef struct {
    int64_t c, parts;
} Parts;
MIRRORED(normalization_parts, Parts)

static int64_t pieces(const Geometry *g) { return up(g->rows, g->height) / g->height; }
static int64_t start(const Geometry *g, int64_t piece) {
    const int64_t row = piece * g->height;
    return row < g->rows ? row : g->rows;
}
static int64_t pitch(const Geometry *g) { return up(g->c, LANES); }
static int threads(const Geometry *g) { return g->rows * g->c < ALONE ? 1 : g->threads; }

/* For each channel: two sums per piece, and three numbers. */
int64_t batch_norm_bytes(const Geometry *g) { return 4 * pitch(g) * (2 * pieces(g) + 3); }

/* The arguments of a pass over rows. x, dy, the shortcut and `to` have an element per row and channel, the others one
 * per channel. */
typedef struct {
    int64_t c, rectified;
    int past;                          /* whether `to` goes past the caches */
    const float *x, *dy, *shortcut;
    float *to;                         /* y or dx */
    const float *mean, *factor, *beta; /* of the formula of u */
    const float *bias, *slope;         /* the means of du and of du (x - mean) / (variance + eps) */
    const float *first;                /* the first row of a piece */
    float *sum, *product;              /* the sums of a piece */
} Pass;

/* Processes the elements from `at` on, of the channels from k on: n of them, at most LANES. */
typedef void Step(Pass p, int64_t at, int64_t k, int64_t n);

/* Elements that are prefetched before they are needed. The hardware's own prefetching is late for a single stream. (A
 * prefetch beyond the end does nothing.) */
enum { AHEAD = 512 };

/* Applies a step to all elements of rows [from, to). */
ALWAYS void along(Pass p, int64_t from, int64_t to, Step step) {
    for (int64_t r = from; r < to; r++) {
        int64_t k = 0;
        for (; k + LANES <= p.c; k += LANES) {
            __builtin_prefetch(p.x + r * p.c + k + AHEAD);
            if (p.dy) __builtin_prefetch(p.dy + r * p.c + k + AHEAD);
            step(p, r * p.c + k, k, LANES);
        }
        if (k < p.c) step(p, r * p.c + k, k, p.c - k);
    }
}

/* Sums d = x - (the piece's first row), and d * d. `combine` later subtracts (sum of d)^2 / rows from the sum of d * d.
 * Since the first row is one of the piece, the amount subtracted is at most `rows` times the amount that remains. So
 * the variance is right to some 1e-4 even if the first row alone is far off. Otherwise it is right to some 1e-6,
 * however far from 0 all of x is. */
ALWAYS void moments(Pass p, int64_t at, int64_t k, int64_t n) {
    const vec away = load_some(p.x + at, n) - load_some(p.first + k, n);
    store(p.sum + k, load(p.sum + k) + away);
    store(p.product + k, fused(away, away, load(p.product + k)));
}

ALWAYS vec centred(Pass p, int64_t at, int64_t k, int64_t n) {
    return load_some(p.x + at, n) - load_some(p.mean + k, n);
}

/* u. Forward and backward compute the same bits, because they must agree about its sign. */
ALWAYS vec affine(Pass p, vec away, int64_t k, int64_t n) {
    return fused(away, load(p.factor + k), p.beta ? load_some(p.beta + k, n) : (vec){0});
}

ALWAYS void normalized(Pass p, int64_t at, int64_t k, int64_t n) {
    const vec u = affine(p, centred(p, at, k, n), k, n);
    put(p.to + at, p.rectified ? where_positive(u, u) : u, n, p.past);
}

/* The same with a shortcut. It is a step of its own, because a branch in one loop for both takes half as long again. */
ALWAYS void joined(Pass p, int64_t at, int64_t k, int64_t n) {
    __builtin_prefetch(p.shortcut + at + AHEAD);
    const vec sum = affine(p, centred(p, at, k, n), k, n) + load_some(p.shortcut + at, n);
    put(p.to + at, where_positive(sum, sum), n, p.past);
}

/* du, the gradient of u. */
ALWAYS vec gradient(Pass p, vec away, int64_t at, int64_t k, int64_t n) {
    const vec dy = load_some(p.dy + at, n);
    return p.rectified ? where_positive(affine(p, away, k, n), dy) : dy;
}

/* Sums du, and du (x - mean). */
ALWAYS void slopes(Pass p, int64_t at, int64_t k, int64_t n) {
    const vec away = centred(p, at, k, n), du = gradient(p, away, at, k, n);
    store(p.sum + k, load(p.sum + k) + du);
    store(p.product + k, fused(du, away, load(p.product + k)));
}

/* dx = factor (du - mean(du) - (x - mean) mean(du (x - mean)) / (variance + eps)) */
ALWAYS void differentiated(Pass p, int64_t at, int64_t k, int64_t n) {
    const vec away = centred(p, at, k, n), du = gradient(p, away, at, k, n);
    put(p.to + at, load(p.factor + k) * fused(-away, load(p.slope + k), du - load(p.bias + k)), n, p.past);
}

/* Applies a step to each piece. The sums begin at 0 and lie in `sums`, two rows per piece. */
ALWAYS void each(const Geometry *g, Pass p, float *sums, Step step) {
    const int64_t row = pitch(g), count = pieces(g);
#pragma omp for schedule(static)
    for (int64_t i = 0; i < count; i++) {
        p.first = p.x + start(g, i) * p.c;
        p.sum = sums + 2 * i * row;
        p.product = p.sum + row;
        memset(p.sum, 0, 2 * row * sizeof *p.sum);
        along(p, start(g, i), start(g, i + 1), step);
    }
}

static float inverse(const Geometry *g, float variance) { return 1 / sqrtf(variance + (float)g->eps); }

/* Mean and variance of all rows, from the sums of the pieces. By Chan, Golub and LeVeque, "Algorithms for Computing the
 * Sample Variance", The American Statistician 37 (1983). */
static void combine(const Geometry *g, const float *x, const float *sums, float *mean, float *variance) {
    const int64_t row = pitch(g), count = pieces(g);
#pragma omp for schedule(static)
    for (int64_t k = 0; k < g->c; k += LANES) {
        double m[LANES] = {0}, v[LANES] = {0};
        for (int64_t i = 0; i < count; i++) {
            const double rows = start(g, i + 1) - start(g, i);
            const vec first = load_some(x + start(g, i) * g->c + k, g->c - k), sum = load(sums + 2 * i * row + k);
            for (int j = 0; j < LANES; j++) m[j] += rows * first[j] + sum[j];
        }
        for (int j = 0; j < LANES; j++) m[j] /= g->rows;
        for (int64_t i = 0; i < count; i++) {
            const double rows = start(g, i + 1) - start(g, i), part = 1 / rows;
            const vec first = load_some(x + start(g, i) * g->c + k, g->c - k), sum = load(sums + 2 * i * row + k);
            const vec square = load(sums + (2 * i + 1) * row + k);
            for (int j = 0; j < LANES; j++) {
                const double away = sum[j] * part, off = first[j] + away - m[j];
                v[j] += square[j] - sum[j] * away + rows * off * off;
            }
        }
        for (int j = 0; j < LANES && k + j < g->c; j++) {
            mean[k + j] = m[j];
            variance[k + j] = v[j] / g->rows;
        }
    }
}

/* x -> y, from the last piece to the first. */
static void normalize(const Geometry *g, Pass p) {
    const int64_t count = pieces(g);
#pragma omp for schedule(static)
    for (int64_t i = count - 1; i >= 0; i--) {
        if (p.shortcut)
            along(p, start(g, i), start(g, i + 1), joined);
        else
            along(p, start(g, i), start(g, i + 1), normalized);
    }
    if (p.past) stored_past();
}

/* factor = gamma / sqrt(variance + eps). Without a Scale, gamma is 1 and beta is 0. `factor` may be `variance`. */
static void factors(const Geometry *g, const float *gamma, const float *variance, float *factor) {
#pragma omp for schedule(static)
    for (int64_t k = 0; k < g->c; k++) factor[k] = (gamma ? gamma[k] : 1) * inverse(g, variance[k]);
}

/* x -> mean variance; the variance is the biased one */
void batch_norm_moments(const Geometry *g, const float *x, float *mean, float *variance, float *workspace) {
    const Pass p = {.c = g->c, .x = x};
#pragma omp parallel num_threads(threads(g))
    {
        each(g, p, workspace, moments);
        combine(g, x, workspace, mean, variance);
    }
}

/* Mean and variance of all rows, from those of parts that have as many rows each: `from` points to the mean and the
 * variance of one part after the other. */
void batch_norm_merge_moments(const Parts *g, const float *const *from, float *mean, float *variance) {
    for (int64_t k = 0; k < g->c; k++) {
        double m = 0, v = 0;
        for (int64_t i = 0; i < g->parts; i++) m += from[2 * i][k];
        m /= g->parts;
        for (int64_t i = 0; i < g->parts; i++) {
            const double off = from[2 * i][k] - m;
            v += from[2 * i + 1][k] + off * off;
        }
        mean[k] = m;
        variance[k] = v / g->parts;
    }
}

/* The sums of what parts have, of x and y: `from` points to those of one part after the other. */
void batch_norm_merge_sums(const Parts *g, const float *const *from, float *x, float *y) {
    for (int64_t k = 0; k < g->c; k++) {
        double s = 0, t = 0;
        for (int64_t i = 0; i < g->parts; i++) {
            s += from[2 * i][k];
            t += from[2 * i + 1][k];
        }
        x[k] = s;
        y[k] = t;
    }
}

/* x (shortcut) mean variance (gamma beta) -> y; y may have the bytes of x or of the shortcut */
void batch_norm_normalize(const Geometry *g, const float *x, const float *shortcut, const float *mean,
                          const float *variance, const float *gamma, const float *beta, float *y, float *workspace) {
    const Pass p = {.c = g->c, .rectified = g->rectified,
                    .past = y != x && y != shortcut && goes_past(y, g->rows, g->c), .x = x, .shortcut = shortcut,
                    .to = y, .mean = mean, .factor = workspace, .beta = beta};
#pragma omp parallel num_threads(threads(g))
    {
        factors(g, gamma, variance, workspace);
        normalize(g, p);
    }
}

/* x -> y mean variance */
void batch_norm_forward(const Geometry *g, const float *x, float *y, float *mean, float *variance, float *workspace) {
    batch_norm_moments(g, x, mean, variance, workspace);
    batch_norm_normalize(g, x, 0, mean, variance, 0, 0, y, workspace);
}

/* x (shortcut) mean_sum variance_sum count (gamma beta) -> y, by running statistics: the sums divided by `count`, or 0
 * if that is 0 */
void batch_norm_inference(const Geometry *g, const float *x, const float *shortcut, const float *mean_sum,
                          const float *variance_sum, const float *count, const float *gamma, const float *beta,
                          float *y, float *workspace) {
    float *factor = workspace, *mean = factor + pitch(g);
    const Pass p = {.c = g->c, .rectified = g->rectified, .x = x, .shortcut = shortcut, .to = y, .mean = mean,
                    .factor = factor, .beta = beta};
    for (int64_t k = 0; k < g->c; k++) {
        mean[k] = *count != 0 ? mean_sum[k] / *count : 0;
        factor[k] = *count != 0 ? variance_sum[k] / *count : 0;
    }
#pragma omp parallel num_threads(threads(g))
    {
        factors(g, gamma, factor, factor);
        normalize(g, p);
    }
}

/* The sums of du and of du (x - mean) over all pieces, of the channels from k on. */
ALWAYS void added(const Geometry *g, const float *sums, int64_t k, double s[LANES], double q[LANES]) {
    const int64_t row = pitch(g), count = pieces(g);
    for (int64_t i = 0; i < count; i++) {
        const vec sum = load(sums + 2 * i * row + k), product = load(sums + (2 * i + 1) * row + k);
        for (int j = 0; j < LANES; j++) {
            s[j] += sum[j];
            q[j] += product[j];
        }
    }
}

/* x dy -> dx, from the last piece to the first. */
static void differentiate(const Geometry *g, Pass p) {
    const int64_t count = pieces(g);
#pragma omp for schedule(static)
    for (int64_t i = count - 1; i >= 0; i--) along(p, start(g, i), start(g, i + 1), differentiated);
    if (p.past) stored_past();
}

/* The arguments of backward's passes. `workspace` begins with factor, bias and slope; the sums of pieces follow. */
static Pass backward(const Geometry *g, const float *x, const float *dy, const float *mean, const float *beta,
                     float *dx, float *workspace) {
    const int64_t row = pitch(g);
    return (Pass){.c = g->c, .rectified = g->rectified, .past = dx != x && dx != dy && goes_past(dx, g->rows, g->c),
                  .x = x, .dy = dy, .to = dx, .mean = mean, .factor = workspace, .beta = beta,
                  .bias = workspace + row, .slope = workspace + 2 * row};
}

/* x mean variance (gamma beta) dy -> dx (dgamma dbeta); dx may have the bytes of x or of dy */
void batch_norm_backward(const Geometry *g, const float *x, const float *mean, const float *variance,
                         const float *gamma, const float *beta, const float *dy, float *dx, float *dgamma,
                         float *dbeta, float *workspace) {
    const int64_t row = pitch(g);
    float *factor = workspace, *bias = factor + row, *slope = bias + row, *sums = slope + row;
    const Pass p = backward(g, x, dy, mean, beta, dx, workspace);
#pragma omp parallel num_threads(threads(g))
    {
        factors(g, gamma, variance, factor);
        each(g, p, sums, slopes);
#pragma omp for schedule(static)
        for (int64_t k = 0; k < g->c; k += LANES) {
            double s[LANES] = {0}, q[LANES] = {0};
            added(g, sums, k, s, q);
            for (int j = 0; j < LANES && k + j < g->c; j++) {
                const double scale = inverse(g, variance[k + j]);
                bias[k + j] = s[j] / g->rows;
                slope[k + j] = q[j] * scale * scale / g->rows;
                if (dgamma) dgamma[k + j] = q[j] * scale;
                if (dbeta) dbeta[k + j] = s[j];
            }
        }
        differentiate(g, p);
    }
}

/* The first pass alone, of some rows: x dy mean variance (gamma beta) -> dgamma dbeta */
void batch_norm_backward_sums(const Geometry *g, const float *x, const float *dy, const float *mean,
                              const float *variance, const float *gamma, const float *beta, float *dgamma,
                              float *dbeta, float *workspace) {
    float *sums = workspace + 3 * pitch(g);
    const Pass p = backward(g, x, dy, mean, beta, 0, workspace);
#pragma omp parallel num_threads(threads(g))
    {
        factors(g, gamma, variance, workspace);
        each(g, p, sums, slopes);
#pragma omp for schedule(static)
        for (int64_t k = 0; k < g->c; k += LANES) {
            double s[LANES] = {0}, q[LANES] = {0};
            added(g, sums, k, s, q);
            for (int j = 0; j < LANES && k + j < g->c; j++) {
                dgamma[k + j] = q[j] * (double)inverse(g, variance[k + j]);
                dbeta[k + j] = s[j];
            }
        }
    }
}

/* The second pass alone, of some rows: x dy mean variance (gamma beta) -> dx, by the sums of all rows */
void batch_norm_backward_data(const Geometry *g, const float *x, const float *dy, const float *mean,
                              const float *variance, const float *gamma, const float *beta, const float *dgamma,
                              const float *dbeta, float *dx, float *workspace) {
    float *bias = workspace + pitch(g), *slope = bias + pitch(g);
    const Pass p = backward(g, x, dy, mean, beta, dx, workspace);
#pragma omp parallel num_threads(threads(g))
    {
        factors(g, gamma, variance, workspace);
#pragma omp for schedule(static)
        for (int64_t k = 0; k < g->c; k++) {
            bias[k] = (double)dbeta[k] / g->count;
            slope[k] = (double)dgamma[k] * inverse(g, variance[k]) / g->count;
        }
        differentiate(g, p);
    }
}
