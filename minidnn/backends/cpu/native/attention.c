/* Attention: y = softmax(scale * q k' + bias) v for each head, in bytes that grow with the tokens, never with their square.
 *
 * Forward follows FlashAttention-2 (Dao, "FlashAttention-2: Faster Attention with Better Parallelism and Work
 * Partitioning", 2023): HIGH queries meet DEEP keys at a time, and a running maximum and sum make the softmax exact. It
 * leaves the logarithm of each query's sum. Backward computes the probabilities again from that.
 *
 * All tiles lie turned: a row for each key, a lane for each query. So the softmax of LANES queries is arithmetic of
 * whole vectors, and what one product leaves is what the next one reads; only queries are packed, once.
 *
 * A query's sums go over the keys in their order, a key's over the queries and their heads. Blocks of keys begin at
 * multiples of DEEP whatever the query. So no bit depends on threads, or on the other samples. The gradient of a bias
 * that samples share is summed in pieces, which depend on sizes alone: so threads share it, too.
 */
#include <omp.h>
#include <stddef.h>

#include "losses.h"
#include "mirrored.h"
#include "philox.h"
#include "product.h"
#include "runs.h"

typedef struct {
    int64_t samples, queries, keys; /* tokens of a sample; the last query sees the last key */
    int64_t heads, kv_heads, depth; /* a head's numbers, of each token */
    int64_t q_pitch, kv_pitch;      /* floats from token to token of q, k and v, and of their gradients */
    int64_t fresh_pitch;            /* the same of k and v that are to be kept */
    int64_t place;                  /* of the first query, among the keys */
    int64_t causal;                 /* whether a query sees no key behind it */
    int64_t window;                 /* it sees keys that are less than so many tokens away; 0: all */
    int64_t bias_samples, bias_heads; /* sample n has the bias of n modulo these; 1 head: all share it */
    int64_t each;                     /* samples of a piece, of those that share a bias */
    int64_t threads;
    uint32_t seed_low, seed_high, key;
    uint32_t limit;  /* a probability whose word is below this is dropped; 0: none */
    float kept;      /* the factor of those that are kept */
    float scale;     /* of the products of queries and keys */
} Geometry;
MIRRORED(attention, Geometry)

enum { HIGH = 128 }; /* queries of a block; keys are DEEP */

ALWAYS vec higher(vec a, vec b) { return choose(a > b, a, b); } /* b if one is NaN */

static const float LOWEST = -3.40282347e38f;

/* ---- the workspace of a thread, in floats */

static int64_t across(const Geometry *g) { return up(g->depth, PANEL); }

typedef struct {
    float *turned;     /* depth x HIGH: scale * queries */
    float *sums;       /* depth x HIGH: y, or dq */
    float *scores;     /* DEEP x HIGH */
    float *k, *v;      /* DEEP x depth */
    float *most, *all; /* HIGH: of each query, its largest score and its sum; or its lse and the sum of dy y */
    /* backward's alone */
    float *turned_dy;    /* depth x HIGH */
    float *slopes;       /* DEEP x HIGH: the gradients of the scores */
    float *queries, *dy; /* HIGH x depth, in panels */
    float *tile;         /* DEEP x depth, in panels: what a block of queries adds to dk or dv */
} Space;

static Space space(const Geometry *g, float *at, int backward, int64_t *floats) {
    const int64_t tall = g->depth * HIGH, square = DEEP * HIGH, keys = DEEP * g->depth, rows = HIGH * across(g);
    const int64_t sizes[] = {tall, tall, square, keys, keys, HIGH, HIGH, tall, square, rows, rows, DEEP * across(g)};
    Space s;
    float **parts[] = {&s.turned, &s.sums, &s.scores, &s.k, &s.v, &s.most, &s.all,
                       &s.turned_dy, &s.slopes, &s.queries, &s.dy, &s.tile};
    const int64_t count = backward ? 12 : 7;
    int64_t sum = 0;
    for (int64_t i = 0; i < count; i++) {
        *parts[i] = at + sum;
        sum += up(sizes[i], LANES);
    }
    *floats = sum;
    return s;
}

