/* LSTM and GRU, step by step. The weights of the hidden state are packed once; then each thread takes some of the
 * sequences through all steps, without waiting for the others. An element's sums go from the first product to the last,
 * and a sequence's numbers depend on it alone: so no bit depends on threads.
 */
#include <omp.h>
#include <stddef.h>

#include "floats.h"
#include "mirrored.h"
#include "pieces.h"
#include "product.h"
#include "runs.h"

typedef struct {
    int64_t steps, batch, width, gates, threads;
} Geometry;
MIRRORED(recurrent, Geometry)

static int64_t sums_of(const Geometry *g) { return g->gates * g->width; } /* of a sequence in a step */

/* tanh v, to two units: by its series' like for |v| <= 0.7, which was fitted, where the quotient would cancel. */
ALWAYS vec tangent_of(vec v) {
    const vec u = size_of(v), s = up_to(u, 1) * up_to(u, 1), e = falling_exponential(-2 * u);
    vec p = each(2.0432798e-3f);
    p = fused(p, s, each(-8.0946926e-3f));
    p = fused(p, s, each(2.1682406e-2f));
    p = fused(p, s, each(-5.3947136e-2f));
    p = fused(p, s, each(1.3333245e-1f));
    p = fused(p, s, each(-3.3333331e-1f));
    const vec large = (1 - e) / (1 + e), value = choose(u > 0.7f, large, fused(u * s, p, u));
    return (vec)((bits)value | ((bits)v & INT32_MIN));
}

ALWAYS vec logistic(vec v) {
    vec rest;
    return logistic_of(v, &rest);
}

/* ---- the workspace: packed weights, what the hidden state brings to each sequence, and LSTM's cells */

typedef struct {
    float *panels;
    float *sums;  /* batch x pitch */
    float *cells; /* batch x up(width, LANES) */
    int64_t pitch;
} Space;

static Space space(const Geometry *g, int64_t depth, int64_t columns, float *at, int64_t *floats) {
    const int64_t pitch = up(columns, PANEL), packed = depth * pitch, sums = g->batch * pitch;
    *floats = packed + sums + g->batch * up(g->width, LANES);
    return (Space){at, at + packed, at + packed + sums, pitch};
}
static Space forward_space(const Geometry *g, float *at, int64_t *floats) {
    return space(g, g->width, sums_of(g), at, floats);
}
static Space backward_space(const Geometry *g, float *at, int64_t *floats) {
    return space(g, sums_of(g), g->width, at, floats);
}

int64_t recurrent_forward_bytes(const Geometry *g) {
    int64_t floats;
    forward_space(g, NULL, &floats);
    return 4 * floats;
}
int64_t recurrent_backward_bytes(const Geometry *g) {
    int64_t floats;
    backward_space(g, NULL, &floats);
    return 4 * floats;
}

/* Some of the sequences: [first, first + count). */
typedef struct {
    int64_t first, count;
} Share;

static Share share(const Geometry *g) {
    const int64_t all = omp_get_num_threads(), own = omp_get_thread_num(), first = own * g->batch / all;
    return (Share){first, (own + 1) * g->batch / all - first};
}

/* sums (+)= rows of the left matrix (depth numbers each) times the packed one */
static void multiply_rows(const Space *s, Share own, int64_t depth, const float *left, int accumulate) {
    const Product p = {
        .depth = depth, .down = depth, .along = 1, .step = PANEL, .over = depth * PANEL, .pitch = s->pitch,
        .aside = PANEL, .panels = s->pitch / PANEL,
    };
    multiply(p, own.count, left + own.first * depth, s->panels, s->sums + own.first * s->pitch, accumulate);
}

static void clear_rows(const Space *s, Share own) {
    memset(s->sums + own.first * s->pitch, 0, own.count * s->pitch * sizeof *s->sums);
}

/* What a step meets of one sequence. */
typedef struct {
    int64_t at;   /* of its step and sequence, among all */
    float factor; /* cont */
} Place;

static Place place(const Geometry *g, int64_t step, int64_t n, const float *cont) {
    const int64_t at = step * g->batch + n;
    return (Place){at, cont ? cont[at] : 1};
}

/* The state before a step: of the step before, or the first one, which may be NULL. */
static const float *before(const Geometry *g, int64_t step, const float *values, const float *first) {
    return step ? values + (step - 1) * g->batch * g->width : first;
}

