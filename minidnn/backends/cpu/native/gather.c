/* Windows as columns (Im2col), and rows by their numbers (BatchReindex). */
#include "mirrored.h"
#include "pieces.h"
#include "runs.h"

/* Images are n, h, w, c; columns are n, oh, ow, c * kh * kw, the kernel's elements innermost. */
typedef struct {
    int64_t n, c, h, w, oh, ow;
    int64_t kh, kw, sh, sw, ph, pw, dh, dw;
    int64_t threads;
} Windows;
MIRRORED(gather_windows, Windows)

/* The columns of one row of windows. */
static void columns(const Windows *g, int64_t image, int64_t row, const float *x, float *y) {
    const int64_t c = g->c, taps = g->kh * g->kw;
    for (int64_t column = 0; column < g->ow; column++, y += c * taps)
        for (int64_t i = 0; i < g->kh; i++)
            for (int64_t j = 0; j < g->kw; j++) {
                const int64_t h = row * g->sh - g->ph + i * g->dh, w = column * g->sw - g->pw + j * g->dw;
                const int inside = h >= 0 && h < g->h && w >= 0 && w < g->w;
                const float *const from = inside ? x + ((image * g->h + h) * g->w + w) * c : NULL;
                float *const to = y + i * g->kw + j;
                for (int64_t k = 0; k < c; k++) to[k * taps] = inside ? from[k] : 0;
            }
}

void gather_columns(const Windows *g, const float *x, float *y) {
    const int64_t width = g->ow * g->c * g->kh * g->kw;
#pragma omp parallel for num_threads(g->threads) schedule(static) if (g->n * g->oh * width > ALONE)
    for (int64_t r = 0; r < g->n * g->oh; r++) columns(g, r / g->oh, r % g->oh, x, y + r * width);
}

/* The number of the window whose element i lies at `at`; -1 if there is none. */
ALWAYS int64_t window(int64_t at, int64_t i, int64_t stride, int64_t pad, int64_t dilation, int64_t windows) {
    const int64_t begin = at + pad - i * dilation;
    return begin >= 0 && begin % stride == 0 && begin / stride < windows ? begin / stride : -1;
}

/* Each pixel's sum over the windows that have it, by the kernel's elements in their order. */
void gather_pixels(const Windows *g, const float *dy, float *dx) {
    const int64_t c = g->c, taps = g->kh * g->kw;
#pragma omp parallel for num_threads(g->threads) schedule(static) if (g->n * g->h * g->w * c > ALONE)
    for (int64_t r = 0; r < g->n * g->h; r++) {
        const int64_t image = r / g->h, h = r % g->h;
        for (int64_t w = 0; w < g->w; w++) {
            float *const to = dx + (r * g->w + w) * c;
            clear_run(c, 0, to);
            for (int64_t i = 0; i < g->kh; i++)
                for (int64_t j = 0; j < g->kw; j++) {
                    const int64_t row = window(h, i, g->sh, g->ph, g->dh, g->oh);
                    const int64_t column = window(w, j, g->sw, g->pw, g->dw, g->ow);
                    if (row < 0 || column < 0) continue;
                    const float *const from = dy + ((image * g->oh + row) * g->ow + column) * c * taps + i * g->kw + j;
                    for (int64_t k = 0; k < c; k++) to[k] += from[k * taps];
                }
        }
    }
}

typedef struct {
    int64_t rows, chosen, width, threads; /* rows of x, rows of y, elements of a row */
} Rows;
MIRRORED(gather_rows, Rows)

/* -1 - k for the first number k that names no row; 0 if there is none. */
static int64_t wrong(const Rows *g, const int32_t *index) {
    for (int64_t k = 0; k < g->chosen; k++)
        if (index[k] < 0 || index[k] >= g->rows) return -1 - k;
    return 0;
}

