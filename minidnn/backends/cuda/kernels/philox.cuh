// Philox4x32-10, as backends/philox.py defines it.

#pragma once
#include "common.cuh"

struct Words {
    uint32 v[4];
};

__device__ inline Words philox(uint64 block, uint32 iteration, uint32 key, uint32 k0, uint32 k1) {
    uint32 c0 = (uint32)block, c1 = (uint32)(block >> 32), c2 = iteration, c3 = key;
#pragma unroll
    for (int round = 0; round < 10; round++) {
        uint32 high0 = __umulhi(c0, 0xD2511F53u), low0 = c0 * 0xD2511F53u;
        uint32 high1 = __umulhi(c2, 0xCD9E8D57u), low1 = c2 * 0xCD9E8D57u;
        c0 = high1 ^ c1 ^ k0, c1 = low1, c2 = high0 ^ c3 ^ k1, c3 = low0;
        k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
    }
    return {{c0, c1, c2, c3}};
}
