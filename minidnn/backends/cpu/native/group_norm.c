/* GroupNorm and InstanceNorm: each group of channels of a sample is shifted by its mean and divided by its deviation.
 *
 *   y = (x - mean) * inverse * gamma + beta, where inverse = 1 / sqrt(variance + eps)
 *
 * A sample has `places` places of all channels, and a channel has a run of `run` elements at each. Images have their
 * channels innermost: a run is one element. Of other tensors a channel is one run, and there is one place. The lanes of
 * a vector are neighbours in memory: channels, or elements of a run.
 *
 * A sample is cut into pieces, by sizes alone. A piece is summed in float32, by channel, then the pieces in their order,
 * in float64. So no bit depends on threads, or on the other samples. If there are samples for all threads, a thread does
 * all of a sample at once, of which a near cache then has most when it is read again. Of long runs a group lies in one
 * piece of memory, and counts as a sample of its own.
 */
#include <math.h>
#include <stddef.h>

#include "mirrored.h"
#include "pieces.h"

typedef struct {
    int64_t samples, groups, width; /* width: channels of a group */
    int64_t rows;                   /* of gamma and beta: the samples have them in turn */
    int64_t places, run;
    int64_t threads;
    double eps;
} Geometry;
MIRRORED(group_norm, Geometry)

enum { PLACES = 256, RUN = 256 * LANES }; /* of a piece; the last may have fewer */
enum { SIDE = 4 };                        /* sums of a run that are made side by side */
/* Elements that are prefetched before they are needed. The hardware's own prefetching is late for rows that are worked on
 * vector by vector. (A prefetch beyond the end does nothing.) */
enum { AHEAD = 1024 };

static int64_t channels(const Geometry *g) { return g->groups * g->width; }
static int64_t pitch(const Geometry *g) { return up(channels(g), LANES); }
static int64_t pieces(const Geometry *g) {
    return g->run > 1 ? up(g->run, RUN) / RUN : up(g->places, PLACES) / PLACES;
}
static int64_t elements(const Geometry *g) { return channels(g) * g->places * g->run; } /* of a sample */

/* Elements of a channel in a piece. */
static int64_t count_of(const Geometry *g, int64_t piece) {
    return g->run > 1 ? at_most(RUN, g->run - piece * RUN) : at_most(PLACES, g->places - piece * PLACES);
}
/* Where channel c begins in a piece of a sample. */
static int64_t start_of(const Geometry *g, int64_t piece, int64_t c) {
    return g->run > 1 ? c * g->run + piece * RUN : piece * PLACES * channels(g) + c;
}

/* For each sample: two sums by channel for each piece, and four numbers by channel. */
static int64_t floats(const Geometry *g) { return (2 * pieces(g) + 4) * pitch(g); }
int64_t group_norm_bytes(const Geometry *g) { return 4 * g->samples * floats(g); }

/* The arguments of all passes. x, dy and `to` are tensors; mean and inverse have a number for each group of each sample,
 * products and sums for each channel of each sample, gamma and beta for each channel. */
typedef struct {
    const Geometry *g;
    const float *x, *dy, *gamma, *beta;
    float *to, *mean, *inverse, *products, *sums, *workspace;
    int past; /* whether `to` goes past the caches */
} Pass;

/* The numbers of a sample's channels in gamma or beta; null if there are none. */
static const float *of_sample(const Geometry *g, const float *numbers, int64_t n) {
    return numbers ? numbers + n % g->rows * channels(g) : NULL;
}

/* What a pass reads by channel: the sums of a piece, and the numbers that the second pass takes from all pieces. */
typedef struct {
    float *sum, *product;
    float *shift, *factor, *slope, *level;
} Space;

static Space space(const Pass *p, int64_t n, int64_t piece) {
    const int64_t row = pitch(p->g);
    float *at = p->workspace + n * floats(p->g), *behind = at + 2 * pieces(p->g) * row;
    at += 2 * piece * row;
    return (Space){at, at + row, behind, behind + row, behind + 2 * row, behind + 3 * row};
}

typedef struct {
    vec of[SIDE];
} Sums;
ALWAYS float sum_of(const Sums *s) {
    double sum = 0;
    for (int i = 0; i < SIDE; i++)
        for (int j = 0; j < LANES; j++) sum += s->of[i][j];
    return (float)sum;
}
ALWAYS vec each(float a) { return (vec){0} + a; }

/* Calls f(..., element, channel, lanes) for all elements of a piece whose runs are single ones. */
#define PLACE_BY_PLACE(count, c, f, ...)                                  \
    for (int64_t r_ = 0; r_ < (count); r_++) {                            \
        int64_t k_ = 0;                                                   \
        for (; k_ + LANES <= (c); k_ += LANES) f(__VA_ARGS__, r_ * (c) + k_, k_, LANES); \
        if (k_ < (c)) f(__VA_ARGS__, r_ * (c) + k_, k_, (c) - k_);        \
    }