/* y[k] = x[index[k]]. Returns as `wrong`, and then has done nothing. */
int64_t gather_rows(const Rows *g, const float *x, const int32_t *index, float *y) {
    const int64_t none = wrong(g, index), width = g->width;
    if (none) return none;
    const int past = goes_past(y, g->chosen, width);
#pragma omp parallel num_threads(g->threads) if (g->chosen * width > ALONE)
    {
#pragma omp for schedule(static)
        for (int64_t k = 0; k < g->chosen; k++) copy_run(width, x + index[k] * width, past, y + k * width);
        if (past) stored_past();
    }
    return 0;
}

enum { ACROSS = 256 }; /* most elements of a row that a thread takes at a time; enough of them for a cache's lines */

/* dx[i] = the sum of those dy[k], in their order, where index[k] is i. A thread has some elements of all rows. Returns
 * as `wrong`. */
int64_t gather_sums(const Rows *g, const int32_t *index, const float *dy, float *dx) {
    const int64_t none = wrong(g, index), width = g->width;
    if (none) return none;
#pragma omp parallel for num_threads(g->threads) schedule(static) if ((g->rows + g->chosen) * width > ALONE)
    for (int64_t begin = 0; begin < width; begin += ACROSS) {
        const int64_t n = at_most(ACROSS, width - begin);
        for (int64_t row = 0; row < g->rows; row++) clear_run(n, 0, dx + row * width + begin);
        for (int64_t k = 0; k < g->chosen; k++) {
            const float *const from = dy + k * width + begin;
            float *const to = dx + index[k] * width + begin;
            for (int64_t i = 0; i < n; i += LANES)
                store_some(to + i, load_some(to + i, n - i) + load_some(from + i, n - i), n - i);
        }
    }
    return 0;
}

/* Windows of side x side places, for which a table has a row for each way from place to place, down and across. */
typedef struct {
    int64_t side, heads, down, across;
    int64_t shift; /* of the last window of a row or column, so many places come from the map's other end; 0: none */
    int64_t threads;
    float hidden; /* the bias of a pair that comes from two ends of the map */
} Relative;
MIRRORED(gather_relative, Relative)

/* The bias of each window and head, for each query and key. */
void gather_relative(const Relative *g, const float *w, float *y) {
    const int64_t side = g->side, places = side * side, edge = side - g->shift;
    const int64_t rows = g->down * g->across * g->heads * places;
#pragma omp parallel for num_threads(g->threads) schedule(static) if (rows * places > ALONE)
    for (int64_t i = 0; i < rows; i++) {
        const int64_t query = i % places, head = i / places % g->heads, window = i / places / g->heads;
        const int64_t low = query / side, right = query % side;
        const int last_row = g->shift && window / g->across == g->down - 1;
        const int last_column = g->shift && window % g->across == g->across - 1;
        float *to = y + i * places;
        for (int64_t k = 0; k < side; k++)
            for (int64_t l = 0; l < side; l++) {
                const int64_t row = (low - k + side - 1) * (2 * side - 1) + right - l + side - 1;
                const int hides = (last_row && (low >= edge) != (k >= edge)) ||
                                  (last_column && (right >= edge) != (l >= edge));
                to[k * side + l] = w[row * g->heads + head] + (hides ? g->hidden : 0);
            }
    }
}

/* Each row's sum over the pairs that are so far apart, of all windows. */
void gather_relative_sums(const Relative *g, const float *dy, float *dw) {
    const int64_t side = g->side, places = side * side, ways = 2 * side - 1, windows = g->down * g->across;
#pragma omp parallel for num_threads(g->threads) schedule(static) if (windows * g->heads * places * places > ALONE)
    for (int64_t i = 0; i < ways * ways * g->heads; i++) {
        const int64_t head = i % g->heads, down = i / g->heads / ways - side + 1, across = i / g->heads % ways - side + 1;
        double sum = 0;
        for (int64_t n = 0; n < windows; n++) {
            const float *from = dy + (n * g->heads + head) * places * places;
            for (int64_t k = down < 0 ? 0 : down; k < side && k - down < side; k++)
                for (int64_t l = across < 0 ? 0 : across; l < side && l - across < side; l++)
                    sum += from[(k * side + l) * places + (k - down) * side + l - across];
        }
        dw[i] = (float)sum;
    }
}
