/* LayerNorm, RMSNorm, MVN and Normalize: each row is shifted by its mean and divided by its size.
 *
 * Element k of row (o, i) lies at (o * length + k) * inner + i. If inner is 1, a row is one piece of memory, and the
 * lanes of a vector are neighbours in it; their sums are added up at the end. Otherwise the lanes are neighbouring
 * rows, and each has sums of its own.
 *
 * The mean is the first element plus the mean of the distances from it, and the variance is taken from the distances
 * to the mean. So both are right however far from 0 a row is. A sum goes over pieces of SOME elements in float32, then
 * over the pieces. The order depends on the shape alone.
 *
 * Of tensors of 16 bits, a thread has float32 copies of the row that it works on, and the same arithmetic.
 */
#include <math.h>
#include <omp.h>

#include "halves.h"
#include "mirrored.h"
#include "pieces.h"

enum { VARIANCE, DEVIATION, NORM, NONE }; /* the divisor */

typedef struct {
    int64_t outer, length, inner;
    int64_t centred, divisor, threads;
    int64_t format; /* of tensors of 16 bits */
    double eps;
} Geometry;
MIRRORED(row_norm, Geometry)

enum { SOME = 256 }; /* vectors whose sum is taken at once */

typedef struct {
    int64_t n, apart, lanes; /* vectors of a row, elements between them; lanes in use of each but a row's last */
    int64_t length;          /* elements of a row, in one lane or over all of them */
    int together;            /* whether the lanes are one row's */
} Shape;

static Shape shape_of(const Geometry *g, int64_t i) {
    if (g->inner == 1) return (Shape){up(g->length, LANES) / LANES, LANES, LANES, g->length, 1};
    return (Shape){g->length, g->inner, at_most(LANES, g->inner - i), g->length, 0};
}

/* Lanes in use of vector k. */
ALWAYS int64_t lanes(Shape s, int64_t k) { return s.together ? s.length - k * LANES : s.lanes; }
ALWAYS vec at(Shape s, const float *p, int64_t k) { return load_some(p + k * s.apart, lanes(s, k)); }
ALWAYS void set(Shape s, float *p, int64_t k, vec v) { store_some(p + k * s.apart, v, lanes(s, k)); }
/* v, and zero in the lanes that are not in use. */
ALWAYS vec used(Shape s, int64_t k, vec v) {
    const int64_t n = lanes(s, k);
    if (n >= LANES) return v;
    for (int64_t j = n; j < LANES; j++) v[j] = 0;
    return v;
}
ALWAYS vec all_of(Shape s, vec v) {
    if (!s.together) return v;
    float sum = v[0];
    for (int j = 1; j < LANES; j++) sum += v[j];
    return (vec){0} + sum;
}
ALWAYS vec root(vec v) {
    for (int j = 0; j < LANES; j++) v[j] = sqrtf(v[j]);
    return v;
}
/* gamma or beta of vector k */
ALWAYS vec parameter(Shape s, const float *p, int64_t k) { return s.together ? at(s, p, k) : (vec){0} + p[k]; }
/* A number of each row in use, in the lanes of the row. */
ALWAYS vec per_row(Shape s, const float *p) { return s.together ? (vec){0} + *p : load_some(p, s.lanes); }
ALWAYS void set_per_row(Shape s, float *p, vec v) { store_some(p, v, s.together ? 1 : s.lanes); }

/* The sum of TERM, an expression of the vector's number k, over a row; zero in lanes that are not in use. */
#define SUM(into, s, TERM)                                                            \
    do {                                                                              \
        vec total_ = {0};                                                             \
        for (int64_t from_ = 0; from_ < (s).n; from_ += SOME) {                       \
            vec part_ = {0};                                                          \
            for (int64_t k = from_; k < at_most(from_ + SOME, (s).n); k++) part_ += used(s, k, TERM); \
            total_ += part_;                                                          \
        }                                                                             \
        into = all_of(s, total_);                                                     \
    } while (0)

/* A function that is not inlined has the same bits wherever it is called: a compiler fuses by the code around. */
#define ALIKE static __attribute__((noinline))

