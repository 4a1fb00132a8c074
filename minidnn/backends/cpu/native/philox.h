/* Philox4x32-10 (Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011): blocks of four
 * words, as backends/philox.py defines them.
 */
#pragma once
#include "vector.h"

typedef uint32_t unsigned_bits __attribute__((vector_size(LANES * 4))); /* words */

typedef struct {
    uint32_t seed_low, seed_high, key, iteration;
} Stream;

/* Lane by lane: the product with a word, in two words. */
ALWAYS void multiplied(unsigned_bits v, uint32_t factor, unsigned_bits *high, unsigned_bits *low) {
#if defined(__AVX512F__)
    const __m512i by = _mm512_set1_epi32((int32_t)factor), even = _mm512_mul_epu32((__m512i)v, by);
    const __m512i odd = _mm512_mul_epu32(_mm512_srli_epi64((__m512i)v, 32), by);
    *high = (unsigned_bits)_mm512_mask_blend_epi32(0xAAAA, _mm512_srli_epi64(even, 32), odd);
    *low = (unsigned_bits)_mm512_mask_blend_epi32(0xAAAA, even, _mm512_slli_epi64(odd, 32));
#elif defined(__AVX2__)
    const __m256i by = _mm256_set1_epi32((int32_t)factor), even = _mm256_mul_epu32((__m256i)v, by);
    const __m256i odd = _mm256_mul_epu32(_mm256_srli_epi64((__m256i)v, 32), by);
    *high = (unsigned_bits)_mm256_blend_epi32(_mm256_srli_epi64(even, 32), odd, 0xAA);
    *low = (unsigned_bits)_mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), 0xAA);
#else
    for (int i = 0; i < LANES; i++) {
        const uint64_t p = (uint64_t)v[i] * factor;
        (*high)[i] = (uint32_t)(p >> 32), (*low)[i] = (uint32_t)p;
    }
#endif
}

/* Words 0 to 3 of LANES blocks. On entry, the first two have the low and the high halves of the blocks' numbers. */
ALWAYS void philox(Stream s, unsigned_bits word[4]) {
    unsigned_bits a = word[0], b = word[1], c = (unsigned_bits){0} + s.iteration, d = (unsigned_bits){0} + s.key;
    for (int round = 0; round < 10; round++) {
        unsigned_bits high, low, other_high, other_low;
        multiplied(a, 0xD2511F53u, &high, &low);
        multiplied(c, 0xCD9E8D57u, &other_high, &other_low);
        a = other_high ^ b ^ s.seed_low, b = other_low;
        c = high ^ d ^ s.seed_high, d = low;
        s.seed_low += 0x9E3779B9u;
        s.seed_high += 0xBB67AE85u;
    }
    word[0] = a, word[1] = b, word[2] = c, word[3] = d;
}
