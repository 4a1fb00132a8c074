// Sums of gradients over micro-batches, ranks and slices of a batch.

#include "common.cuh"

// Sums over micro-batches along a balanced binary tree. After k of them a partial sum of n elements waits for each 1
// among k's digits. The next one is added to those of the run of ones at the end.

// y = x plus `merged` partial sums, which end before `end`, the last of them first.
__device__ inline void add(const float* end, const T* x, float* y, int merged, int64 n) {
    for (int64 i = first(); i < n; i += step()) {
        float found = load(x, i);
        for (int k = 1; k <= merged; k++) found = (end - k * n)[i] + found;
        y[i] = found;
    }
}

extern "C" __global__ void accumulate(float* sums, const T* x, const int64* iteration, int64 every, int64 n) {
    const int64 k = *iteration % every;
    const int merged = __popcll(k & ~(k + 1)), waiting = __popcll(k);
    add(sums + waiting * n, x, sums + (waiting - merged) * n, merged, n);
}

extern "C" __global__ void total(const float* sums, const T* x, float* y, int waiting, int64 n) {
    add(sums + waiting * n, x, y, waiting, n);
}

// y is the sum of `count` tensors, which begin `pitch` values apart: the gradients of slices of a batch, in their order.
extern "C" __global__ void add_slices(const T* x, T* y, int count, int64 pitch, int64 n) {
    for (int64 i = first(); i < n / 4; i += step()) {
        float4 sum = load4(x, i);
        for (int k = 1; k < count; k++) {
            float4 v = load4(x + k * pitch, i);
            sum.x += v.x, sum.y += v.y, sum.z += v.z, sum.w += v.w;
        }
        store4(y, i, sum);
    }
    for (int64 i = n / 4 * 4 + first(); i < n; i += step()) {
        float sum = load(x, i);
        for (int k = 1; k < count; k++) sum += load(x + k * pitch, i);
        store(y, i, sum);
    }
}

// The sum of the first `own` elements of the ranks' rows, along the same tree, then zeros.
// A loop over all digits, unrolled, keeps the partial sums in registers.
constexpr int DIGITS = 17;  // of up to 2^16 ranks
extern "C" __global__ void merge(const T* rows, float* shard, int ranks, int64 own, int64 size) {
    for (int64 i = first(); i < size; i += step()) {
        float waiting[DIGITS], sum = 0.0f;
        for (int rank = 0; i < own && rank < ranks; rank++) {
            float found = load(rows, rank * size + i);
            bool adds = true;
#pragma unroll
            for (int d = 0; d < DIGITS; d++) {
                if (!adds) continue;
                adds = rank >> d & 1;
                if (adds)
                    found = waiting[d] + found;
                else
                    waiting[d] = found;
            }
        }
        bool begun = false;
#pragma unroll
        for (int d = 0; d < DIGITS; d++) {
            if (!(ranks >> d & 1)) continue;
            sum = begun ? waiting[d] + sum : waiting[d];
            begun = true;
        }
        shard[i] = i < own ? sum : 0.0f;
    }
}
