// The geometry of attention, for all kernels of it: who sees whom, what a block works on, and where that lies.

#pragma once
#include "philox.cuh"

constexpr int ROWS = 64;  // queries, or keys, of a block

struct Geometry {
    int64 items;          // blocks of work
    int queries, keys, heads, kv_heads, depth;
    int q_pitch, kv_pitch;  // values from token to token of q, k and v, and of their gradients
    int causal, window;     // window 0: all are seen
    float scale;
    uint32 key, seed_low, seed_high, limit;  // limit 0: nothing is dropped
    float kept;
    int place;  // of the first query, among the keys
};

// Rows of a head, one for each token.
template <class P>
struct Rows {
    P* p;
    int64 pitch;
    int count;
};

__device__ inline bool seen(const Geometry& g, int query, int key) {
    int away = query + g.place - key;
    if (query >= g.queries || key >= g.keys || (g.causal && away < 0)) return false;
    return !g.window || (away < g.window && -away < g.window);
}

// Of the blocks of ROWS keys (or queries), the first that some of the ROWS queries (or keys) from `first` on meet, and
// what is behind the last.
struct Range {
    int low, high;
};
__device__ inline Range keys_of(const Geometry& g, int first) {
    int from = first + g.place, to = from + ROWS;  // the keys at the queries' places
    int low = g.window ? from - g.window + 1 : 0;
    int high = g.causal ? to : g.window ? to + g.window - 1 : g.keys;
    return {low < 0 ? 0 : low / ROWS * ROWS, high < g.keys ? high : g.keys};
}
__device__ inline Range queries_of(const Geometry& g, int first) {
    int from = first - g.place, to = from + ROWS;
    int low = g.causal ? from : g.window ? from - g.window + 1 : 0;
    int high = g.window ? to + g.window - 1 : g.queries;
    return {low < 0 ? 0 : low / ROWS * ROWS, high < g.queries ? high : g.queries};
}

// Without dropout `iteration` is any other tensor.
__device__ inline uint32 now_of(const void* iteration) { return (uint32)*(const int64*)iteration; }

__device__ inline float factor(const Geometry& g, uint32 iteration, int64 row, int key) {
    if (!g.limit) return 1;
    Words w = philox(row * ((g.keys + 3) / 4) + key / 4, iteration, g.key, g.seed_low, g.seed_high);
    uint32 word = key % 4 < 2 ? (key % 4 ? w.v[1] : w.v[0]) : (key % 4 == 2 ? w.v[2] : w.v[3]);
    return word >= g.limit ? g.kept : 0.0f;
}

// What a block works on: a head of a sample, and the first of ROWS rows.
struct Item {
    int64 sample;
    int head, kv_head, first;
    int64 row;  // of the first query of the head, among all

    __device__ Item(const Geometry& g, int64 i, int heads, int rows) {
        int blocks = (rows + ROWS - 1) / ROWS;
        int64 line = quotient(i, blocks);
        first = (blocks - 1 - (int)remainder(i, blocks, line)) * ROWS;  // of a causal one, those with most keys first
        sample = quotient(line, heads);
        of(g, (int)remainder(line, heads, sample));
    }
    __device__ void of(const Geometry& g, int which) {
        head = which, kv_head = which / (g.heads / g.kv_heads), row = (sample * g.heads + head) * g.queries;
    }
    template <class P>
    __device__ Rows<P> queries(const Geometry& g, P* q) const {
        return {q + sample * g.queries * g.q_pitch + head * g.depth, g.q_pitch, g.queries};
    }
    template <class P>
    __device__ Rows<P> tops(const Geometry& g, P* y) const {
        int64 pitch = (int64)g.heads * g.depth;
        return {y + sample * g.queries * pitch + head * g.depth, pitch, g.queries};
    }
    template <class P>
    __device__ Rows<P> keys(const Geometry& g, P* k) const {
        return {k + sample * g.keys * g.kv_pitch + kv_head * g.depth, g.kv_pitch, g.keys};
    }
    __device__ int64 of_query(const Geometry& g, int query) const {  // its place in lse
        return (sample * g.queries + query) * g.heads + head;
    }
};

#define SIZES                                                                                                          \
    int64 items, int queries, int keys, int heads, int kv_heads, int depth, int q_pitch, int kv_pitch, int causal,     \
        int window, float scale, uint32 key, uint32 seed_low, uint32 seed_high, uint32 limit, float kept
#define GEOMETRY                                                                                                       \
    Geometry {                                                                                                         \
        items, queries, keys, heads, kv_heads, depth, q_pitch, kv_pitch, causal, window, scale, key, seed_low,         \
            seed_high, limit, kept, keys - queries                                                                     \
    }

// The sum of dy y, for each query and head: delta (samples, queries, heads).
extern "C" __global__ void attention_delta(const T* y, const T* dy, float* delta, int64 rows, int depth) {
    for (int64 i = first(); i < rows; i += step()) {
        float sum = 0;
        for (int d = 0; d < depth; d++) sum += load(y, i * depth + d) * load(dy, i * depth + d);
        delta[i] = sum;
    }
}
