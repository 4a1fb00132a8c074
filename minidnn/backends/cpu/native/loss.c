/* Softmax, its loss with labels, and accuracy, over rows of classes; the sum of a tensor. Non-finite scores are not
 * hidden: a row with a NaN or +inf among its scores becomes NaN, and so does the loss.
 */
#include <float.h>
#include <math.h>

#include "mirrored.h"
#include "pieces.h"

typedef struct {
    int64_t rows, classes, threads;
    int64_t ignores, ignored; /* whether one label is ignored, and which */
    int64_t divisor;          /* the loss's divisor; 0: the number of labels that count */
    int64_t top_k;            /* for accuracy */
    double weight;            /* the loss's weight, for its gradient */
} Geometry;
MIRRORED(loss, Geometry)

static int large(const Geometry *g) { return g->rows * g->classes > ALONE / 4; }

/* e^v for v <= 0, to two or three units in the last place, after Cody and Waite: 2^n e^r with |r| <= ln(2) / 2. It is
 * zero for v < -87.3, before the result would be subnormal. */
ALWAYS vec exponential(vec v) {
    const vec shift = (vec){0} + 12582912.0f; /* 1.5 * 2^23: adding a number to this rounds it to a whole number */
    const vec shifted = v * 1.44269504f + shift, n = shifted - shift;
    const vec r = v - n * 0.693359375f + n * 2.12194440e-4f;
    vec p = (vec){0} + 1.0f / 5040;
    p = p * r + 1.0f / 720;
    p = p * r + 1.0f / 120;
    p = p * r + 1.0f / 24;
    p = p * r + 1.0f / 6;
    p = p * r + 0.5f;
    p = p * r * r + r + 1.0f;
    const bits power = ((bits)shifted - (bits)shift + 127) << 23;
    return choose(v < -87.3f, (vec){0}, p * (vec)power);
}

/* The larger of two numbers; NaN counts as the largest. */
ALWAYS float larger(float x, float than) { return x > than || isnan(x) ? x : than; }