/* Calls f(..., element, number of the sum, lanes) for all elements of a run. */
#define ALONG_RUN(count, f, ...)                                                       \
    do {                                                                               \
        int64_t i_ = 0;                                                                \
        for (; i_ + SIDE * LANES <= (count); i_ += SIDE * LANES)                       \
            for (int j_ = 0; j_ < SIDE; j_++) f(__VA_ARGS__, i_ + j_ * LANES, j_, LANES); \
        for (; i_ + LANES <= (count); i_ += LANES) f(__VA_ARGS__, i_, 0, LANES);       \
        if (i_ < (count)) f(__VA_ARGS__, i_, 0, (count) - i_);                         \
    } while (0)

/* a where there are elements, else 0 */
ALWAYS vec there(vec a, int64_t n) {
    for (int64_t j = n; j < LANES; j++) a[j] = 0;
    return a;
}

/* ---- forward */

/* Adds the distances from a first element of the channel, and their squares. */
ALWAYS void add_moments(Space s, const float *x, int64_t at, int64_t k, int64_t n) {
    __builtin_prefetch(x + at + AHEAD);
    const vec away = load_some(x + at, n) - load_some(x + k, n);
    store(s.sum + k, load(s.sum + k) + away);
    store(s.product + k, fused(away, away, load(s.product + k)));
}
ALWAYS void add_run_moments(Sums *sum, Sums *square, const float *x, int64_t at, int j, int64_t n) {
    __builtin_prefetch(x + at + AHEAD);
    const vec away = there(load_some(x + at, n) - each(*x), n);
    sum->of[j] += away;
    square->of[j] = fused(away, away, square->of[j]);
}

static void moments(const Pass *p, int64_t n, int64_t piece, int64_t k) {
    const Geometry *g = p->g;
    const int64_t c = channels(g), count = count_of(g, piece);
    const float *x = p->x + n * elements(g) + start_of(g, piece, k);
    const Space s = space(p, n, piece);
    if (g->run == 1) {
        memset(s.sum, 0, 8 * pitch(g));
        PLACE_BY_PLACE(count, c, add_moments, s, x)
        return;
    }
    Sums sum = {0}, square = {0};
    ALONG_RUN(count, add_run_moments, &sum, &square, x);
    s.sum[k] = sum_of(&sum), s.product[k] = sum_of(&square);
}

/* Mean and variance of a group from the sums of its channels in all pieces: by Chan, Golub and LeVeque, "Algorithms for
 * Computing the Sample Variance", The American Statistician 37 (1983). Since a first element is one of those that are
 * summed, the variance is right however far from 0 all of x is (normalization.c). */
static void by_moments(const Pass *p, int64_t n) {
    const Geometry *g = p->g;
    const float *x = p->x + n * elements(g), *gamma = of_sample(g, p->gamma, n), *beta = of_sample(g, p->beta, n);
    const double all = (double)g->width * g->places * g->run;
    for (int64_t group = 0; group < g->groups; group++) {
        const int64_t from = group * g->width, to = from + g->width;
        double mean = 0, squares = 0;
        for (int64_t i = 0; i < pieces(g); i++) {
            const Space s = space(p, n, i);
            const double count = count_of(g, i);
            for (int64_t k = from; k < to; k++) mean += count * x[start_of(g, i, k)] + s.sum[k];
        }
        mean /= all;
        for (int64_t i = 0; i < pieces(g); i++) {
            const Space s = space(p, n, i);
            const double count = count_of(g, i), part = 1 / count;
            for (int64_t k = from; k < to; k++) {
                const double away = s.sum[k] * part, off = x[start_of(g, i, k)] + away - mean;
                squares += s.product[k] - s.sum[k] * away + count * off * off;
            }
        }
        const Space s = space(p, n, 0);
        const float inverse = 1 / sqrtf((float)(squares / all) + (float)g->eps);
        p->mean[n * g->groups + group] = (float)mean;
        p->inverse[n * g->groups + group] = inverse;
        for (int64_t k = from; k < to; k++) {
            s.shift[k] = (float)mean;
            s.factor[k] = gamma ? gamma[k] * inverse : inverse;
            s.level[k] = beta ? beta[k] : 0;
        }
    }
}

ALWAYS void set_normalized(const Pass *p, Space s, const float *x, float *y, int64_t at, int64_t k, int64_t n) {
    __builtin_prefetch(x + at + AHEAD);
    if (!p->past) __builtin_prefetch(y + at + AHEAD, 1);
    const vec away = load_some(x + at, n) - load(s.shift + k);
    put(y + at, fused(away, load(s.factor + k), load(s.level + k)), n, p->past);
}
ALWAYS void set_run_normalized(const Pass *p, vec shift, vec factor, vec level, const float *x, float *y, int64_t at,
                               int j, int64_t n) {
    (void)j;
    __builtin_prefetch(x + at + AHEAD);
    if (!p->past) __builtin_prefetch(y + at + AHEAD, 1);
    put(y + at, fused(load_some(x + at, n) - shift, factor, level), n, p->past);
}