/* x (gamma beta) -> y (inverse) (mean); y may be x. The pointers are at the row's first elements. */
ALIKE void row_forward(const Geometry *g, Shape s, const float *x, const float *gamma, const float *beta, float *y,
                       float *inverse, float *mean) {
    const vec zero = {0}, n = zero + (float)s.length;
    vec first = zero, middle = zero, scale = zero + 1.0f;
    if (g->centred) {
        first = s.together ? zero + x[0] : load_some(x, s.lanes);
        SUM(middle, s, at(s, x, k) - first);
        middle /= n;
    }
    if (g->divisor != NONE) {
        vec squares;
        SUM(squares, s, (at(s, x, k) - first - middle) * (at(s, x, k) - first - middle));
        const vec eps = zero + (float)g->eps;
        if (g->divisor == DEVIATION)
            scale = 1.0f / (root(squares / n) + eps);
        else
            scale = 1.0f / root((g->divisor == NORM ? squares : squares / n) + eps);
    }
    for (int64_t k = 0; k < s.n; k++) {
        const vec v = (at(s, x, k) - first - middle) * scale;
        set(s, y, k, gamma ? v * parameter(s, gamma, k) + parameter(s, beta, k) : v);
    }
    if (mean) set_per_row(s, mean, first + middle);
    if (inverse) set_per_row(s, inverse, scale);
}

/* x dy inverse mean gamma -> dx, or y dy inverse -> dx where mean is null, or dy -> dx where inverse is null, too; dx
 * may be x or dy. */
ALIKE void row_backward(const Geometry *g, Shape s, const float *x, const float *dy, const float *inverse,
                        const float *mean, const float *gamma, float *dx) {
    const vec zero = {0}, n = zero + (float)s.length;
    const vec scale = inverse ? per_row(s, inverse) : zero + 1.0f, shift = mean ? per_row(s, mean) : zero;
    const vec stretch = mean ? scale : zero + 1.0f; /* y is normalized already */
    vec along = zero, level = zero;
#define GRADIENT (gamma ? at(s, dy, k) * parameter(s, gamma, k) : at(s, dy, k))
#define NORMALIZED ((at(s, x, k) - shift) * stretch)
    if (g->centred) {
        SUM(level, s, GRADIENT);
        level /= n;
    }
    if (inverse) {
        SUM(along, s, GRADIENT * NORMALIZED);
        if (g->divisor != NORM) along /= n;
        if (g->divisor == DEVIATION) {
            /* deviation / (deviation + eps); 0 where all elements are equal, and the normalized ones are 0 */
            const vec share = 1.0f - scale * (float)g->eps;
            along = choose(share <= 0, zero, along / share);
        }
    }
    for (int64_t k = 0; k < s.n; k++) {
        const vec away = GRADIENT - level;
        set(s, dx, k, inverse ? (away - NORMALIZED * along) * scale : away);
    }
}

#define EACH_ROW(CALL)                                                                                             \
    const int64_t blocks = up(g->inner, LANES) / LANES, step = g->inner == 1 ? 1 : LANES;                          \
    const int64_t size = g->outer * g->length * g->inner;                                                          \
    _Pragma("omp parallel for schedule(static) num_threads(g->threads) if (size > ALONE / 4)")                     \
    for (int64_t item = 0; item < g->outer * blocks; item++) {                                                     \
        const int64_t o = item / blocks, i = item % blocks * step;                                                 \
        const int64_t e = o * g->length * g->inner + i, r = o * g->inner + i; /* element, row */                    \
        const Shape s = shape_of(g, i);                                                                            \
        CALL;                                                                                                      \
    }

void row_norm_forward(const Geometry *g, const float *x, const float *gamma, const float *beta, float *y,
                      float *inverse, float *mean) {
    EACH_ROW(row_forward(g, s, x + e, gamma, beta, y + e, inverse ? inverse + r : NULL, mean ? mean + r : NULL))
}

void row_norm_backward(const Geometry *g, const float *x, const float *dy, const float *inverse, const float *mean,
                       const float *gamma, float *dx) {
    EACH_ROW(row_backward(g, s, x ? x + e : NULL, dy + e, inverse ? inverse + r : NULL, mean ? mean + r : NULL, gamma,
                          dx + e))
}

/* The number of a row, and the thread's copies of it. */
#define EACH_HALF_ROW(COPIES, CALL)                                                                                \
    const int64_t n = g->length;                                                                                   \
    const Shape s = shape_of(g, 0);                                                                                \
    _Pragma("omp parallel for schedule(static) num_threads(g->threads) if (g->outer * n > ALONE / 4)")             \
    for (int64_t r = 0; r < g->outer; r++) {                                                                       \
        float *const copy = workspace + omp_get_thread_num() * COPIES * n;                                         \
        CALL;                                                                                                      \
    }

void row_norm_forward_half(const Geometry *g, const uint16_t *x, const float *gamma, const float *beta, uint16_t *y,
                           float *inverse, float *mean, float *workspace) {
    EACH_HALF_ROW(1, {
        widen(g->format, n, x + r * n, copy);
        row_forward(g, s, copy, gamma, beta, copy, inverse ? inverse + r : NULL, mean ? mean + r : NULL);
        narrow(g->format, n, copy, y + r * n);
    })
}

