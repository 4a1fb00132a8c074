/* Runs of elements that follow each other in memory: copied, or set to 0. They may hold any numbers of four bytes.
 * `past`: past the caches; then they are whole, aligned vectors. */
#pragma once
#include "vector.h"

ALWAYS void copy_run(int64_t n, const float *restrict x, int past, float *restrict y) {
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) put(y + i, load(x + i), LANES, past);
    if (i < n && n >= LANES) /* the last vector overlaps the one before: some elements are copied twice */
        store(y + n - LANES, load(x + n - LANES));
    else
        for (; i < n; i++) y[i] = x[i];
}

ALWAYS void clear_run(int64_t n, int past, float *y) {
    const vec zero = {0};
    for (int64_t i = 0; i < n; i += LANES) put(y + i, zero, n - i, past);
}