static int64_t bytes(const Geometry *g, int backward) {
    int64_t floats;
    space(g, NULL, backward, &floats);
    return 4 * g->threads * floats;
}
int64_t attention_forward_bytes(const Geometry *g) { return bytes(g, 0); }
int64_t attention_backward_bytes(const Geometry *g) { return bytes(g, 1); }

/* ---- which keys queries see */

typedef struct {
    int64_t first, count; /* queries */
    int64_t low, high;    /* keys that one of them sees */
} Block;

static Block block_of(const Geometry *g, int64_t first) {
    const int64_t count = at_most(HIGH, g->queries - first);
    const int64_t from = first + g->place, to = from + count; /* the keys at the queries' places */
    int64_t low = g->window ? from - g->window + 1 : 0;
    int64_t high = g->causal ? to : g->window ? to + g->window - 1 : g->keys;
    low = low < 0 ? 0 : low / DEEP * DEEP;
    return (Block){first, count, low, at_most(high, g->keys)};
}

/* Sets the scores of keys that a query does not see to -inf. Keys count from `first`. */
static void hide(const Geometry *g, const Block *b, int64_t first, int64_t keys, float *scores) {
    const int64_t place = b->first + g->place; /* of the first query */
    const int before = g->window && first <= place + b->count - 1 - g->window;
    const int behind = g->causal ? first + keys - 1 > place
                                 : g->window && first + keys - 1 >= place + g->window;
    if (!before && !behind) return;
    const int64_t reach = g->causal ? 0 : g->window - 1; /* keys behind itself that a query sees */
    bits lane;
    for (int j = 0; j < LANES; j++) lane[j] = j;
    for (int64_t j = 0; j < up(b->count, LANES); j += LANES) {
        float *at = scores + j / PANEL * DEEP * PANEL + j % PANEL;
        for (int64_t k = 0; k < keys; k++, at += PANEL) {
            const int32_t key = (int32_t)(first + k - place - j); /* relative to the first lane's query */
            bits hidden = behind ? lane < key - (int32_t)reach : (bits){0};
            if (before) hidden |= lane >= key + (int32_t)g->window;
            store(at, choose(hidden, each(-INFINITY), load(at)));
        }
    }
}

/* ---- the bias: a number for each query and key, with the keys of a query beside each other */

/* Where the bias of a sample and a head begins. */
static int64_t bias_at(const Geometry *g, int64_t n, int64_t head) {
    return (n % g->bias_samples * g->bias_heads + head % g->bias_heads) * g->queries * g->keys;
}

/* Adds it to the scores. Keys count from `first`. */
static void lift(const Geometry *g, const Block *b, int64_t first, int64_t keys, const float *bias, float *scores) {
    bias += b->first * g->keys + first;
    for (int64_t j = 0; j < b->count; j += LANES)
        for (int64_t k = 0; k < keys; k += LANES) {
            vec square[LANES];
            for (int i = 0; i < LANES; i++)
                square[i] = j + i < b->count ? load_some(bias + (j + i) * g->keys + k, keys - k) : (vec){0};
            transpose(square);
            float *at = scores + j / PANEL * DEEP * PANEL + k * PANEL + j % PANEL;
            for (int i = 0; i < LANES && k + i < keys; i++, at += PANEL) store(at, load(at) + square[i]);
        }
}

/* Adds the scores' gradients to its gradient. */
static void sink(const Geometry *g, const Block *b, int64_t first, int64_t keys, const float *slopes, float *to) {
    to += b->first * g->keys + first;
    for (int64_t j = 0; j < b->count; j += LANES)
        for (int64_t k = 0; k < keys; k += LANES) {
            vec square[LANES];
            const float *at = slopes + j / PANEL * DEEP * PANEL + k * PANEL + j % PANEL;
            for (int i = 0; i < LANES; i++, at += PANEL) square[i] = k + i < keys ? load(at) : (vec){0};
            transpose(square);
            for (int i = 0; i < LANES && j + i < b->count; i++) {
                float *row = to + (j + i) * g->keys + k;
                store_some(row, load_some(row, keys - k) + square[i], keys - k);
            }
        }
}