/* The products of the state before with the weights: of none, zero. */
static void meet(const Geometry *g, const Space *s, Share own, int64_t step, const float *y, const float *h_0) {
    const float *h = before(g, step, y, h_0);
    if (h)
        multiply_rows(s, own, g->width, h, 0);
    else
        clear_rows(s, own);
}

static void copy_last(const Geometry *g, Share own, const float *y, float *to) {
    const int64_t at = own.first * g->width;
    if (to) copy_run(own.count * g->width, y + (g->steps - 1) * g->batch * g->width + at, 0, to + at);
}

#define EACH_VECTOR(g) for (int64_t j = 0, n_ = (g)->width; j < n_; j += LANES)
#define SOME(p) load_some((p) + j, n_ - j)
#define STORE(p, v) store_some((p) + j, v, n_ - j)
#define PARALLEL \
    _Pragma("omp parallel num_threads(at_most(g->threads, g->batch)) if (g->steps * g->batch * g->width > ALONE / 16)")

/* Packs the columns of w', or of w; the threads of a team share them, and wait. */
static void pack_weights(const Geometry *g, const float *w, int turned, float *panels) {
    const int64_t depth = turned ? g->width : sums_of(g), columns = turned ? sums_of(g) : g->width;
#pragma omp for schedule(static)
    for (int64_t j = 0; j < columns; j += PANEL) {
        if (turned)
            pack_turned(w + j * depth, depth, depth, at_most(PANEL, columns - j), panels + j * depth);
        else
            pack(w + j, columns, depth, at_most(PANEL, columns - j), panels + j * depth);
    }
}

/* ---- LSTM, whose gates are i, f, o, g */

static void lstm_step(int64_t d, const float *z, const float *sums, float factor, int remembers, float *c, float *y,
                      float *gates, float *cells) {
    const Geometry one = {.width = d};
    EACH_VECTOR(&one) {
        vec v[4];
        for (int k = 0; k < 4; k++) v[k] = SOME(z + k * d) + factor * SOME(sums + k * d);
        for (int k = 0; k < 3; k++) v[k] = logistic(v[k]);
        v[3] = tangent_of(v[3]);
        vec cell = v[0] * v[3];
        if (remembers) cell = fused(factor * v[1], load(c + j), cell);
        store(c + j, cell);
        STORE(y, v[2] * tangent_of(cell));
        if (!gates) continue;
        for (int k = 0; k < 4; k++) STORE(gates + k * d, v[k]);
        STORE(cells, cell);
    }
}

/* A state, or gradients of one, as rows of the workspace: zero if there is none. */
static void begin(const Geometry *g, Share own, const float *given, float *rows, int64_t pitch) {
    for (int64_t n = own.first; n < own.first + own.count; n++)
        EACH_VECTOR(g) store(rows + n * pitch + j, given ? SOME(given + n * g->width) : (vec){0});
}

/* The same back from there, if they are wanted. */
static void end(const Geometry *g, Share own, const float *rows, int64_t pitch, float *to) {
    for (int64_t n = own.first; to && n < own.first + own.count; n++)
        copy_run(g->width, rows + n * pitch, 0, to + n * g->width);
}

/* z w (cont h_0 c_0) -> y (gates cells h_T c_T). gates may be z. */
void recurrent_lstm(const Geometry *g, const float *z, const float *w, const float *cont, const float *h_0,
                    const float *c_0, float *y, float *gates, float *cells, float *h_T, float *c_T, float *workspace) {
    int64_t floats;
    const int64_t d = g->width, across = up(d, LANES);
    const Space s = forward_space(g, workspace, &floats);
    PARALLEL {
        pack_weights(g, w, 1, s.panels);
        const Share own = share(g);
        begin(g, own, c_0, s.cells, across);
        for (int64_t t = 0; t < g->steps; t++) {
            const float *factors = t || h_0 ? cont : NULL;
            meet(g, &s, own, t, y, h_0);
            for (int64_t n = own.first; n < own.first + own.count; n++) {
                const Place at = place(g, t, n, factors);
                lstm_step(d, z + at.at * 4 * d, s.sums + n * s.pitch, at.factor, t || c_0, s.cells + n * across,
                          y + at.at * d, gates ? gates + at.at * 4 * d : NULL, cells ? cells + at.at * d : NULL);
            }
        }
        copy_last(g, own, y, h_T);
        end(g, own, s.cells, across, c_T);
    }
}

