/* RotaryEmbedding: pairs of each head's numbers turned by angles that grow with the token's place. A thread takes whole
 * places, so that the cosines of one are computed once for all samples and heads. */
#include <math.h>
#include <omp.h>

#include "mirrored.h"
#include "pieces.h"
#include "runs.h"

typedef struct {
    int64_t samples, tokens, first, width, heads, depth, interleaved, threads;
    double base;
    double sign; /* 1: forward, -1: backward */
} Geometry;
MIRRORED(rotary, Geometry)

/* The workspace of a thread: cosines and sines of a place. */
int64_t rotary_bytes(const Geometry *g) { return 4 * g->threads * up(g->depth, LANES); }

/* Pairs half a head apart. */
static void apart(int64_t half, const float *x, const float *cosine, const float *sine, float *y) {
    for (int64_t i = 0; i < half; i += LANES) {
        const vec u = load_some(x + i, half - i), v = load_some(x + half + i, half - i);
        const vec c = load_some(cosine + i, half - i), s = load_some(sine + i, half - i);
        store_some(y + i, u * c - v * s, half - i);
        store_some(y + half + i, v * c + u * s, half - i);
    }
}

static void neighbours(int64_t half, const float *x, const float *cosine, const float *sine, float *y) {
    for (int64_t i = 0; i < half; i++) {
        const float u = x[2 * i], v = x[2 * i + 1];
        y[2 * i] = u * cosine[i] - v * sine[i];
        y[2 * i + 1] = v * cosine[i] + u * sine[i];
    }
}

/* x -> y, which may be x. The places of tokens: NULL if they count from `first`. */
void rotary(const Geometry *g, const float *x, const int32_t *places, float *y, float *workspace) {
    const int64_t half = g->depth / 2, rotated = g->heads * g->depth;
#pragma omp parallel num_threads(g->threads) if (g->samples * g->tokens * g->width > ALONE / 4)
    {
        const int64_t thread = omp_get_thread_num();
        float *cosine = workspace + thread * up(g->depth, LANES), *sine = cosine + half;
#pragma omp for schedule(static)
        for (int64_t t = 0; t < g->tokens; t++) {
            for (int64_t i = 0; i < half; i++) {
                const double angle = (places ? places[t] : g->first + t) * pow(g->base, -2. * i / g->depth);
                cosine[i] = (float)cos(angle), sine[i] = (float)(g->sign * sin(angle));
            }
            for (int64_t n = 0; n < g->samples; n++) {
                const float *from = x + (n * g->tokens + t) * g->width;
                float *to = y + (n * g->tokens + t) * g->width;
                for (int64_t h = 0; h < rotated; h += g->depth)
                    (g->interleaved ? neighbours : apart)(half, from + h, cosine, sine, to + h);
                if (to != from) copy_run(g->width - rotated, from + rotated, 0, to + rotated);
            }
        }
    }
}
