/* Pixels on their way from a decoder to a net: images of bytes in another size, and their values as floats.
 *
 * `pixels_resize` is the bilinear filter that Pillow has, bit for bit: weights are a triangle, which widens where an
 * image shrinks, in whole multiples of 2^-22; columns are resized first, then rows, with bytes between. Both functions
 * run on the calling thread alone.
 */
#include <math.h>
#include <stdint.h>
#include <string.h>

enum { BITS = 22 }; /* of a weight behind the point: 32 - 8 of a byte - 2 to spare */
enum { HALF = 1 << (BITS - 1) };

/* An axis: the n output places are spread over [from, to) of `size` input places. */
typedef struct {
    int64_t size, from, to, n;
} Axis;

static int64_t at_most(int64_t a, int64_t b) { return a < b ? a : b; }

/* The most weights of an output place. */
static int64_t taps(const Axis *a) {
    const double scale = (double)(a->to - a->from) / a->n;
    return (int64_t)ceil(scale < 1 ? 1 : scale) * 2 + 1;
}

/* The input places that have a weight for output place i: [begin, end). `wide`: half the triangle's base. */
static void reach(const Axis *a, int64_t i, double scale, double wide, int64_t *begin, int64_t *end) {
    const double middle = a->from + (i + 0.5) * scale;
    const int64_t from = (int64_t)(middle - wide + 0.5), to = (int64_t)(middle + wide + 0.5);
    *begin = from < 0 ? 0 : from, *end = at_most(to, a->size);
}

/* Writes for each output place the first input place and the weights from there on, `taps` apart. Returns how many
 * weights each has: where a place needs fewer, the others are 0. `real`: room for the weights of one place. */
static int64_t weigh(const Axis *a, double *real, int32_t *first, int32_t *weights) {
    const double scale = (double)(a->to - a->from) / a->n, wide = scale < 1 ? 1 : scale;
    int64_t begin, end, most = 0;
    for (int64_t i = 0; i < a->n; i++) {
        reach(a, i, scale, wide, &begin, &end);
        most = end - begin > most ? end - begin : most;
    }
    memset(weights, 0, a->n * taps(a) * sizeof *weights);
    for (int64_t i = 0; i < a->n; i++, weights += taps(a)) {
        reach(a, i, scale, wide, &begin, &end);
        const double middle = a->from + (i + 0.5) * scale;
        double total = 0;
        for (int64_t k = begin; k < end; k++) {
            const double away = fabs((k - middle + 0.5) * (1 / wide));
            real[k - begin] = away < 1 ? 1 - away : 0;
            total += real[k - begin];
        }
        first[i] = at_most(begin, a->size - most);
        for (int64_t k = begin; k < end; k++) {
            const double weight = total != 0 ? real[k - begin] / total : real[k - begin];
            weights[k - first[i]] = (int32_t)(0.5 + weight * (1 << BITS));
        }
    }
    return most;
}

/* A sum of bytes times weights, which are not negative and add up to 1, is a byte: it needs no limits. */

typedef int32_t four __attribute__((vector_size(16)));

/* Four bytes as numbers, and the low bytes of four numbers. */
#ifdef __SSE4_1__
#include <immintrin.h>
static inline four widened(int32_t bytes) { return (four)_mm_cvtepu8_epi32(_mm_cvtsi32_si128(bytes)); }
static inline int32_t narrowed(four v) {
    return _mm_cvtsi128_si32(_mm_shuffle_epi8((__m128i)v, _mm_set1_epi32(0x0c080400)));
}
#else
static inline four widened(int32_t bytes) {
    return (four){bytes & 255, bytes >> 8 & 255, bytes >> 16 & 255, bytes >> 24 & 255};
}
static inline int32_t narrowed(four v) { return v[0] | v[1] << 8 | v[2] << 16 | (int32_t)((uint32_t)v[3] << 24); }
#endif

/* One row of pixels of c channels to another of a->n pixels, by `count` weights each. `past`: whether a byte behind
 * either row may be read, and written. */
static inline __attribute__((always_inline)) void row(const Axis *a, int64_t c, const int32_t *first, const int64_t count,
                                                      const int32_t *weights, const uint8_t *x, int past, uint8_t *y) {
    const int64_t apart = taps(a);
    for (int64_t i = 0; i < a->n; i++, y += c) {
        const uint8_t *from = x + first[i] * c;
        const int32_t *w = weights + i * apart;
        if (c == 3 && (past || (first[i] + count < a->size && i + 1 < a->n))) {
            four sum = {HALF, HALF, HALF, HALF};
            for (int64_t k = 0; k < count; k++) {
                int32_t pixel;
                memcpy(&pixel, from + 3 * k, 4); /* the fourth belongs to the next pixel, and is not used */
                sum += w[k] * widened(pixel);
            }
            const int32_t pixel = narrowed(sum >> BITS);
            memcpy(y, &pixel, 4); /* the fourth is overwritten by the next pixel */
            continue;
        }
        for (int64_t j = 0; j < c; j++) {
            int32_t sum = HALF;
            for (int64_t k = 0; k < count; k++) sum += w[k] * from[k * c + j];
            y[j] = sum >> BITS;
        }
    }
}

