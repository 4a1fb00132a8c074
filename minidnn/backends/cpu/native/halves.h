/* Conversions between float32 and the formats of 16 bits, in which tensors may be stored: to a format by rounding to
 * nearest, ties to even, as NumPy and ml_dtypes round. NaN stays NaN. A bfloat16 is the upper half of a float32. */
#pragma once
#include "pieces.h"

typedef uint16_t halves __attribute__((vector_size(LANES * 2)));
typedef uint16_t loose_halves __attribute__((vector_size(LANES * 2), aligned(2), may_alias));
typedef uint32_t wide_bits __attribute__((vector_size(LANES * 4)));

ALWAYS vec from_bfloat16(halves v) { return (vec)(__builtin_convertvector(v, wide_bits) << 16); }

ALWAYS halves to_bfloat16(vec v) {
    const wide_bits u = (wide_bits)v, rounded = (u + 0x7fff + (u >> 16 & 1)) >> 16, nan = (u >> 16 & 0x8000) | 0x7fc0;
    const wide_bits ordinary = (wide_bits)(v == v);
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
    const wide_bits u = __builtin_convertvector(v, wide_bits), sign = (u & 0x8000) << 16, rest = (u & 0x7fff) << 13;
    const wide_bits endless = (wide_bits)(rest >= 0x0f800000); /* infinity or NaN: all bits of the exponent are set */
    const wide_bits size = (wide_bits)((vec)rest * 0x1p112f);
    return (vec)(sign | (size & ~endless) | ((rest | 0x7f800000) & endless));
}

ALWAYS halves to_float16(vec v) {
    const wide_bits u = (wide_bits)v, sign = u >> 16 & 0x8000, size = u & 0x7fffffff;
    const wide_bits small = (wide_bits)((vec)size + 0.5f) - 0x3f000000;              /* below 2^-14: multiples of 2^-24 */
    const wide_bits normal = (size + 0xfff + (size >> 13 & 1) - 0x38000000) >> 13;
    const wide_bits is_small = (wide_bits)(size < 0x38800000), is_large = (wide_bits)(size >= 0x477ff000);
    const wide_bits is_nan = (wide_bits)(size > 0x7f800000);
    const wide_bits large = 0x7c00 | (is_nan & 0x200);
    const wide_bits ordinary = (small & is_small) | (normal & ~is_small);
    return __builtin_convertvector(sign | (ordinary & ~is_large) | (large & is_large), halves);
}
#endif

/* The n values at p in the first lanes, zero in the others. */
ALWAYS halves some(const uint16_t *p, int64_t n) {
    uint16_t lanes[LANES] = {0};
    memcpy(lanes, p, 2 * n);
    return *(const loose_halves *)lanes;
}

/* n numbers, from a format or to it. */
ALWAYS void widen_piece(int64_t n, const uint16_t *from, float *to, vec of(halves)) {
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

enum { BFLOAT16, FLOAT16 }; /* the formats, as kernels for tensors of 16 bits are told them */

/* n numbers of a format to float32. */
static inline void widen(int64_t format, int64_t n, const uint16_t *from, float *to) {
    if (format == BFLOAT16)
        widen_piece(n, from, to, from_bfloat16);
    else
        widen_piece(n, from, to, from_float16);
}

/* n numbers of float32 to a format. */
static inline void narrow(int64_t format, int64_t n, const float *from, uint16_t *to) {
    if (format == BFLOAT16)
        narrow_piece(n, from, to, to_bfloat16);
    else
        narrow_piece(n, from, to, to_float16);
}
