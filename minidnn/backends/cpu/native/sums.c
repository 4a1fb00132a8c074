/* Sums of gradients over micro-batches, along a balanced binary tree. */
#include <stdint.h>
#include <string.h>

#include "mirrored.h"
#include "pieces.h"

enum { MERGED = 1 << 9 }; /* elements that are merged at a time */

typedef struct {
    int64_t size, threads;
    int64_t every; /* micro-batches of a sum */
} Geometry;
MIRRORED(sum, Geometry)

/* `to` = x plus `merged` partial sums, the last of them first. They lie `size` elements apart and end before `end`. `to`
 * may be x or one of them. */
static void add(const Geometry *g, const float *x, const float *end, int64_t merged, float *to) {
#pragma omp parallel for num_threads(g->threads) schedule(static) if (g->size > ALONE)
    for (int64_t from = 0; from < g->size; from += PIECE) {
        const int64_t n = at_most(PIECE, g->size - from);
        float found[PIECE];
        memcpy(found, x + from, n * sizeof(float));
        for (int64_t k = 1; k <= merged; k++) {
            const float *waiting = end - k * g->size + from;
            for (int64_t i = 0; i < n; i++) found[i] += waiting[i];
        }
        memcpy(to + from, found, n * sizeof(float));
    }
}

enum { DEEPEST = 16 }; /* sums that wait at most, of up to 2^16 ranks */

typedef struct {
    int64_t size, threads; /* elements of a row */
    int64_t ranks, own;
} Merge;
MIRRORED(merge, Merge)

/* The sum of the first `own` elements of the ranks' rows, along the same tree, then zeros. */
void sums_merge(const Merge *g, const float *rows, float *shard) {
#pragma omp parallel for num_threads(g->threads) schedule(static) if (g->ranks * g->own > ALONE)
    for (int64_t from = 0; from < g->own; from += MERGED) {
        const int64_t n = at_most(MERGED, g->own - from);
        float waiting[DEEPEST + 1][MERGED];
        int64_t depth = 0;
        for (int64_t rank = 0; rank < g->ranks; rank++) {
            memcpy(waiting[depth], rows + rank * g->size + from, n * sizeof(float));
            for (int64_t k = rank; k & 1; k >>= 1, depth--)
                for (int64_t i = 0; i < n; i++) waiting[depth - 1][i] += waiting[depth][i];
            depth++;
        }
        for (; depth > 1; depth--)
            for (int64_t i = 0; i < n; i++) waiting[depth - 2][i] += waiting[depth - 1][i];
        memcpy(shard + from, waiting[0], n * sizeof(float));
    }
    if (g->own < g->size) memset(shard + g->own, 0, (g->size - g->own) * sizeof(float));
}

static int64_t ones(int64_t k) { return __builtin_popcountll((uint64_t)k); }

/* After k micro-batches a partial sum waits for each 1 among k's digits. The next micro-batch is added to those of the
 * run of ones at the end, and takes the place of the first of these. */
void sums_accumulate(const Geometry *g, float *sums, const float *dw, const int64_t *iteration) {
    const int64_t k = *iteration % g->every, merged = ones(k & ~(k + 1)), waiting = ones(k);
    add(g, dw, sums + waiting * g->size, merged, sums + (waiting - merged) * g->size);
}

/* The last micro-batch is added to all partial sums. */
void sums_total(const Geometry *g, const float *sums, const float *dw, float *total) {
    const int64_t waiting = ones(g->every - 1);
    add(g, dw, sums + waiting * g->size, waiting, total);
}