/* ---- dropped probabilities: as in dropout.c, with a row of words for each query, which begins a block of its own */

/* Factors of the probabilities of LANES queries from `row` on, for the four keys from 4 * fourth on. */
static void factors(const Geometry *g, int64_t row, int64_t fourth, uint32_t iteration, vec out[4]) {
    unsigned_bits word[4];
    for (int i = 0; i < LANES; i++) {
        const uint64_t at = (uint64_t)((row + i) * ((g->keys + 3) / 4) + fourth);
        word[0][i] = (uint32_t)at, word[1][i] = (uint32_t)(at >> 32);
    }
    philox((Stream){g->seed_low, g->seed_high, g->key, iteration}, word);
    for (int i = 0; i < 4; i++) out[i] = choose((bits)(word[i] >= g->limit), each(g->kept), (vec){0});
}

/* Multiplies a tile of probabilities with their factors. With `slopes`, the gradients of these products, which then
 * become the gradients of the scores: p (factor dp - the sum of dy y). */
static void drop(const Geometry *g, const Block *b, int64_t row, int64_t first, int64_t keys, uint32_t iteration,
                 float *probabilities, float *slopes, const float *sums) {
    for (int64_t j = 0; j < up(b->count, LANES); j += LANES)
        for (int64_t k = 0; k < keys; k += 4) {
            vec factor[4];
            factors(g, row + b->first + j, (first + k) / 4, iteration, factor);
            for (int64_t i = 0; i < 4 && k + i < keys; i++) {
                const int64_t at = j / PANEL * DEEP * PANEL + (k + i) * PANEL + j % PANEL;
                const vec p = load(probabilities + at);
                if (slopes) store(slopes + at, p * (load(slopes + at) * factor[i] - load(sums + j)));
                store(probabilities + at, p * factor[i]);
            }
        }
}

/* ---- products of tiles */

/* Copies the rows of a head, which then lie one behind the other. */
static void gather(int64_t rows, int64_t depth, const float *from, int64_t pitch, float *to) {
    for (int64_t i = 0; i < rows; i++) copy_run(depth, from + i * pitch, 0, to + i * depth);
}

/* Packs rows x depth, as panels along the depth; rows up to the next PANEL are zero. */
static void pack_rows(int64_t rows, int64_t depth, const float *from, int64_t pitch, float scale, float *panels) {
    const int64_t padded = up(rows, PANEL);
    for (int64_t i = 0; i < padded; i++)
        for (int64_t j = 0; j < up(depth, LANES); j += LANES) {
            const vec v = i < rows ? load_some(from + i * pitch + j, depth - j) * scale : (vec){0};
            store(panels + j / PANEL * HIGH * PANEL + i * PANEL + j % PANEL, v);
        }
    if (depth % PANEL && depth % PANEL <= LANES) /* the other half of the last panel */
        for (int64_t i = 0; i < padded; i++) store(panels + depth / PANEL * HIGH * PANEL + i * PANEL + LANES, (vec){0});
}

static void scaled(int64_t n, float scale, float *x) {
    for (int64_t i = 0; i < n; i += LANES) store(x + i, load(x + i) * scale);
}

/* keys x HIGH = rows (keys x depth) times turned (depth x queries) */
static void by_turned(const Geometry *g, int64_t keys, int64_t queries, const float *rows, const float *turned,
                      float *tile) {
    const Product p = {
        .runs = 1, .depth = g->depth, .at = ONE_RUN, .down = g->depth, .along = 1,
        .step = PANEL, .over = g->depth * PANEL, .pitch = PANEL, .aside = DEEP * PANEL,
        .panels = up(queries, PANEL) / PANEL,
    };
    multiply(p, keys, rows, turned, tile, 0);
}