/* c_before: NULL if it is zero; dy: NULL if there is none; dh and dc: those of behind the step */
static void lstm_step_back(int64_t d, const float *gates, const float *c, const float *c_before, float factor,
                           const float *dy, const float *dh, float *dc, float *dz) {
    const Geometry one = {.width = d};
    EACH_VECTOR(&one) {
        vec v[4];
        for (int k = 0; k < 4; k++) v[k] = SOME(gates + k * d);
        const vec tangent = tangent_of(SOME(c)), arriving = load(dh + j) + (dy ? SOME(dy) : (vec){0});
        const vec cell = fused(arriving * v[2], 1 - tangent * tangent, load(dc + j));
        STORE(dz, cell * v[3] * v[0] * (1 - v[0]));
        STORE(dz + d, c_before ? cell * factor * SOME(c_before) * v[1] * (1 - v[1]) : (vec){0});
        STORE(dz + 2 * d, arriving * tangent * v[2] * (1 - v[2]));
        STORE(dz + 3 * d, cell * v[0] * (1 - v[3] * v[3]));
        store(dc + j, factor * cell * v[1]);
    }
}

static void scale_row(const Geometry *g, float factor, float *row) {
    EACH_VECTOR(g) store(row + j, load(row + j) * factor);
}

/* gates cells w (cont c_0 dy dh_T dc_T) -> dz (dh_0 dc_0). dz may be gates. */
void recurrent_lstm_backward(const Geometry *g, const float *gates, const float *cells, const float *w,
                             const float *cont, const float *c_0, const float *dy, const float *dh_T,
                             const float *dc_T, float *dz, float *dh_0, float *dc_0, float *workspace) {
    int64_t floats;
    const int64_t d = g->width, across = up(d, LANES);
    const Space s = backward_space(g, workspace, &floats);
    PARALLEL {
        pack_weights(g, w, 0, s.panels);
        const Share own = share(g);
        begin(g, own, dh_T, s.sums, s.pitch);
        begin(g, own, dc_T, s.cells, across);
        for (int64_t t = g->steps - 1; t >= 0; t--) {
            const float *c_before = before(g, t, cells, c_0);
            for (int64_t n = own.first; n < own.first + own.count; n++) {
                const Place at = place(g, t, n, cont);
                lstm_step_back(d, gates + at.at * 4 * d, cells + at.at * d, c_before ? c_before + n * d : NULL,
                               at.factor, dy ? dy + at.at * d : NULL, s.sums + n * s.pitch, s.cells + n * across,
                               dz + at.at * 4 * d);
            }
            multiply_rows(&s, own, 4 * d, dz + t * g->batch * 4 * d, 0);
            for (int64_t n = own.first; cont && n < own.first + own.count; n++)
                scale_row(g, place(g, t, n, cont).factor, s.sums + n * s.pitch);
        }
        end(g, own, s.sums, s.pitch, dh_0);
        end(g, own, s.cells, across, dc_0);
    }
}

/* ---- GRU, whose gates are z (here u), r, n */

/* h: NULL if it is zero */
static void gru_step(int64_t d, const float *z, const float *sums, const float *b, float factor, const float *h,
                     float *y, float *gates, float *hidden) {
    const Geometry one = {.width = d};
    EACH_VECTOR(&one) {
        vec of_x[3], of_h[3];
        for (int k = 0; k < 3; k++) {
            of_x[k] = SOME(z + k * d);
            of_h[k] = factor * SOME(sums + k * d) + SOME(b + k * d);
        }
        const vec u = logistic(of_x[0] + of_h[0]), r = logistic(of_x[1] + of_h[1]);
        const vec n = tangent_of(of_x[2] + r * of_h[2]);
        STORE(y, (1 - u) * n + (h ? u * factor * SOME(h) : (vec){0}));
        if (!gates) continue;
        STORE(gates, u);
        STORE(gates + d, r);
        STORE(gates + 2 * d, n);
        STORE(hidden, of_h[2]);
    }
}

