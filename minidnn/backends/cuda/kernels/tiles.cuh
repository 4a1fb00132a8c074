// Products of tiles by a block of 16 x 16 threads, in float32. A thread has 4 rows of a result and 4 columns, 16 apart,
// so that neighbouring threads store neighbouring values. DEPTH columns of both factors at a time lie in shared memory.

#pragma once
#include "common.cuh"

constexpr int TILE = 64, DEPTH = 16, EACH = 4, SIDE = TILE / EACH, THREADS = SIDE * SIDE;

struct Me {
    int row, column;  // this thread's first ones of a tile
    __device__ Me() : row(threadIdx.x / SIDE), column(threadIdx.x % SIDE) {}
};

// DEPTH numbers of each of TILE rows (of b: of b'), turned. One more than a row: no bank conflicts.
using Slice = float[DEPTH][TILE + 1];

template <int COLUMNS>
__device__ inline void clear(float (&sums)[EACH][COLUMNS]) {
#pragma unroll
    for (int i = 0; i < EACH; i++)
#pragma unroll
        for (int c = 0; c < COLUMNS; c++) sums[i][c] = 0;
}

// sum += a b', for slices of a and b, from the first product to the last.
__device__ inline void multiply_add(const Slice& a, const Slice& b, float (&sum)[EACH][EACH]) {
    Me me;
#pragma unroll
    for (int d = 0; d < DEPTH; d++) {
        float x[EACH], w[EACH];
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            x[i] = a[d][me.row + i * SIDE];
            w[i] = b[d][me.column + i * SIDE];
        }
#pragma unroll
        for (int i = 0; i < EACH; i++)
#pragma unroll
            for (int j = 0; j < EACH; j++) sum[i][j] = __fmaf_rn(x[i], w[j], sum[i][j]);
    }
}
