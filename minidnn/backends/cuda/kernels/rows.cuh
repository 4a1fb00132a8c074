// Work row by row.
//
// A row is `length` values that are `inner` elements apart. Row r begins at r / inner * length * inner + r % inner. A
// block takes blockDim.x / lanes rows at a time, each by `lanes` threads (a power of two). If a row's values are
// neighbours in memory (inner is 1), neighbouring threads share a row. Otherwise neighbouring threads have neighbouring
// rows.

#pragma once

#include "common.cuh"

constexpr int ROW_BLOCK = 256;

__device__ inline float not_a_number() { return __int_as_float(0x7FFFFFFF); }
__device__ inline float minus_infinity() { return __int_as_float(0xFF800000); }

struct Rows {
    int64 count, inner;
    int length, lanes;
};
#define ROWS int64 rows, int64 inner, int length, int lanes
#define ROWS_GIVEN Rows{rows, inner, length, lanes}

struct Thread {
    // A thread has row `slot` of the block's `slots` rows, and is number `lane` of the row's threads, which are `apart`
    // threads apart.
    int slot, lane, apart, slots;

    __device__ explicit Thread(const Rows& g) {
        int t = threadIdx.x;
        slots = (int)blockDim.x / g.lanes;
        if (g.inner == 1) slot = t / g.lanes, lane = t % g.lanes, apart = 1;
        else slot = t % slots, lane = t / slots, apart = slots;
    }
};

__device__ inline int64 begin_of(const Rows& g, int64 row) {
    return g.inner == 1 ? row * g.length : (row / g.inner * g.length) * g.inner + row % g.inner;
}

struct Largest {
    __device__ float operator()(float a, float b) const { return fmaxf(a, b); }
};
struct Plus {
    template <class V>
    __device__ V operator()(V a, V b) const { return a + b; }
};

// Combines the values of a row's threads by `op`, as a tree; all threads of the row get the result. All threads of the
// block must call this.
template <class V, class Op>
__device__ inline V of_row(const Rows& g, const Thread& me, V (&shared)[ROW_BLOCK], V value, Op op) {
    if (g.lanes == 1) return value;
    int t = threadIdx.x;
    shared[t] = value;
    for (int half = g.lanes / 2; half; half /= 2) {
        __syncthreads();
        if (me.lane < half) shared[t] = op(shared[t], shared[t + half * me.apart]);
    }
    __syncthreads();
    V all = shared[t - me.lane * me.apart];
    __syncthreads();  // before the next use of `shared`
    return all;
}

// Calls each(row, begin, there) for the block's rows, one after another. All threads call it: `there` is false for
// those without a row.
template <class Each>
__device__ inline void for_rows(const Rows& g, const Thread& me, Each each) {
    for (int64 start = (int64)blockIdx.x * me.slots; start < g.count; start += (int64)gridDim.x * me.slots) {
        int64 row = start + me.slot;
        bool there = row < g.count;
        each(row, there ? begin_of(g, row) : 0, there);
    }
}

// The divisor of a loss; 0 means the number of elements that count, which is the sum of the n numbers in `counted`. All
// threads of the block must call this.
__device__ inline double divided_by(double divisor, const int* counted, int n, int64 (&shared)[ROW_BLOCK]) {
    if (divisor != 0) return divisor;
    int64 count = 0;
    for (int i = threadIdx.x; i < n; i += blockDim.x) count += counted[i];
    count = block_sum(shared, count);
    return count > 1 ? (double)count : 1.0;
}