static void normalize(const Pass *p, int64_t n, int64_t piece, int64_t k) {
    const Geometry *g = p->g;
    const int64_t c = channels(g), count = count_of(g, piece), from = n * elements(g) + start_of(g, piece, k);
    const float *x = p->x + from;
    float *y = p->to + from;
    const Space s = space(p, n, 0);
    if (g->run == 1) {
        PLACE_BY_PLACE(count, c, set_normalized, p, s, x, y)
        return;
    }
    ALONG_RUN(count, set_run_normalized, p, each(s.shift[k]), each(s.factor[k]), each(s.level[k]), x, y);
}

/* ---- backward */

static void by_mean(const Pass *p, int64_t n) {
    const Geometry *g = p->g;
    const Space s = space(p, n, 0);
    for (int64_t k = 0; k < channels(g); k++) s.shift[k] = p->mean[n * g->groups + k / g->width];
}

/* Adds dy, and dy times the distance of x from the mean. */
ALWAYS void add_slopes(Space s, const float *shift, const float *x, const float *dy, int64_t at, int64_t k, int64_t n) {
    __builtin_prefetch(x + at + AHEAD);
    __builtin_prefetch(dy + at + AHEAD);
    const vec d = load_some(dy + at, n);
    store(s.sum + k, load(s.sum + k) + d);
    store(s.product + k, fused(d, load_some(x + at, n) - load(shift + k), load(s.product + k)));
}
ALWAYS void add_run_slopes(Sums *sum, Sums *product, vec shift, const float *x, const float *dy, int64_t at, int j,
                           int64_t n) {
    __builtin_prefetch(x + at + AHEAD);
    __builtin_prefetch(dy + at + AHEAD);
    const vec d = load_some(dy + at, n);
    sum->of[j] += d;
    product->of[j] += there(d * (load_some(x + at, n) - shift), n);
}

static void slopes(const Pass *p, int64_t n, int64_t piece, int64_t k) {
    const Geometry *g = p->g;
    const int64_t c = channels(g), count = count_of(g, piece), from = n * elements(g) + start_of(g, piece, k);
    const float *x = p->x + from, *dy = p->dy + from;
    const Space s = space(p, n, piece);
    if (g->run == 1) {
        memset(s.sum, 0, 8 * pitch(g));
        PLACE_BY_PLACE(count, c, add_slopes, s, s.shift, x, dy)
        return;
    }
    Sums sum = {0}, product = {0};
    ALONG_RUN(count, add_run_slopes, &sum, &product, each(s.shift[k]), x, dy);
    s.sum[k] = sum_of(&sum), s.product[k] = sum_of(&product);
}

/* The sums by channel, and the numbers of
 *
 *   dx = inverse (g - mean(g) - n mean(g n)), where g = gamma dy, and n is the normalized x */
static void by_slopes(const Pass *p, int64_t n) {
    const Geometry *g = p->g;
    const int64_t c = channels(g);
    const float *gamma = of_sample(g, p->gamma, n);
    const double all = (double)g->width * g->places * g->run;
    const Space s = space(p, n, 0);
    for (int64_t group = 0; group < g->groups; group++) {
        const int64_t from = group * g->width, to = from + g->width;
        const double inverse = p->inverse[n * g->groups + group];
        double level = 0, slope = 0;
        for (int64_t k = from; k < to; k++) {
            double sum = 0, product = 0;
            for (int64_t i = 0; i < pieces(g); i++) {
                const Space of = space(p, n, i);
                sum += of.sum[k], product += of.product[k];
            }
            product *= inverse;
            p->products[n * c + k] = (float)product, p->sums[n * c + k] = (float)sum;
            const double factor = gamma ? gamma[k] : 1;
            level += factor * sum, slope += factor * product;
            s.factor[k] = (float)(factor * inverse);
        }
        for (int64_t k = from; k < to; k++) {
            s.level[k] = (float)(level * inverse / all);
            s.slope[k] = (float)(slope * inverse * inverse / all);
        }
    }
}

ALWAYS vec derivative(vec x, vec dy, vec shift, vec factor, vec slope, vec level) {
    return fused(shift - x, slope, fused(dy, factor, -level));
}

