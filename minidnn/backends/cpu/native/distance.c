/* Losses of elements with targets or labels, and of pairs of vectors. A loss is added up in double by pieces, and then
 * in their order. NaN stays NaN, but not where a target says that the element does not count.
 */
#include "losses.h"
#include "mirrored.h"

enum { SIGMOID_CROSS_ENTROPY, SQUARE, SMOOTH_L1, HINGE_L1, HINGE_L2, LOGISTIC };

typedef struct {
    int64_t size, piece, threads; /* elements; elements of a piece: with labels, those of a row */
    Counting targets;
    int64_t function;
    double weight, sigma;
} Pointwise;
MIRRORED(distance_pointwise, Pointwise)

/* What a kernel reads: x; targets or labels; two weights or null. */
typedef struct {
    const float *x, *t;
    const int32_t *label;
    const float *inside, *outside;
} Reads;

ALWAYS vec all(float v) { return (vec){0} + v; }
ALWAYS vec absolute(vec v) { return (vec)((bits)v & INT32_MAX); }
ALWAYS vec positive(vec v) { return choose(v <= 0, all(0), v); } /* NaN stays */
ALWAYS vec sign(vec v) { return choose(v > 0, all(1), choose(v < 0, all(-1), v)); }

/* log(1 + e) for e from 0 to 1: with s = e / (2 + e) that is 2 artanh(s), and s is at most 1/3. */
ALWAYS vec log_of_one_plus(vec e) {
    const vec s = e / (2 + e), z = s * s;
    vec p = all(1.0f / 15);
    for (int k = 13; k > 0; k -= 2) p = p * z + 1.0f / k;
    return 2 * s * p;
}

ALWAYS vec logistic(const int slope, vec x, vec t) {
    for (int j = 0; j < LANES; j++) {
        const float p = x[j] < 1e-20f ? 1e-20f : x[j];
        x[j] = t[j] == 0 ? 0 : slope ? -1 / p : -logf(p);
    }
    return x;
}

/* The function of elements, of x and the target t. */
ALWAYS vec value(const int function, float sigma, vec x, vec t) {
    const vec d = x - t, size = absolute(d), short_of = positive(1 - (2 * t - 1) * x), far = all(1 / (sigma * sigma));
    switch (function) {
        case SIGMOID_CROSS_ENTROPY:
            return log_of_one_plus(falling_exponential(-absolute(x))) - x * (t - choose(x >= 0, all(1), all(0)));
        case SQUARE: return d * d * 0.5f;
        case SMOOTH_L1: return choose(size < far, sigma * d * (sigma * d) * 0.5f, size - 0.5f * far);
        case HINGE_L1: return short_of;
        case HINGE_L2: return short_of * short_of;
        default: return logistic(0, x, t);
    }
}

/* Its derivative by x. */
ALWAYS vec slope(const int function, float sigma, vec x, vec t) {
    const vec d = x - t, side = 1 - 2 * t, short_of = positive(1 + side * x), e = falling_exponential(-absolute(x));
    switch (function) {
        case SIGMOID_CROSS_ENTROPY: return choose(x >= 0, all(1), e) / (1 + e) - t;
        case SQUARE: return d;
        case SMOOTH_L1: return choose(absolute(d) < all(1 / (sigma * sigma)), sigma * sigma * d, sign(d));
        case HINGE_L1: return side * sign(short_of);
        case HINGE_L2: return 2 * side * short_of;
        default: return logistic(1, x, t);
    }
}

/* The arguments of `value` and `slope` for n elements from the i-th on, the j-th of their piece. Returns in which lanes
 * the elements count. */