/* sums (depth x queries) += rows' (depth x keys) times tile (keys x queries) */
static void add_turned(const Geometry *g, int64_t keys, int64_t queries, const float *rows, const float *tile,
                       float *sums) {
    const Product p = {
        .runs = 1, .depth = keys, .at = ONE_RUN, .down = 1, .along = g->depth,
        .step = PANEL, .over = DEEP * PANEL, .pitch = PANEL, .aside = g->depth * PANEL,
        .panels = up(queries, PANEL) / PANEL,
    };
    multiply(p, g->depth, rows, tile, sums, 1);
}

/* to (keys x depth, by rows) += tile (keys x queries) times panels (queries x depth) */
static void add_rows(const Geometry *g, int64_t keys, int64_t queries, const float *tile, const float *panels,
                     float *partial, float *to) {
    int64_t at[HIGH / PANEL + 1];
    const int64_t runs = up(queries, PANEL) / PANEL;
    for (int64_t r = 0; r < runs; r++) at[r] = r * DEEP * PANEL;
    const Product p = {
        .runs = runs, .depth = PANEL, .at = at, .down = PANEL, .along = 1, .step = PANEL, .over = HIGH * PANEL,
        .pitch = PANEL, .aside = DEEP * PANEL, .panels = across(g) / PANEL,
    };
    product(&p, keys, tile, panels, ZEROS, partial);
    for (int64_t k = 0; k < keys; k++, to += g->kv_pitch)
        for (int64_t j = 0; j < g->depth; j += LANES) {
            const vec more = load(partial + j / PANEL * DEEP * PANEL + k * PANEL + j % PANEL);
            store_some(to + j, load_some(to + j, g->depth - j) + more, g->depth - j);
        }
}

/* Stores depth x queries by rows of the queries; factor: of each query. */
static void store_turned(const Geometry *g, int64_t queries, const float *turned, const float *factor, float *to,
                         int64_t pitch) {
    for (int64_t q = 0; q < queries; q += LANES) {
        const float *from = turned + q / PANEL * g->depth * PANEL + q % PANEL;
        for (int64_t d = 0; d < g->depth; d += LANES) {
            vec square[LANES];
            for (int i = 0; i < LANES; i++)
                square[i] = d + i < g->depth ? load(from + (d + i) * PANEL) * load(factor + q) : (vec){0};
            transpose(square);
            for (int i = 0; i < LANES && q + i < queries; i++)
                store_some(to + (q + i) * pitch + d, square[i], g->depth - d);
        }
    }
}

/* ---- forward */

/* Turns scores into probabilities times each query's present sum, and corrects what earlier keys left. */
static void soften(const Geometry *g, int64_t keys, int64_t queries, const Space *s) {
    for (int64_t j = 0; j < queries; j += LANES) {
        float *column = s->scores + j / PANEL * DEEP * PANEL + j % PANEL;
        vec most = load(s->most + j), sum = {0};
        const vec before = most;
        for (int64_t k = 0; k < keys; k++) most = higher(load(column + k * PANEL), most);
        for (int64_t k = 0; k < keys; k++) {
            const vec p = falling_exponential(load(column + k * PANEL) - most);
            store(column + k * PANEL, p);
            sum += p;
        }
        const vec less = falling_exponential(before - most);
        store(s->most + j, most);
        store(s->all + j, fused(load(s->all + j), less, sum));
        float *sums = s->sums + j / PANEL * g->depth * PANEL + j % PANEL;
        for (int64_t d = 0; d < g->depth; d++) store(sums + d * PANEL, load(sums + d * PANEL) * less);
    }
}

/* Replaces each query's sum by its reciprocal, and its maximum by the logarithm of the sum of all e^score. */
static void finish(int64_t queries, const Space *s) {
    for (int64_t j = 0; j < queries; j++) {
        s->most[j] += logf(s->all[j]);
        s->all[j] = 1 / s->all[j];
    }
}

