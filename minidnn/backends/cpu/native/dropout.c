/* Dropout by Philox: element i, counted in logical order, takes word i % 4 of block i / 4. */
#include "halves.h"
#include "mirrored.h"
#include "philox.h"
#include "pieces.h"

typedef struct {
    int64_t n, c, pixels; /* pixels = 1: memory has the elements in logical order */
    int64_t block;        /* of the stream, with which x begins */
    int64_t threads;
    int64_t format; /* of tensors of 16 bits */
    uint32_t seed_low, seed_high, key;
    uint32_t limit; /* an element whose word is below this is dropped */
    float scale;    /* the factor of elements that are kept */
} Geometry;
MIRRORED(dropout, Geometry)

enum { BLOCKS = 64, WORDS = 4 * BLOCKS }; /* generated at a time */

/* Words [4 * block, 4 * block + WORDS) of x. */
static void words(const Geometry *g, int64_t block, int64_t iteration, uint32_t *out) {
    const Stream stream = {g->seed_low, g->seed_high, g->key, (uint32_t)iteration};
    uint32_t made[4][BLOCKS];
    for (int from = 0; from < BLOCKS; from += LANES) {
        unsigned_bits word[4];
        for (int i = 0; i < LANES; i++) {
            word[0][i] = (uint32_t)(g->block + block + from + i);
            word[1][i] = (uint32_t)((uint64_t)(g->block + block + from + i) >> 32);
        }
        philox(stream, word);
        for (int j = 0; j < 4; j++) memcpy(made[j] + from, &word[j], sizeof word[j]);
    }
    for (int i = 0; i < BLOCKS; i++)
        for (int j = 0; j < 4; j++) out[4 * i + j] = made[j][i];
}

/* Elements [from, from + n) of a tensor as float32, n at most WORDS: a copy in `own`, if it has 16 bits. */
ALWAYS const float *some_of(const Geometry *g, const int half, const void *x, int64_t from, int64_t n, float *own) {
    if (!half) return (const float *)x + from;
    widen(g->format, n, (const uint16_t *)x + from, own);
    return own;
}
/* Where they are written: `own`, from which `written` takes them. */
ALWAYS float *place_of(const int half, void *y, int64_t from, float *own) { return half ? own : (float *)y + from; }
ALWAYS void written(const Geometry *g, const int half, void *y, int64_t from, int64_t n, const float *own) {
    if (half) narrow(g->format, n, own, (uint16_t *)y + from);
}

/* x -> y if memory has the elements in logical order. */
ALWAYS void straight(const Geometry *g, const int half, const void *x, int64_t iteration, void *y) {
    const int64_t size = g->n * g->c;
    const uint32_t limit = g->limit;
    const float scale = g->scale;
#pragma omp parallel for num_threads(g->threads) schedule(static) if (size > ALONE / 4)
    for (int64_t first = 0; first < size; first += WORDS) {
        uint32_t word[WORDS];
        float own[WORDS];
        words(g, first / 4, iteration, word);
        const int64_t count = at_most(WORDS, size - first);
        const float *const from = some_of(g, half, x, first, count, own);
        float *const to = place_of(half, y, first, own);
        for (int64_t i = 0; i < count; i += LANES) {
            unsigned_bits w;
            memcpy(&w, word + i, sizeof w);
            const bits scaled = (bits)(load_some(from + i, count - i) * scale);
            store_some(to + i, (vec)(scaled & (w >= limit)), count - i);
        }
        written(g, half, y, first, count, own);
    }
}

/* x -> y for images, whose channels are innermost. `drops` has a byte for each element, in logical order: 1 if it is
 * dropped. */
ALWAYS void images(const Geometry *g, const int half, const void *x, int64_t iteration, void *y, uint8_t *drops) {
    const int64_t size = g->n * g->c * g->pixels;
    const uint32_t limit = g->limit;
    const float scale = g->scale;
#pragma omp parallel num_threads(g->threads) if (size > ALONE / 4)
    {
#pragma omp for schedule(static)
        for (int64_t from = 0; from < size; from += WORDS) {
            uint32_t word[WORDS];
            words(g, from / 4, iteration, word);
            const int64_t count = at_most(WORDS, size - from);
            for (int64_t i = 0; i < count; i++) drops[from + i] = word[i] < limit;
        }
#pragma omp for schedule(static)
        for (int64_t item = 0; item < g->n * g->pixels; item++) {
            const uint8_t *drop = drops + item / g->pixels * g->c * g->pixels + item % g->pixels;
            for (int64_t first = 0; first < g->c; first += WORDS) {
                float own[WORDS];
                const int64_t count = at_most(WORDS, g->c - first), at = item * g->c + first;
                const float *const from = some_of(g, half, x, at, count, own);
                float *const to = place_of(half, y, at, own);
                for (int64_t k = 0; k < count; k++) {
                    const float scaled = from[k] * scale;
                    to[k] = drop[(first + k) * g->pixels] ? 0 : scaled;
                }
                written(g, half, y, at, count, own);
            }
        }
    }
}

/* x -> y, which may be x. Only images (pixels above 1) need `drops`. */
void dropout(const Geometry *g, const float *x, const int64_t *iteration, float *y, uint8_t *drops) {
    if (g->pixels == 1)
        straight(g, 0, x, *iteration, y);
    else
        images(g, 0, x, *iteration, y, drops);
}

/* The same of tensors of 16 bits. */
void dropout_half(const Geometry *g, const uint16_t *x, const int64_t *iteration, uint16_t *y, uint8_t *drops) {
    if (g->pixels == 1)
        straight(g, 1, x, *iteration, y);
    else
        images(g, 1, x, *iteration, y, drops);
}

/* What dropout makes of n * c ones. */
void dropout_factors(const Geometry *g, const int64_t *iteration, float *y) {
    const int64_t size = g->n * g->c;
    for (int64_t from = 0; from < size; from += WORDS) {
        uint32_t word[WORDS];
        words(g, from / 4, *iteration, word);
        for (int64_t i = 0; i < at_most(WORDS, size - from); i++) y[from + i] = word[i] < g->limit ? 0 : g->scale;
    }
}