ALWAYS void set_derivatives(const Pass *p, Space s, const float *x, const float *dy, float *dx, int64_t at, int64_t k,
                            int64_t n) {
    __builtin_prefetch(x + at + AHEAD);
    __builtin_prefetch(dy + at + AHEAD);
    if (!p->past) __builtin_prefetch(dx + at + AHEAD, 1);
    const vec v = derivative(load_some(x + at, n), load_some(dy + at, n), load(s.shift + k), load(s.factor + k),
                             load(s.slope + k), load(s.level + k));
    put(dx + at, v, n, p->past);
}
ALWAYS void set_run_derivatives(const Pass *p, vec shift, vec factor, vec slope, vec level, const float *x,
                                const float *dy, float *dx, int64_t at, int j, int64_t n) {
    (void)j;
    __builtin_prefetch(x + at + AHEAD);
    __builtin_prefetch(dy + at + AHEAD);
    if (!p->past) __builtin_prefetch(dx + at + AHEAD, 1);
    put(dx + at, derivative(load_some(x + at, n), load_some(dy + at, n), shift, factor, slope, level), n, p->past);
}

static void differentiate(const Pass *p, int64_t n, int64_t piece, int64_t k) {
    const Geometry *g = p->g;
    const int64_t c = channels(g), count = count_of(g, piece), from = n * elements(g) + start_of(g, piece, k);
    const float *x = p->x + from, *dy = p->dy + from;
    float *dx = p->to + from;
    const Space s = space(p, n, 0);
    if (g->run == 1) {
        PLACE_BY_PLACE(count, c, set_derivatives, p, s, x, dy, dx)
        return;
    }
    ALONG_RUN(count, set_run_derivatives, p, each(s.shift[k]), each(s.factor[k]), each(s.slope[k]), each(s.level[k]), x,
              dy, dx);
}

/* ---- all passes, in their order */

typedef void Whole(const Pass *p, int64_t n);
/* k: the channel of which it is a piece; 0 if channels are innermost, and it is one of all */
typedef void Piece(const Pass *p, int64_t n, int64_t piece, int64_t k);

/* Of each sample: `before` if there is one, `first` for all pieces, `between`, and `last` for all pieces if there is
 * something to write. */
static void passes(const Pass *p, Whole before, Piece first, Whole between, Piece last) {
    const Geometry *g = p->g;
    const int64_t of_channel = pieces(g), count = of_channel * (g->run > 1 ? channels(g) : 1);
    const int64_t size = g->samples * elements(g);
#define PIECE_OF(i) (i) % of_channel, (i) / of_channel
    const int threads = size > ALONE / 4 ? (int)g->threads : 1;
    if (g->samples >= threads) {
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1)
        for (int64_t n = 0; n < g->samples; n++) {
            if (before) before(p, n);
            for (int64_t i = 0; i < count; i++) first(p, n, PIECE_OF(i));
            between(p, n);
            for (int64_t i = 0; p->to && i < count; i++) last(p, n, PIECE_OF(i));
            if (p->past) stored_past();
        }
        return;
    }
#pragma omp parallel num_threads(threads)
    {
#pragma omp for schedule(static)
        for (int64_t n = 0; n < g->samples; n++)
            if (before) before(p, n);
#pragma omp for schedule(static)
        for (int64_t i = 0; i < g->samples * count; i++) first(p, i / count, PIECE_OF(i % count));
#pragma omp for schedule(static)
        for (int64_t n = 0; n < g->samples; n++) between(p, n);
#pragma omp for schedule(static)
        for (int64_t i = 0; i < g->samples * count; i++)
            if (p->to) last(p, i / count, PIECE_OF(i % count));
        if (p->past) stored_past();
    }
}

static int past(const Geometry *g, const float *to) {
    const int64_t row = g->run > 1 ? g->run : channels(g);
    return goes_past(to, g->samples * elements(g) / row, row);
}

/* x (gamma beta) -> y inverse mean; y may be x */
void group_norm_forward(const Geometry *g, const float *x, const float *gamma, const float *beta, float *y,
                        float *inverse, float *mean, float *workspace) {
    const Pass p = {.g = g, .x = x, .gamma = gamma, .beta = beta, .to = y, .mean = mean, .inverse = inverse,
                    .workspace = workspace, .past = y != x && past(g, y)};
    passes(&p, 0, moments, by_moments, normalize);
}

/* x dy inverse mean (gamma) -> products sums (dx): sums by sample and channel of dy times the normalized x, and of dy;
 * dx may be x or dy */
void group_norm_backward(const Geometry *g, const float *x, const float *dy, float *inverse, float *mean,
                         const float *gamma, float *products, float *sums, float *dx, float *workspace) {
    const Pass p = {.g = g, .x = x, .dy = dy, .gamma = gamma, .to = dx, .mean = mean, .inverse = inverse,
                    .products = products, .sums = sums, .workspace = workspace,
                    .past = dx && dx != x && dx != dy && past(g, dx)};
    passes(&p, by_mean, slopes, by_slopes, differentiate);
}
