/* Philox4x32-10 (Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011): blocks of four
 * words, as backends/philox.py defines them.
 */
#pragma once
#include "vector.h"

typedef uint32_t unsigned_bits __attribute__((vector_size(LANES * 4))); /* words */

typedef struct {
    uint32_t seed_low, seed_high, key, iteration;
} Stream;

/* Words 0 to 3 of `count` blocks: a b c d. On entry, a and b have the low and the high halves of the blocks' numbers.
 * The inner loops are over blocks, so that compilers vectorize them. */
ALWAYS void philox(int count, Stream s, uint32_t *restrict a, uint32_t *restrict b, uint32_t *restrict c,
                   uint32_t *restrict d) {
    for (int i = 0; i < count; i++) {
        c[i] = s.iteration;
        d[i] = s.key;
    }
    for (int round = 0; round < 10; round++) {
        for (int i = 0; i < count; i++) {
            const uint64_t p = (uint64_t)a[i] * 0xD2511F53u, q = (uint64_t)c[i] * 0xCD9E8D57u;
            a[i] = (uint32_t)(q >> 32) ^ b[i] ^ s.seed_low;
            c[i] = (uint32_t)(p >> 32) ^ d[i] ^ s.seed_high;
            b[i] = (uint32_t)q;
            d[i] = (uint32_t)p;
        }
        s.seed_low += 0x9E3779B9u;
        s.seed_high += 0xBB67AE85u;
    }
}
