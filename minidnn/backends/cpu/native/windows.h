/* The windows of images as the rows of a matrix: a row is all elements under the filter at one place, kernel row by
 * kernel row, channels innermost, with zeros for the padding. The matrix is never stored; pieces of it are packed into
 * panels (product.h).
 */
#pragma once
#include "pieces.h"
#include "product.h"

/* Images of h x w x c, and a result of to_h x to_w for each. */
typedef struct {
    int64_t h, w, c, to_h, to_w;
    int64_t kernel_h, kernel_w, stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w;
} Windows;

/* Packs the columns from `from` on of `rows` windows, from window `first` on, into panels, with zeros beyond the
 * columns. */
static inline void pack_windows(const Windows *g, const float *x, int64_t first, int64_t rows, int64_t from,
                                int64_t columns, float *panels) {
    const int64_t to = up(columns, PANEL);
    int64_t column = first % g->to_w, row = first / g->to_w % g->to_h, image = first / g->to_w / g->to_h;
    for (int64_t k = 0; k < rows; k++) {
        const float *pixels = x + image * g->h * g->w * g->c;
        for (int64_t j = 0; j < to;) {
            /* the run of one pixel's channels that column from + j is in */
            const int64_t at = (from + j) / g->c, channel = (from + j) % g->c;
            const int64_t i = row * g->stride_h - g->pad_h + at / g->kernel_w * g->dilation_h;
            const int64_t l = column * g->stride_w - g->pad_w + at % g->kernel_w * g->dilation_w;
            const int inside = j < columns && i >= 0 && i < g->h && l >= 0 && l < g->w;
            const int64_t end = j < columns ? at_most(columns, j + g->c - channel) : to;
            const float *run = inside ? pixels + (i * g->w + l) * g->c + channel - j : NULL;
            while (j < end) {
                float *place = panels + (j / PANEL * rows + k) * PANEL + j % PANEL;
                const int64_t n = at_most(end - j, PANEL - j % PANEL);
                if (n == PANEL) {
                    store(place, run ? load(run + j) : (vec){0});
                    store(place + LANES, run ? load(run + j + LANES) : (vec){0});
                } else {
                    for (int64_t q = 0; q < n; q++) place[q] = run ? run[j + q] : 0;
                }
                j += n;
            }
        }
        if (++column == g->to_w) {
            column = 0;
            if (++row == g->to_h) row = 0, image++;
        }
    }
}