/* q k v (bias) -> y lse */
void attention_forward(const Geometry *g, const float *q, const float *k, const float *v, const float *bias,
                       const int64_t *iteration, float *y, float *lse, float *workspace) {
    const int64_t blocks = (g->queries + HIGH - 1) / HIGH, group = g->heads / g->kv_heads, y_pitch = g->heads * g->depth;
    int64_t floats;
    space(g, NULL, 0, &floats);
#pragma omp parallel for schedule(dynamic) num_threads(g->threads) \
    if (g->samples * g->queries * y_pitch > ALONE / 16)
    for (int64_t item = 0; item < g->samples * g->heads * blocks; item++) {
        const int64_t last = blocks - 1 - item % blocks, head = item / blocks % g->heads, n = item / blocks / g->heads;
        const Space s = space(g, workspace + omp_get_thread_num() * floats, 0, &(int64_t){0});
        const Block b = block_of(g, last * HIGH); /* those with most keys first */
        const int64_t token = n * g->queries + b.first, lanes = up(b.count, PANEL);
        const float *keys = k + n * g->keys * g->kv_pitch + head / group * g->depth;
        const float *values = v + n * g->keys * g->kv_pitch + head / group * g->depth;
        pack_turned(q + token * g->q_pitch + head * g->depth, g->q_pitch, g->depth, b.count, s.turned);
        scaled(g->depth * lanes, g->scale, s.turned);
        for (int64_t j = 0; j < lanes; j++) s.most[j] = LOWEST, s.all[j] = 0;
        clear_run(g->depth * lanes, 0, s.sums);
        for (int64_t first = b.low; first < b.high; first += DEEP) {
            const int64_t count = at_most(DEEP, b.high - first);
            gather(count, g->depth, keys + first * g->kv_pitch, g->kv_pitch, s.k);
            by_turned(g, count, b.count, s.k, s.turned, s.scores);
            if (bias) lift(g, &b, first, count, bias + bias_at(g, n, head), s.scores);
            hide(g, &b, first, count, s.scores);
            soften(g, count, b.count, &s);
            if (g->limit) drop(g, &b, (n * g->heads + head) * g->queries, first, count, (uint32_t)*iteration,
                              s.scores, NULL, NULL);
            gather(count, g->depth, values + first * g->kv_pitch, g->kv_pitch, s.v);
            add_turned(g, count, b.count, s.v, s.scores, s.sums);
        }
        finish(b.count, &s);
        store_turned(g, b.count, s.sums, s.all, y + token * y_pitch + head * g->depth, y_pitch);
        if (lse)
            for (int64_t i = 0; i < b.count; i++) lse[(token + i) * g->heads + head] = s.most[i];
    }
}

/* k v of the queries' tokens, keys and values that are kept, and places -> y, and k and v at their places. */
void attention_forward_kept(const Geometry *given, const float *q, const float *k, const float *v, const int32_t *places,
                            float *y, float *keys, float *values, float *workspace) {
    Geometry g = *given;
    const int64_t width = g.kv_heads * g.depth;
    for (int64_t n = 0; n < g.samples; n++)
        for (int64_t i = 0; i < g.queries; i++) {
            const int64_t from = (n * g.queries + i) * g.fresh_pitch, to = (n * g.keys + places[i]) * width;
            copy_run(width, k + from, 0, keys + to);
            copy_run(width, v + from, 0, values + to);
        }
    g.place = places[0];
    attention_forward(&g, q, keys, values, NULL, NULL, y, NULL, workspace);
}

/* ---- backward */

/* Leaves of each query its lse in s->most, and the sum of dy y in s->all. Lanes without a query see nothing. */
static void prepare(const Geometry *g, const Block *b, const float *y, const float *dy, const float *lse,
                    const Space *s) {
    for (int64_t i = 0; i < up(b->count, PANEL); i++) {
        vec sum = {0};
        float lanes[LANES], all = 0;
        for (int64_t d = 0; d < (i < b->count ? g->depth : 0); d += LANES) {
            const int64_t at = i * g->heads * g->depth + d;
            sum = fused(load_some(y + at, g->depth - d), load_some(dy + at, g->depth - d), sum);
        }
        store(lanes, sum);
        for (int j = 0; j < LANES; j++) all += lanes[j];
        s->most[i] = i < b->count ? lse[i * g->heads] : INFINITY;
        s->all[i] = all;
    }
}

