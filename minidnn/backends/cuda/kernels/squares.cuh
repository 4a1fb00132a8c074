// Sums of squares by blocks of PIECE values (optimizers/squares.py). Squares are exact in double, and added in double.

#pragma once

#include "multi_tensor.cuh"

// The sum of the squares of a piece, which thread 0 gets. Zeros behind its values change nothing.
template <class G>
__device__ inline double squares_of(double* shared, const G* x, int64 begin, int64 end) {
    double sum = 0;
#pragma unroll
    for (int k = 0; k < FOURS; k++) {
        int64 i = four_of(begin, k);
        float4 v = make_float4(0, 0, 0, 0);
        if (i < end / 4) {
            v = load4(x, i);
        } else {
            if (4 * i < end) v.x = load(x, 4 * i);
            if (4 * i + 1 < end) v.y = load(x, 4 * i + 1);
            if (4 * i + 2 < end) v.z = load(x, 4 * i + 2);
        }
        sum += ((double)v.x * v.x + (double)v.y * v.y) + ((double)v.z * v.z + (double)v.w * v.w);
    }
    return block_sum(shared, sum);
}

// The sum of a tensor's squares, which thread 0 gets: of `count` sums of blocks from `first` on in each rank's row of
// `row` sums. For one block.
__device__ inline double total_squares(double* shared, const double* sums, uint32 ranks, int64 row, int64 first,
                                       uint32 count) {
    double sum = 0;
    for (uint32 i = threadIdx.x; i < ranks * count; i += blockDim.x) sum += sums[i / count * row + first + i % count];
    return block_sum(shared, sum);
}
