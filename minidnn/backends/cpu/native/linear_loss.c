/* The softmax loss of some rows of scores at a time, between the products that make the scores and those that use their
 * gradients (linear_loss.py). */
#include "losses.h"
#include "mirrored.h"

typedef struct {
    int64_t rows, classes, threads;
    Counting labels;
    double weight;    /* the loss's weight, for its gradient */
    double smoothing; /* the share of a label that all classes get alike */
} Geometry;
MIRRORED(linear_loss, Geometry)

enum { STRIP = 1 << 10 }; /* classes whose sums stay in a near cache */

/* label -> how many count. If one names no class: writes nothing, and returns the negative number from `counted`. */
int64_t linear_loss_count(const Geometry *g, const int32_t *label, int64_t *count) {
    const int64_t found = counted(&g->labels, g->rows, g->classes, label);
    if (found >= 0) *count = found;
    return found < 0 ? found : 0;
}

/* Scores become their gradients. `terms`: each row's term of the loss. `count`: how many of all labels count. */
void linear_loss_rows(const Geometry *g, const int32_t *label, const int64_t *count, double *terms, float *scores) {
    const int64_t n = g->classes;
    const float factor = (float)(g->weight / divided_by(&g->labels, *count));
#pragma omp parallel for num_threads(g->threads) schedule(static) if (g->rows * n > ALONE / 4)
    for (int64_t r = 0; r < g->rows; r++) {
        float *x = scores + r * n;
        double sum = 0;
        if (!counts(&g->labels, label[r])) {
            memset(x, 0, 4 * n);
            continue;
        }
        if (g->smoothing != 0)
            for (int64_t c = 0; c < n; c++) sum += x[c];
        const float most = g->smoothing != 0 ? largest(n, x) : 0;
        softmax_of_row(n, x, x);
        terms[r] = loss_of_row(n, x, label[r], g->smoothing, most, sum);
        slopes_of_row(n, x, label[r], g->smoothing, factor, x);
    }
}

void linear_loss_clear(const Geometry *g, float *db) { memset(db, 0, 4 * g->classes); }

/* db += the sum of these rows of the scores' gradients. */
void linear_loss_add(const Geometry *g, const float *scores, float *db) {
    const int64_t n = g->classes;
#pragma omp parallel for num_threads(g->threads) schedule(static) if (g->rows * n > ALONE)
    for (int64_t from = 0; from < n; from += STRIP) {
        const int64_t wide = at_most(STRIP, n - from);
        float sum[STRIP] = {0};
        for (int64_t r = 0; r < g->rows; r++)
            for (int64_t c = 0; c < wide; c++) sum[c] += scores[r * n + from + c];
        for (int64_t c = 0; c < wide; c++) db[from + c] += sum[c];
    }
}

/* The sum of the terms of all rows that count, divided -> loss. */
void linear_loss_sum(const Geometry *g, const int32_t *label, const int64_t *count, const double *terms, float *loss) {
    double sum = 0;
    for (int64_t r = 0; r < g->rows; r++)
        if (counts(&g->labels, label[r])) sum += terms[r];
    *loss = (float)(sum / divided_by(&g->labels, *count));
}