/* Turns scores into probabilities. */
static void again(int64_t keys, int64_t lanes, const Space *s) {
    for (int64_t j = 0; j < lanes; j += LANES) {
        float *column = s->scores + j / PANEL * DEEP * PANEL + j % PANEL;
        const vec lse = load(s->most + j);
        for (int64_t k = 0; k < keys; k++) store(column + k * PANEL, falling_exponential(load(column + k * PANEL) - lse));
    }
}

/* Turns the probabilities' gradients into those of the scores: p (dp - the sum of dy y). */
static void slope(int64_t keys, int64_t lanes, const Space *s) {
    for (int64_t j = 0; j < lanes; j += LANES) {
        const int64_t at = j / PANEL * DEEP * PANEL + j % PANEL;
        const vec all = load(s->all + j);
        for (int64_t k = 0; k < keys; k++) {
            float *p = s->scores + at + k * PANEL, *dp = s->slopes + at + k * PANEL;
            store(dp, load(p) * (load(dp) - all));
        }
    }
}

/* Sets the lanes of a tile that have no query to 0: of keys and values that are not finite, theirs would not be. */
static void clear_lanes(int64_t keys, int64_t queries, float *tile) {
    for (int64_t q = queries; q < up(queries, PANEL); q++)
        for (int64_t k = 0; k < keys; k++) tile[q / PANEL * DEEP * PANEL + k * PANEL + q % PANEL] = 0;
}

/* One head's part of dk, dv and the bias's gradient, and its dq. */
static void of_head(const Geometry *g, int64_t n, int64_t head, const float *q, const float *keys, const float *values,
                    const float *y, const float *lse, const float *dy, const float *bias, uint32_t iteration, float *dq,
                    float *dk, float *dv, float *to_bias, const Space *s) {
    const int64_t y_pitch = g->heads * g->depth;
    for (int64_t i = 0; i < g->queries; i += HIGH) {
        const Block b = block_of(g, i);
        const int64_t token = n * g->queries + i, lanes = up(b.count, PANEL), at = token * y_pitch + head * g->depth;
        const float *from = q + token * g->q_pitch + head * g->depth;
        pack_turned(from, g->q_pitch, g->depth, b.count, s->turned);
        scaled(g->depth * lanes, g->scale, s->turned);
        pack_turned(dy + at, y_pitch, g->depth, b.count, s->turned_dy);
        if (dk) pack_rows(b.count, g->depth, from, g->q_pitch, g->scale, s->queries);
        if (dv) pack_rows(b.count, g->depth, dy + at, y_pitch, 1, s->dy);
        prepare(g, &b, y + at, dy + at, lse + token * g->heads + head, s);
        clear_run(g->depth * lanes, 0, s->sums);
        for (int64_t first = b.low; first < b.high; first += DEEP) {
            const int64_t count = at_most(DEEP, b.high - first), to = first * g->kv_pitch;
            gather(count, g->depth, keys + to, g->kv_pitch, s->k);
            gather(count, g->depth, values + to, g->kv_pitch, s->v);
            by_turned(g, count, b.count, s->k, s->turned, s->scores);
            if (bias) lift(g, &b, first, count, bias, s->scores);
            hide(g, &b, first, count, s->scores);
            again(count, lanes, s);
            by_turned(g, count, b.count, s->v, s->turned_dy, s->slopes);
            if (g->limit)
                drop(g, &b, (n * g->heads + head) * g->queries, first, count, iteration, s->scores, s->slopes, s->all);
            else
                slope(count, lanes, s);
            clear_lanes(count, b.count, s->scores);
            clear_lanes(count, b.count, s->slopes);
            if (to_bias) sink(g, &b, first, count, s->slopes, to_bias);
            if (dv) add_rows(g, count, b.count, s->scores, s->dy, s->tile, dv + to);
            if (dk) add_rows(g, count, b.count, s->slopes, s->queries, s->tile, dk + to);
            if (dq) add_turned(g, count, b.count, s->k, s->slopes, s->sums);
        }
        if (!dq) continue;
        for (int64_t j = 0; j < lanes; j++) s->all[j] = g->scale;
        store_turned(g, b.count, s->sums, s->all, dq + token * g->q_pitch + head * g->depth, g->q_pitch);
    }
}