ALWAYS bits loaded(const Pointwise *g, const Reads *r, int64_t i, int64_t j, int64_t n, vec *x, vec *t) {
    bits lane;
    for (int k = 0; k < LANES; k++) lane[k] = k;
    *x = load_some(r->x + i, n);
    if (r->label)
        *t = choose(lane == (int32_t)(r->label[i / g->piece] - j), all(1), all(0));
    else
        *t = load_some(r->t + i, n);
    bits there = lane < (int32_t)(n < LANES ? n : LANES);
    if (g->targets.ignores)
        for (int k = 0; k < LANES; k++) there[k] &= -(truncf((*t)[k]) != (float)g->targets.ignored);
    if (r->inside) *x = load_some(r->inside + i, n) * (*x - *t), *t = all(0);
    return there;
}

ALWAYS double piece_value(const Pointwise *g, const int function, const Reads *r, int64_t from, int64_t n) {
    double some[LANES] = {0}, sum = 0;
    for (int64_t j = 0; j < n; j += LANES) {
        vec x, t;
        const bits there = loaded(g, r, from + j, j, n - j, &x, &t);
        vec found = value(function, g->sigma, x, t);
        if (r->outside) found *= load_some(r->outside + from + j, n - j);
        found = choose(there, found, all(0));
        for (int k = 0; k < LANES; k++) some[k] += found[k];
    }
    for (int k = 0; k < LANES; k++) sum += some[k];
    return sum;
}

/* dt is -dx. Each may be null, or what is read in its place. */
ALWAYS void piece_slope(const Pointwise *g, const int function, const Reads *r, float factor, int64_t from, int64_t n,
                        float *dx, float *dt) {
    for (int64_t j = 0; j < n; j += LANES) {
        const int64_t i = from + j, left = n - j;
        vec x, t;
        const bits there = loaded(g, r, i, j, left, &x, &t);
        vec found = slope(function, g->sigma, x, t);
        if (r->inside) found *= load_some(r->inside + i, left);
        if (r->outside) found *= load_some(r->outside + i, left);
        found = choose(there, found * factor, all(0));
        if (dx) store_some(dx + i, found, left);
        if (dt) store_some(dt + i, -found, left);
    }
}

/* Each function is compiled apart. */
#define EACH(g, DO)                                                           \
    switch ((g)->function) {                                                  \
        case SIGMOID_CROSS_ENTROPY: DO(SIGMOID_CROSS_ENTROPY); break;         \
        case SQUARE: DO(SQUARE); break;                                       \
        case SMOOTH_L1: DO(SMOOTH_L1); break;                                 \
        case HINGE_L1: DO(HINGE_L1); break;                                   \
        case HINGE_L2: DO(HINGE_L2); break;                                   \
        default: DO(LOGISTIC); break;                                         \
    }

static double one_value(const Pointwise *g, const Reads *r, int64_t from, int64_t n) {
    double sum = 0;
#define VALUE(function) sum = piece_value(g, function, r, from, n)
    EACH(g, VALUE)
    return sum;
}

static void one_slope(const Pointwise *g, const Reads *r, float factor, int64_t from, int64_t n, float *dx, float *dt) {
#define SLOPE(function) piece_slope(g, function, r, factor, from, n, dx, dt)
    EACH(g, SLOPE)
}

static int64_t pieces_of(const Pointwise *g) { return up(g->size, g->piece) / g->piece; }

/* The number of elements that count; or as `counted`, if a label names no class. */
static int64_t counting(const Pointwise *g, const Reads *r) {
    if (r->label) {
        const int64_t found = counted(&g->targets, g->size / g->piece, g->piece, r->label);
        return found < 0 ? found : g->size;
    }
    if (!g->targets.ignores) return g->size;
    const float ignored = g->targets.ignored;
    int64_t count = 0;
#pragma omp parallel for num_threads(g->threads) schedule(static) reduction(+ : count) if (g->size > ALONE)
    for (int64_t i = 0; i < g->size; i++) count += truncf(r->t[i]) != ignored;
    return count;
}

/* The workspace of forward: the sum of each piece, float64. */
int64_t distance_bytes(const Pointwise *g) { return 8 * pieces_of(g); }

/* x t (inside outside) -> loss, or x label -> loss; what is not there is null. This and the next function return a
 * negative number as `counted` does, and then have done nothing; else 0. */
