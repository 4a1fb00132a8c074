/* Conversions between bytes (indices, masks) and vectors of integers, which then go with vectors of floats. */
#pragma once
#include "vector.h"

#if defined(__AVX2__)
#include <immintrin.h>
#endif

/* LANES bytes as a vector of integers, and back. By intrinsics: compilers turn the plain loop into dozens of
 * instructions. */
#if defined(__AVX512F__)
ALWAYS bits widened(const uint8_t *p) { return (bits)_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)p)); }
ALWAYS void narrowed(uint8_t *p, bits b) { _mm_storeu_si128((__m128i *)p, _mm512_cvtepi32_epi8((__m512i)b)); }
#elif defined(__AVX2__)
ALWAYS bits widened(const uint8_t *p) { return (bits)_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)p)); }
ALWAYS void narrowed(uint8_t *p, bits b) {
    const __m256i fours = _mm256_shuffle_epi8((__m256i)b, _mm256_set1_epi32(0x0c080400));
    const __m128i eight = _mm_unpacklo_epi32(_mm256_castsi256_si128(fours), _mm256_extracti128_si256(fours, 1));
    _mm_storel_epi64((__m128i *)p, eight);
}
#else
ALWAYS bits widened(const uint8_t *p) {
    bits b;
    for (int j = 0; j < LANES; j++) b[j] = p[j];
    return b;
}
ALWAYS void narrowed(uint8_t *p, bits b) {
    for (int j = 0; j < LANES; j++) p[j] = (uint8_t)b[j];
}
#endif
