/* Softmax, its loss with labels, and accuracy, over rows of classes; the sum of a tensor. Non-finite scores are not
 * hidden: a row with a NaN or +inf among its scores becomes NaN, and so does the loss.
 */
#include "losses.h"
#include "mirrored.h"

typedef struct {
    int64_t rows, classes, threads;
    Counting labels;
    int64_t top_k;    /* for accuracy */
    double weight;    /* the loss's weight, for its gradient */
    double smoothing; /* the share of a label that all classes get alike */
} Geometry;
MIRRORED(loss, Geometry)

static int large(const Geometry *g) { return g->rows * g->classes > ALONE / 4; }

/* x -> y, which may be x. */
void loss_softmax(const Geometry *g, const float *x, float *y) {
#pragma omp parallel for num_threads(g->threads) schedule(static) if (large(g))
    for (int64_t r = 0; r < g->rows; r++) softmax_of_row(g->classes, x + r * g->classes, y + r * g->classes);
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
        const vec e = falling_exponential(load_some(x + k * g->inner, n) - most);
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

/* The loss of one row, from its scores and its probabilities: -log(p) of its label, as Caffe does it; or by the label's
 * row of the matrix, unless that is null. The smoothed part is the mean of -log(p), by the scores: so it is right also
 * where p is 0. */
static double row_loss(const Geometry *g, const float *x, const float *p, int32_t label, const float *matrix) {
    const int64_t n = g->classes;
    double sum = 0;
    if (matrix) {
        for (int64_t c = 0; c < n; c++) sum -= matrix[label * n + c] * log(p[c] < 1e-20f ? 1e-20f : p[c]);
        return sum;
    }
    if (g->smoothing != 0)
        for (int64_t c = 0; c < n; c++) sum += x[c];
    return loss_of_row(n, p, label, g->smoothing, g->smoothing != 0 ? largest(n, x) : 0, sum);
}

/* x label (matrix) -> loss prob. `terms`: room for a number a row, if there is a matrix or smoothing. If a label names
 * no class, this and the next two functions write nothing and return the negative number from `counted`; else they
 * return 0. */
int64_t loss_forward(const Geometry *g, const float *x, const int32_t *label, const float *matrix, double *terms,
                     float *loss, float *prob) {
    const int64_t count = counted(&g->labels, g->rows, g->classes, label), n = g->classes;
    if (count < 0) return count;
    loss_softmax(g, x, prob);
    const int many = matrix || g->smoothing != 0;
#pragma omp parallel for num_threads(g->threads) schedule(static) if (many && large(g))
    for (int64_t r = 0; r < (many ? g->rows : 0); r++)
        if (counts(&g->labels, label[r])) terms[r] = row_loss(g, x + r * n, prob + r * n, label[r], matrix);
    double sum = 0;
    for (int64_t r = 0; r < g->rows; r++)
        if (counts(&g->labels, label[r]))
            sum += many ? terms[r] : row_loss(g, x + r * n, prob + r * n, label[r], NULL);
    *loss = (float)(sum / divided_by(&g->labels, count));
    return 0;
}

/* prob label (matrix) -> dx = weight / divisor * (prob - 1 at the label), smoothed; or with the label's row of the
 * matrix in place of 1, and prob times the sum of that. dx may be prob. */
int64_t loss_backward(const Geometry *g, const float *prob, const int32_t *label, const float *matrix, float *dx) {
    const int64_t count = counted(&g->labels, g->rows, g->classes, label), n = g->classes;
    if (count < 0) return count;
    const float factor = (float)(g->weight / divided_by(&g->labels, count));
#pragma omp parallel for num_threads(g->threads) schedule(static) if (large(g))
    for (int64_t r = 0; r < g->rows; r++) {
        const float *p = prob + r * n;
        float *d = dx + r * n;
        if (!counts(&g->labels, label[r])) {
            memset(d, 0, 4 * n);
        } else if (matrix) {
            const float *costs = matrix + label[r] * n;
            double sum = 0;
            for (int64_t c = 0; c < n; c++) sum += costs[c];
            for (int64_t c = 0; c < n; c++) d[c] = (p[c] * (float)sum - costs[c]) * factor;
        } else {
            slopes_of_row(n, p, label[r], g->smoothing, factor, d);
        }
    }
    return 0;
}

/* Whether a label's score is reached by fewer than top_k others in the row. A NaN counts as reaching any score, and any
 * score as reaching a NaN. */
static int right(const Geometry *g, const float *row, int32_t label) {
    const float own = row[label];
    int64_t reach = 0;
    for (int64_t c = 0; c < g->classes; c++) reach += !(row[c] < own);
    return reach <= g->top_k; /* `reach` counts the label's own score, too */
}

/* x label -> the share of labels that are right. */
int64_t loss_accuracy(const Geometry *g, const float *x, const int32_t *label, float *share) {
    const int64_t count = counted(&g->labels, g->rows, g->classes, label);
    if (count < 0) return count;
    int64_t hits = 0;
    for (int64_t r = 0; r < g->rows; r++)
        if (counts(&g->labels, label[r])) hits += right(g, x + r * g->classes, label[r]);
    *share = count ? (float)((double)hits / (double)count) : 0;
    return 0;
}

/* x label -> the share for each class; 0 for one that no label names. `numbers`: room for two per class. */
int64_t loss_accuracy_by_class(const Geometry *g, const float *x, const int32_t *label, int64_t *numbers,
                               float *shares) {
    const int64_t count = counted(&g->labels, g->rows, g->classes, label);
    if (count < 0) return count;
    for (int64_t c = 0; c < 2 * g->classes; c++) numbers[c] = 0;
    for (int64_t r = 0; r < g->rows; r++) {
        if (!counts(&g->labels, label[r])) continue;
        numbers[2 * label[r]] += right(g, x + r * g->classes, label[r]);
        numbers[2 * label[r] + 1]++;
    }
    for (int64_t c = 0; c < g->classes; c++)
        shares[c] = numbers[2 * c + 1] ? (float)((double)numbers[2 * c] / (double)numbers[2 * c + 1]) : 0;
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