void row_norm_backward_half(const Geometry *g, const uint16_t *x, const uint16_t *dy, const float *inverse,
                            const float *mean, const float *gamma, uint16_t *dx, float *workspace) {
    EACH_HALF_ROW(2, {
        float *const slope = copy + n;
        if (x) widen(g->format, n, x + r * n, copy);
        widen(g->format, n, dy + r * n, slope);
        row_backward(g, s, x ? copy : NULL, slope, inverse ? inverse + r : NULL, mean ? mean + r : NULL, gamma, slope);
        narrow(g->format, n, slope, dx + r * n);
    })
}

enum { MOST = 64 };       /* most pieces of rows */
enum { LEAST = 1 << 13 }; /* least elements of a piece; the last may have fewer */

static int64_t outer_of_piece(const Geometry *g) {
    const int64_t row = g->length * g->inner, by_number = up(g->outer, MOST) / MOST, by_size = up(LEAST, row) / row;
    return by_number > by_size ? by_number : by_size;
}
static int64_t pieces(const Geometry *g) { return up(g->outer, outer_of_piece(g)) / outer_of_piece(g); }

int64_t row_norm_filter_bytes(const Geometry *g) { return 4 * 2 * g->length * pieces(g); }

/* Adds the rows of one outer index to dgamma and dbeta. */
ALIKE void add_rows(const Geometry *g, const float *x, const float *dy, const float *inverse, const float *mean,
                    float *restrict dgamma, float *restrict dbeta) {
    if (g->inner == 1) {
        const float middle = *mean, scale = *inverse;
        for (int64_t k = 0; k < g->length; k++) {
            dgamma[k] += dy[k] * ((x[k] - middle) * scale);
            dbeta[k] += dy[k];
        }
        return;
    }
    for (int64_t k = 0; k < g->length; k++, x += g->inner, dy += g->inner) {
        float product = 0, sum = 0;
        for (int64_t i = 0; i < g->inner; i++) {
            product += dy[i] * ((x[i] - mean[i]) * inverse[i]);
            sum += dy[i];
        }
        dgamma[k] += product;
        dbeta[k] += sum;
    }
}

/* For each piece of rows: its sums in the workspace, set to 0, and ADD for each outer index o. */
#define EACH_PIECE(ADD)                                                                                            \
    const int64_t step = outer_of_piece(g), count = pieces(g), row = g->length * g->inner;                         \
    _Pragma("omp parallel for schedule(static) num_threads(g->threads) if (g->outer * row > ALONE / 4)")           \
    for (int64_t piece = 0; piece < count; piece++) {                                                              \
        float *const dgamma_ = workspace + 2 * g->length * piece, *const dbeta_ = dgamma_ + g->length;             \
        memset(dgamma_, 0, 8 * g->length);                                                                         \
        for (int64_t o = piece * step; o < at_most(g->outer, (piece + 1) * step); o++) ADD;                        \
    }

/* The sums of the pieces, in their order. */
static void add_pieces(const Geometry *g, const float *sums, float *dgamma, float *dbeta) {
    const int64_t n = g->length;
    memset(dgamma, 0, 4 * n);
    memset(dbeta, 0, 4 * n);
    for (int64_t piece = 0; piece < pieces(g); piece++)
        for (int64_t k = 0; k < n; k++) {
            dgamma[k] += sums[2 * n * piece + k];
            dbeta[k] += sums[2 * n * piece + n + k];
        }
}

/* x dy inverse mean -> dgamma dbeta. */
void row_norm_filter(const Geometry *g, const float *x, const float *dy, const float *inverse, const float *mean,
                     float *dgamma, float *dbeta, float *workspace) {
    EACH_PIECE(add_rows(g, x + o * row, dy + o * row, inverse + o * g->inner, mean + o * g->inner, dgamma_, dbeta_))
    add_pieces(g, workspace, dgamma, dbeta);
}

int64_t row_norm_filter_half_bytes(const Geometry *g) { return 4 * 2 * g->length * (pieces(g) + g->threads); }

void row_norm_filter_half(const Geometry *g, const uint16_t *x, const uint16_t *dy, const float *inverse,
                          const float *mean, float *dgamma, float *dbeta, float *workspace) {
    const int64_t n = g->length;
    float *const copies = workspace + 2 * n * pieces(g);
    EACH_PIECE({
        float *const copy = copies + omp_get_thread_num() * 2 * n;
        widen(g->format, n, x + o * n, copy);
        widen(g->format, n, dy + o * n, copy + n);
        add_rows(g, copy, copy + n, inverse + o, mean + o, dgamma_, dbeta_);
    })
    add_pieces(g, workspace, dgamma, dbeta);
}
