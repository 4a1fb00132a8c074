// One launch for many tensors. Their addresses and sizes come in a table, a struct that is a parameter of the kernel. A
// tensor is cut into pieces of PIECE values, and the pieces of all tensors are numbered. Blocks take pieces in turn.

#pragma once

#include "common.cuh"

constexpr int MULTI_TENSOR_BLOCK = 256, FOURS = 4;  // threads of a block; four values at a time that a thread takes of a piece
constexpr int PIECE = MULTI_TENSOR_BLOCK * FOURS * 4;

// The tensor of a piece: the last whose first piece is not behind it. `first` rises from 0 on.
template <class Table>
__device__ inline int tensor_of(const Table& table, int count, int piece) {
    int low = 0;
    for (int high = count; high - low > 1;) {
        int middle = (low + high) / 2;
        if (table.first[middle] <= piece) low = middle;
        else high = middle;
    }
    return low;
}

// Calls f(k, begin, end) for each piece of this block: the values from `begin` to `end` of the k-th tensor.
template <class Table, class F>
__device__ inline void each_piece(const Table& table, int count, int pieces, F f) {
    for (int piece = blockIdx.x; piece < pieces; piece += gridDim.x) {
        int k = tensor_of(table, count, piece);
        int64 begin = (int64)(piece - table.first[k]) * PIECE, n = table.n[k];
        f(k, begin, n < begin + PIECE ? n : begin + PIECE);
    }
}

// The i-th four values of a piece for this thread are those at (returned) * 4.
__device__ inline int64 four_of(int64 begin, int i) { return begin / 4 + i * MULTI_TENSOR_BLOCK + threadIdx.x; }

// The index of this thread's single value behind the last four of a tensor; at least `end` if it has none.
__device__ inline int64 rest_of(int64 end) { return end / 4 * 4 + threadIdx.x; }

// As `map`, for a piece: y[i] = f(x[i] ...) for all i from `begin` up to `end`.
template <class Y, class F, class... X>
__device__ inline void map_piece(int64 begin, int64 end, Y* y, F f, const X*... x) {
    constexpr int W = WIDTH<Y, X...>;
    int64 i = begin / W + threadIdx.x;
    if (end - begin == PIECE) return map_many<W, PIECE / MULTI_TENSOR_BLOCK / W>(i, MULTI_TENSOR_BLOCK, y, f, x...);
    for (; i < end / W; i += MULTI_TENSOR_BLOCK) map_many<W, 1>(i, 0, y, f, x...);
    if (int64 rest = end / W * W + threadIdx.x; rest < end) store(y, rest, f(load(x, rest)...));
}