static int64_t axis_bytes(const Axis *a) { return 8 * taps(a) + 4 * a->n * (1 + taps(a)); }
static int64_t up(int64_t n) { return (n + 7) / 8 * 8; }

/* The bytes of workspace that `pixels_resize` takes. */
int64_t pixels_resize_bytes(const Axis *down, const Axis *across, int64_t c) {
    return up(axis_bytes(down)) + up(axis_bytes(across)) + 4 * across->n * c + down->size * across->n * c;
}

/* An image x of bytes, whose rows of pixels of c channels lie `pitch` bytes apart, in another size: y, without gaps. */
void pixels_resize(const Axis *down, const Axis *across, int64_t c, const uint8_t *x, int64_t pitch, uint8_t *y,
                   uint8_t *workspace) {
    double *real_down = (double *)workspace, *real_across = (double *)(workspace + up(axis_bytes(down)));
    int32_t *first = (int32_t *)(real_down + taps(down)), *weights = first + down->n;
    int32_t *first_across = (int32_t *)(real_across + taps(across)), *weights_across = first_across + across->n;
    int32_t *sums = (int32_t *)((uint8_t *)real_across + up(axis_bytes(across)));
    uint8_t *between = (uint8_t *)(sums + across->n * c);
    const int64_t wide = across->n * c;
    const int resized_across = across->n != across->size || across->from || across->to != across->n;
    const int resized_down = down->n != down->size || down->from || down->to != down->n;
    const int64_t count = weigh(down, real_down, first, weights);
    const int64_t count_across = weigh(across, real_across, first_across, weights_across);
    const int64_t top = resized_down ? first[0] : 0, end = resized_down ? first[down->n - 1] + count : down->n;
    for (int64_t r = top; r < end; r++) {
        uint8_t *to = resized_down ? between + r * wide : y + r * wide;
        if (resized_across && count_across == 3) /* the most frequent one: the compiler leaves out the loop */
            row(across, c, first_across, 3, weights_across, x + r * pitch, r + 1 < end, to);
        else if (resized_across)
            row(across, c, first_across, count_across, weights_across, x + r * pitch, r + 1 < end, to);
        else
            memcpy(to, x + r * pitch, wide);
    }
    if (!resized_down) return;
    const int64_t apart = taps(down);
    for (int64_t i = 0; i < down->n; i++, y += wide) {
        for (int64_t j = 0; j < wide; j++) sums[j] = HALF;
        for (int64_t k = 0; k < count; k++) {
            const uint8_t *from = between + (first[i] + k) * wide;
            const int32_t weight = weights[i * apart + k];
            for (int64_t j = 0; j < wide; j++) sums[j] += weight * from[j];
        }
        for (int64_t j = 0; j < wide; j++) y[j] = sums[j] >> BITS;
    }
}

/* y[i] = (x[i * step] - mean) * scale for i of [from, to). */
static void scale_some(int64_t from, int64_t to, const uint8_t *x, int64_t step, float mean, float scale, float *y) {
    for (int64_t i = from; i < to; i++) y[i] = ((float)x[i * step] - mean) * scale;
}

enum { MORE = 2 }; /* pixels of three bytes beside four, which a load of 16 bytes may touch */

/* The same for n pixels, four at a time where they are of three bytes. */
static void scale_row(int64_t n, const uint8_t *x, int64_t step, float mean, float scale, float *y) {
    int64_t i = 0;
#ifdef __SSE4_1__
    const __m128i pick = step > 0 ? _mm_set1_epi32(0x09060300) : _mm_set1_epi32(0x00030609);
    const __m128 m = _mm_set1_ps(mean), s = _mm_set1_ps(scale);
    if (step == -3) scale_some(0, i = at_most(MORE, n), x, step, mean, scale, y);
    for (; (step == 3 || step == -3) && i + 4 + MORE <= n; i += 4) {
        const uint8_t *lowest = x + (step > 0 ? i : i + 3) * step;
        const __m128i four_bytes = _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)lowest), pick);
        const __m128 value = _mm_cvtepi32_ps(_mm_cvtepu8_epi32(four_bytes));
        _mm_storeu_ps(y + i, _mm_mul_ps(_mm_sub_ps(value, m), s));
    }
#endif
    scale_some(i, n, x, step, mean, scale, y);
}

/* y = (x - mean of its channel) * scale, of bytes x[channel][row][column] at these strides in bytes. */
void pixels_scale(const int64_t *shape, const int64_t *strides, const uint8_t *x, const float *mean, float scale,
                  float *y) {
    for (int64_t c = 0; c < shape[0]; c++)
        for (int64_t r = 0; r < shape[1]; r++, y += shape[2])
            scale_row(shape[2], x + c * strides[0] + r * strides[1], strides[2], mean[c], scale, y);
}