/* z w b (cont h_0) -> y (gates hidden h_T). gates may be z. */
void recurrent_gru(const Geometry *g, const float *z, const float *w, const float *b, const float *cont,
                   const float *h_0, float *y, float *gates, float *hidden, float *h_T, float *workspace) {
    int64_t floats;
    const int64_t d = g->width;
    const Space s = forward_space(g, workspace, &floats);
    PARALLEL {
        pack_weights(g, w, 1, s.panels);
        const Share own = share(g);
        for (int64_t t = 0; t < g->steps; t++) {
            const float *h = before(g, t, y, h_0), *factors = h ? cont : NULL;
            meet(g, &s, own, t, y, h_0);
            for (int64_t n = own.first; n < own.first + own.count; n++) {
                const Place at = place(g, t, n, factors);
                gru_step(d, z + at.at * 3 * d, s.sums + n * s.pitch, b, at.factor, h ? h + n * d : NULL,
                         y + at.at * d, gates ? gates + at.at * 3 * d : NULL, hidden ? hidden + at.at * d : NULL);
            }
        }
        copy_last(g, own, y, h_T);
    }
}

/* dh: the gradient of behind the step, which becomes the part of that of before that takes no product */
static void gru_step_back(int64_t d, const float *gates, const float *hidden, const float *h, float factor,
                          const float *dy, float *dh, float *dz, float *dhidden) {
    const Geometry one = {.width = d};
    EACH_VECTOR(&one) {
        const vec u = SOME(gates), r = SOME(gates + d), n = SOME(gates + 2 * d);
        const vec arriving = load(dh + j) + (dy ? SOME(dy) : (vec){0});
        const vec dn = arriving * (1 - u) * (1 - n * n);
        const vec du = arriving * ((h ? factor * SOME(h) : (vec){0}) - n) * u * (1 - u);
        const vec dr = dn * SOME(hidden) * r * (1 - r);
        STORE(dz, du);
        STORE(dz + d, dr);
        STORE(dz + 2 * d, dn);
        STORE(dhidden, du);
        STORE(dhidden + d, dr);
        STORE(dhidden + 2 * d, dn * r);
        store(dh + j, arriving * u);
    }
}

/* gates hidden w y (cont h_0 dy dh_T) -> dz dhidden (dh_0). dz may be gates. */
void recurrent_gru_backward(const Geometry *g, const float *gates, const float *hidden, const float *w, const float *y,
                            const float *cont, const float *h_0, const float *dy, const float *dh_T, float *dz,
                            float *dhidden, float *dh_0, float *workspace) {
    int64_t floats;
    const int64_t d = g->width;
    const Space s = backward_space(g, workspace, &floats);
    PARALLEL {
        pack_weights(g, w, 0, s.panels);
        const Share own = share(g);
        clear_rows(&s, own); /* also beyond the width, where sums are added to */
        begin(g, own, dh_T, s.sums, s.pitch);
        for (int64_t t = g->steps - 1; t >= 0; t--) {
            const float *h = before(g, t, y, h_0);
            for (int64_t n = own.first; n < own.first + own.count; n++) {
                const Place at = place(g, t, n, cont);
                gru_step_back(d, gates + at.at * 3 * d, hidden + at.at * d, h ? h + n * d : NULL, at.factor,
                              dy ? dy + at.at * d : NULL, s.sums + n * s.pitch, dz + at.at * 3 * d,
                              dhidden + at.at * 3 * d);
            }
            multiply_rows(&s, own, 3 * d, dhidden + t * g->batch * 3 * d, 1);
            for (int64_t n = own.first; cont && n < own.first + own.count; n++)
                scale_row(g, place(g, t, n, cont).factor, s.sums + n * s.pitch);
        }
        end(g, own, s.sums, s.pitch, dh_0);
    }
}

/* ---- y (cont h_0) -> the state before each step */

void recurrent_previous(const Geometry *g, const float *y, const float *cont, const float *h_0, float *to) {
#pragma omp parallel for schedule(static) num_threads(g->threads) if (g->steps * g->batch * g->width > ALONE)
    for (int64_t i = 0; i < g->steps * g->batch; i++) {
        const int64_t t = i / g->batch, n = i % g->batch;
        const float *h = before(g, t, y, h_0);
        const float factor = place(g, t, n, cont).factor;
        EACH_VECTOR(g) STORE(to + i * g->width, h ? factor * SOME(h + n * g->width) : (vec){0});
    }
}