static float largest(int64_t n, const float *x) {
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

ALWAYS float total(vec v) {
    float sum = v[0];
    for (int j = 1; j < LANES; j++) sum += v[j];
    return sum;
}

static void row_forward(int64_t n, const float *x, float *y) {
    const float most = largest(n, x);
    vec sum = {0};
    for (int64_t c = 0; c < n; c += LANES) store_some(y + c, exponential(load_some(x + c, n - c) - most), n - c);
    for (int64_t c = 0; c < n; c += LANES) sum += load_some(y + c, n - c);
    const float all = total(sum);
    for (int64_t c = 0; c < n; c += LANES) store_some(y + c, load_some(y + c, n - c) / all, n - c);
}

/* x -> y, which may be x. */
void loss_softmax(const Geometry *g, const float *x, float *y) {
#pragma omp parallel for num_threads(g->threads) schedule(static) if (large(g))
    for (int64_t r = 0; r < g->rows; r++) row_forward(g->classes, x + r * g->classes, y + r * g->classes);
}

static void row_backward(int64_t n, const float *y, const float *dy, float *dx) {
    vec products = {0};
    for (int64_t c = 0; c < n; c += LANES) products += load_some(y + c, n - c) * load_some(dy + c, n - c);
    const float sum = total(products);
    for (int64_t c = 0; c < n; c += LANES)
        store_some(dx + c, load_some(y + c, n - c) * (load_some(dy + c, n - c) - sum), n - c);
}

/* y dy -> dx, which may be dy. */
void loss_softmax_gradient(const Geometry *g, const float *y, const float *dy, float *dx) {
#pragma omp parallel for num_threads(g->threads) schedule(static) if (large(g))
    for (int64_t r = 0; r < g->rows; r++) {
        const int64_t at = r * g->classes;
        row_backward(g->classes, y + at, dy + at, dx + at);
    }
}

/* Rows whose elements are `inner` apart: element k of row (o, i) lies at (o * length + k) * inner + i. A thread takes
 * some rows of one o side by side. */
typedef struct {
    int64_t outer, length, inner, threads;
} Columns;
MIRRORED(loss_columns, Columns)

static void columns_forward(const Columns *g, int64_t n, const float *x, float *y) {
    vec most = load_some(x, n), sum = {0};
    for (int64_t k = 1; k < g->length; k++) {
        const vec v = load_some(x + k * g->inner, n);
        most = choose((v > most) | (v != v), v, most);
    }
    for (int64_t k = 0; k < g->length; k++) {
        const vec e = exponential(load_some(x + k * g->inner, n) - most);
        store_some(y + k * g->inner, e, n);
        sum += e;
    }
    for (int64_t k = 0; k < g->length; k++)
        store_some(y + k * g->inner, load_some(y + k * g->inner, n) / sum, n);
}

static void columns_backward(const Columns *g, int64_t n, const float *y, const float *dy, float *dx) {
    vec sum = {0};
    for (int64_t k = 0; k < g->length; k++) sum += load_some(y + k * g->inner, n) * load_some(dy + k * g->inner, n);
    for (int64_t k = 0; k < g->length; k++) {
        const int64_t at = k * g->inner;
        store_some(dx + at, load_some(y + at, n) * (load_some(dy + at, n) - sum), n);
    }
}

#define EACH_COLUMNS(CALL)                                                                         \
    const int64_t blocks = up(g->inner, LANES) / LANES, size = g->outer * g->length * g->inner;    \
    _Pragma("omp parallel for num_threads(g->threads) schedule(static) if (size > ALONE / 4)")     \
    for (int64_t item = 0; item < g->outer * blocks; item++) {                                     \
        const int64_t i = item % blocks * LANES, at = item / blocks * g->length * g->inner + i;    \
        CALL;                                                                                      \
    }

/* As loss_softmax and loss_softmax_gradient. */
void loss_softmax_columns(const Columns *g, const float *x, float *y) {
    EACH_COLUMNS(columns_forward(g, g->inner - i, x + at, y + at))
}
void loss_softmax_gradient_columns(const Columns *g, const float *y, const float *dy, float *dx) {
    EACH_COLUMNS(columns_backward(g, g->inner - i, y + at, dy + at, dx + at))
}

static int counts(const Geometry *g, int32_t label) { return !(g->ignores && label == g->ignored); }

/* The number of labels that count. If one of these names no class: -1 - r, where r is its row. */
static int64_t counted(const Geometry *g, const int32_t *label) {
    int64_t count = 0;
    for (int64_t r = 0; r < g->rows; r++) {
        if (!counts(g, label[r])) continue;
        if (label[r] < 0 || label[r] >= g->classes) return -1 - r;
        count++;
    }
    return count;
}

static double divisor(const Geometry *g, int64_t count) {
    const int64_t by = g->divisor ? g->divisor : count;
    return by > 1 ? (double)by : 1;
}

/* x label -> loss prob. If a label names no class, this and the next two functions write nothing and return the
 * negative number from `counted`; else they return 0. */
int64_t loss_forward(const Geometry *g, const float *x, const int32_t *label, float *loss, float *prob) {
    const int64_t count = counted(g, label);
    if (count < 0) return count;
    loss_softmax(g, x, prob);
    double sum = 0;
    for (int64_t r = 0; r < g->rows; r++) {
        if (!counts(g, label[r])) continue;
        const float p = prob[r * g->classes + label[r]];
        sum += log(p < FLT_MIN ? FLT_MIN : p); /* as Caffe does */
    }
    *loss = (float)(-sum / divisor(g, count));
    return 0;
}

/* prob label -> dx = weight / divisor * (prob - 1 at the label); dx may be prob. */
int64_t loss_backward(const Geometry *g, const float *prob, const int32_t *label, float *dx) {
    const int64_t count = counted(g, label), n = g->classes;
    if (count < 0) return count;
    const float factor = (float)(g->weight / divisor(g, count));
#pragma omp parallel for num_threads(g->threads) schedule(static) if (large(g))
    for (int64_t r = 0; r < g->rows; r++) {
        const float *p = prob + r * n;
        float *d = dx + r * n;
        if (counts(g, label[r])) {
            const float own = p[label[r]] - 1;
            for (int64_t c = 0; c < n; c++) d[c] = p[c] * factor;
            d[label[r]] = own * factor;
        } else {
            memset(d, 0, 4 * n);
        }
    }
    return 0;
}

/* x label -> the share of labels whose score is reached by fewer than top_k others in the row. A NaN counts as reaching
 * any score, and any score as reaching a NaN. */
int64_t loss_accuracy(const Geometry *g, const float *x, const int32_t *label, float *share) {
    const int64_t count = counted(g, label);
    if (count < 0) return count;
    int64_t hits = 0;
    for (int64_t r = 0; r < g->rows; r++) {
        if (!counts(g, label[r])) continue;
        const float *row = x + r * g->classes, own = row[label[r]];
        int64_t reach = 0;
        for (int64_t c = 0; c < g->classes; c++) reach += !(row[c] < own);
        hits += reach <= g->top_k; /* `reach` counts the label's own score, too */
    }
    *share = count ? (float)((double)hits / (double)count) : 0;
    return 0;
}

typedef struct {
    int64_t size, threads;
} Elements;
MIRRORED(elements, Elements)

/* The workspace of a sum: the sum of each piece, float64. */
int64_t loss_sum_bytes(const Elements *g) { return 8 * (up(g->size, PIECE) / PIECE); }

/* The sum of all elements, added in double by pieces and then in the order of the pieces. */
void loss_sum(const Elements *g, const float *x, double *sums, float *out) {
#pragma omp parallel for num_threads(g->threads) schedule(static) if (g->size > ALONE)
    for (int64_t from = 0; from < g->size; from += PIECE) {
        const int64_t n = at_most(PIECE, g->size - from);
        double some[8] = {0}, sum = 0;
        int64_t i = 0;
        for (; i + 8 <= n; i += 8)
            for (int j = 0; j < 8; j++) some[j] += x[from + i + j];
        for (; i < n; i++) sum += x[from + i];
        for (int j = 0; j < 8; j++) sum += some[j];
        sums[from / PIECE] = sum;
    }
    double all = 0;
    for (int64_t i = 0; i < up(g->size, PIECE) / PIECE; i++) all += sums[i];
    *out = all;
}
