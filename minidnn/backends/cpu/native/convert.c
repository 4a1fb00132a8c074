/* Conversions between float32 and the formats of 16 bits, in which tensors may be stored: to a format by rounding to
 * nearest, ties to even, as NumPy and ml_dtypes round. NaN stays NaN. A bfloat16 is the upper half of a float32. */
#include "mirrored.h"
#include "pieces.h"

typedef struct {
    int64_t rows, width, from_pitch, to_pitch, threads; /* rows of so many elements, which begin a pitch apart */
} Geometry;
MIRRORED(convert, Geometry)

typedef uint16_t halves __attribute__((vector_size(LANES * 2)));
typedef uint16_t loose_halves __attribute__((vector_size(LANES * 2), aligned(2), may_alias));
typedef uint32_t words __attribute__((vector_size(LANES * 4)));

ALWAYS vec from_bfloat16(halves v) { return (vec)(__builtin_convertvector(v, words) << 16); }

ALWAYS halves to_bfloat16(vec v) {
    const words u = (words)v, rounded = (u + 0x7fff + (u >> 16 & 1)) >> 16, nan = (u >> 16 & 0x8000) | 0x7fc0;
    const words ordinary = (words)(v == v);
    return __builtin_convertvector((rounded & ordinary) | (nan & ~ordinary), halves);
}

#if defined(__AVX512F__)
ALWAYS vec from_float16(halves v) { return (vec)_mm512_cvtph_ps((__m256i)v); }
ALWAYS halves to_float16(vec v) { return (halves)_mm512_cvtps_ph((__m512)v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
#elif defined(__AVX__) && defined(__F16C__)
ALWAYS vec from_float16(halves v) { return (vec)_mm256_cvtph_ps((__m128i)v); }
ALWAYS halves to_float16(vec v) { return (halves)_mm256_cvtps_ph((__m256)v, _MM_FROUND_TO_NEAREST_INT); }
#else
/* Without such instructions: a product by a power of two moves the exponent, and a sum with a large number rounds. */
ALWAYS vec from_float16(halves v) {
    const words u = __builtin_convertvector(v, words), sign = (u & 0x8000) << 16, rest = (u & 0x7fff) << 13;
    const words endless = (words)(rest >= 0x0f800000); /* infinity or NaN: all bits of the exponent are set */
    const words size = (words)((vec)rest * 0x1p112f);
    return (vec)(sign | (size & ~endless) | ((rest | 0x7f800000) & endless));
}

ALWAYS halves to_float16(vec v) {
    const words u = (words)v, sign = u >> 16 & 0x8000, size = u & 0x7fffffff;
    const words small = (words)((vec)size + 0.5f) - 0x3f000000;              /* below 2^-14: multiples of 2^-24 */
    const words normal = (size + 0xfff + (size >> 13 & 1) - 0x38000000) >> 13;
    const words is_small = (words)(size < 0x38800000), is_large = (words)(size >= 0x477ff000);
    const words is_nan = (words)(size > 0x7f800000);
    const words large = 0x7c00 | (is_nan & 0x200);
    const words ordinary = (small & is_small) | (normal & ~is_small);
    return __builtin_convertvector(sign | (ordinary & ~is_large) | (large & is_large), halves);
}
#endif

/* The n values at p in the first lanes, zero in the others. */
ALWAYS halves some(const uint16_t *p, int64_t n) {
    uint16_t lanes[LANES] = {0};
    memcpy(lanes, p, 2 * n);
    return *(const loose_halves *)lanes;
}

ALWAYS void piece(int64_t n, const uint16_t *from, float *to, vec of(halves)) {
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) store(to + i, of(*(const loose_halves *)(from + i)));
    if (i < n) store_some(to + i, of(some(from + i, n - i)), n - i);
}

ALWAYS void narrow_piece(int64_t n, const float *from, uint16_t *to, halves of(vec)) {
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) *(loose_halves *)(to + i) = of(load(from + i));
    if (i < n) {
        const halves last = of(load_some(from + i, n - i));
        memcpy(to + i, &last, 2 * (n - i));
    }
}

#define BY_PIECES                                                                                                       \
    _Pragma("omp parallel for collapse(2) num_threads(g->threads) schedule(static) if (g->rows * g->width > ALONE)")     \
    for (int64_t r = 0; r < g->rows; r++)                                                                                \
        for (int64_t i = 0; i < g->width; i += PIECE)

#define CONVERSIONS(format)                                                                                             \
    void convert_##format##_float32(const Geometry *g, const uint16_t *from, float *to) {                               \
        BY_PIECES                                                                                                       \
        piece(at_most(PIECE, g->width - i), from + r * g->from_pitch + i, to + r * g->to_pitch + i, from_##format);     \
    }                                                                                                                   \
    void convert_float32_##format(const Geometry *g, const float *from, uint16_t *to) {                                 \
        BY_PIECES                                                                                                       \
        narrow_piece(at_most(PIECE, g->width - i), from + r * g->from_pitch + i, to + r * g->to_pitch + i, to_##format); \
    }

CONVERSIONS(bfloat16)
CONVERSIONS(float16)