/* The bias's gradients of pieces. Each item adds up a piece for itself: where heads of q share a bias that meet several
 * heads of k and v, for each of these. */
static int64_t sizes_of_bias(const Geometry *g) { return g->bias_samples * g->bias_heads * g->queries * g->keys; }
static int64_t pieces(const Geometry *g) { return up(g->samples / g->bias_samples, g->each) / g->each; }
static int64_t apart(const Geometry *g) { return g->bias_heads == 1 ? g->kv_heads : 1; }
int64_t attention_bias_bytes(const Geometry *g) { return 4 * pieces(g) * apart(g) * sizes_of_bias(g); }

static void sum_pieces(const Geometry *g, const float *partial, float *dbias) {
    const int64_t n = sizes_of_bias(g), count = pieces(g) * apart(g);
#pragma omp parallel for schedule(static) num_threads(g->threads) if (n * count > ALONE)
    for (int64_t i = 0; i < n; i += PIECE)
        for (int64_t j = i; j < at_most(i + PIECE, n); j++) {
            float sum = partial[j];
            for (int64_t k = 1; k < count; k++) sum += partial[k * n + j];
            dbias[j] = sum;
        }
}

/* q k v y lse dy (bias) -> dq dk dv dbias, those that are not NULL. A thread takes a head of k and v, with all heads of q
 * that meet it, of a piece of the samples that share a bias. */
void attention_backward(const Geometry *g, const float *q, const float *k, const float *v, const float *y,
                        const float *lse, const float *dy, const float *bias, const int64_t *iteration, float *dq,
                        float *dk, float *dv, float *dbias, float *workspace, float *partial) {
    const int64_t group = g->heads / g->kv_heads, square = g->queries * g->keys;
    int64_t floats;
    space(g, NULL, 1, &floats);
#pragma omp parallel for schedule(dynamic) num_threads(g->threads) \
    if (g->samples * g->queries * g->heads * g->depth > ALONE / 16)
    for (int64_t item = 0; item < pieces(g) * g->bias_samples * g->kv_heads; item++) {
        const int64_t kv_head = item % g->kv_heads, line = item / g->kv_heads;
        const int64_t own = line % g->bias_samples, piece = line / g->bias_samples;
        const Space s = space(g, workspace + omp_get_thread_num() * floats, 1, &(int64_t){0});
        float *sums = partial;
        if (dbias) {
            sums += (piece * apart(g) + (g->bias_heads == 1 ? kv_head : 0)) * sizes_of_bias(g);
            const int64_t shared = g->bias_heads == 1, heads = shared ? 1 : group;
            clear_run(heads * square, 0, sums + bias_at(g, own, shared ? 0 : kv_head * group));
        }
        for (int64_t i = piece * g->each; i < at_most((piece + 1) * g->each, g->samples / g->bias_samples); i++) {
            const int64_t n = i * g->bias_samples + own, at = n * g->keys * g->kv_pitch + kv_head * g->depth;
            float *to[] = {dk ? dk + at : NULL, dv ? dv + at : NULL};
            for (int j = 0; j < 2; j++)
                for (int64_t key = 0; to[j] && key < g->keys; key++) clear_run(g->depth, 0, to[j] + key * g->kv_pitch);
            for (int64_t head = kv_head * group; head < (kv_head + 1) * group; head++)
                of_head(g, n, head, q, k + at, v + at, y, lse, dy, bias ? bias + bias_at(g, n, head) : NULL,
                        g->limit ? (uint32_t)*iteration : 0, dq, to[0], to[1],
                        dbias ? sums + bias_at(g, n, head) : NULL, &s);
        }
    }
    if (dbias) sum_pieces(g, partial, dbias);
}