int64_t distance_value(const Pointwise *g, const float *x, const float *t, const int32_t *label, const float *inside,
                       const float *outside, double *sums, float *loss) {
    const Reads r = {x, t, label, inside, outside};
    const int64_t count = counting(g, &r), pieces = pieces_of(g);
    if (count < 0) return count;
#pragma omp parallel for num_threads(g->threads) schedule(static) if (g->size > ALONE / 4)
    for (int64_t p = 0; p < pieces; p++)
        sums[p] = one_value(g, &r, p * g->piece, at_most(g->piece, g->size - p * g->piece));
    double all = 0;
    for (int64_t p = 0; p < pieces; p++) all += sums[p];
    *loss = (float)(all / divided_by(&g->targets, count));
    return 0;
}

/* x t (inside outside) -> (dx) (dt), or x label -> dx. */
int64_t distance_slope(const Pointwise *g, const float *x, const float *t, const int32_t *label, const float *inside,
                       const float *outside, float *dx, float *dt) {
    const Reads r = {x, t, label, inside, outside};
    const int64_t count = counting(g, &r), pieces = pieces_of(g);
    if (count < 0) return count;
    const float factor = (float)(g->weight / divided_by(&g->targets, count));
#pragma omp parallel for num_threads(g->threads) schedule(static) if (g->size > ALONE / 4)
    for (int64_t p = 0; p < pieces; p++)
        one_slope(g, &r, factor, p * g->piece, at_most(g->piece, g->size - p * g->piece), dx, dt);
    return 0;
}

typedef struct {
    int64_t rows, width, threads, legacy;
    double margin, weight;
} Pairs;
MIRRORED(distance_pairs, Pairs)

static float square(int64_t n, const float *a, const float *b) {
    vec sum = {0};
    for (int64_t i = 0; i < n; i += LANES) {
        const vec d = load_some(a + i, n - i) - load_some(b + i, n - i);
        sum += d * d;
    }
    return total(sum);
}

int64_t distance_pairs_bytes(const Pairs *g) { return 8 * g->rows; }

/* a b similar -> loss; `terms`: that of each pair. */
void distance_pairs_value(const Pairs *g, const float *a, const float *b, const int32_t *similar, double *terms,
                          float *loss) {
    const int64_t n = g->width;
#pragma omp parallel for num_threads(g->threads) schedule(static) if (g->rows * n > ALONE / 4)
    for (int64_t r = 0; r < g->rows; r++) {
        const float far = square(n, a + r * n, b + r * n);
        const double left = g->margin - (g->legacy ? far : sqrtf(far));
        const double apart = left <= 0 ? 0 : g->legacy ? left : left * left;
        terms[r] = similar[r] ? far : apart;
    }
    double all = 0;
    for (int64_t r = 0; r < g->rows; r++) all += terms[r];
    *loss = (float)(all / (2 * g->rows));
}

/* a b similar -> (da) (db); each may be null, or what is read in its place. */
void distance_pairs_slope(const Pairs *g, const float *a, const float *b, const int32_t *similar, float *da,
                          float *db) {
    const int64_t n = g->width;
    const float factor = (float)(g->weight / g->rows);
#pragma omp parallel for num_threads(g->threads) schedule(static) if (g->rows * n > ALONE / 4)
    for (int64_t r = 0; r < g->rows; r++) {
        const float far = square(n, a + r * n, b + r * n), size = sqrtf(far);
        const float left = (float)g->margin - (g->legacy ? far : size);
        const float by = similar[r] ? factor : g->legacy ? -factor : -factor * (left / (size + 1e-4f));
        const bits none = similar[r] || !(left <= 0) ? (bits){0} : ~(bits){0};
        for (int64_t i = r * n; i < (r + 1) * n; i += LANES) {
            const int64_t some = (r + 1) * n - i;
            const vec found = choose(none, all(0), by * (load_some(a + i, some) - load_some(b + i, some)));
            if (da) store_some(da + i, found, some);
            if (db) store_some(db + i, -found, some);
        }
    }
}
