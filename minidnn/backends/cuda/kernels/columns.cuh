// Work channel by channel: sums over all values of a channel, or the same arithmetic on each of them.
//
// The i-th of a channel's `items` values is element (i / inner * channels + c) * inner + i % inner. If channels are
// innermost, inner is 1, and a matrix of items x channels is read row by row. A block takes `across` groups of V
// channels, and blockDim.x / across items at a time. blockIdx.x counts tiles of channels first, then chunks of `per`
// items.

#pragma once

#include "common.cuh"

constexpr int COLUMN_BLOCK = 256;

struct Columns {
    int channels, inner, across;
    int64 items, per;
};

// The parameters of every such kernel, and the struct made of them.
#define COLUMNS int channels, int inner, int across, int64 items, int64 per
#define COLUMNS_GIVEN Columns{channels, inner, across, items, per}

template <int V>
struct Place {  // one thread's part of the work
    int channel;  // its first channel of V
    int64 begin, end, chunk;
    int stride;
    bool any;

    __device__ explicit Place(const Columns& g) {
        int groups = (g.channels + V - 1) / V, tiles = (groups + g.across - 1) / g.across;
        int group = (int)(blockIdx.x % tiles) * g.across + (int)threadIdx.x % g.across;
        channel = group * V;
        any = group < groups;
        chunk = blockIdx.x / tiles;
        stride = (int)blockDim.x / g.across;
        begin = chunk * g.per + threadIdx.x / g.across;
        end = (chunk + 1) * g.per < g.items ? (chunk + 1) * g.per : g.items;
    }
};

// The index of item i's V values in memory, counted in groups of V.
template <int V>
__device__ inline int64 place_of(const Columns& g, int64 i, int channel) {
    if (V > 1 || g.inner == 1) return (i * g.channels + channel) / V;
    return (i / g.inner * g.channels + channel) * g.inner + i % g.inner;
}

template <int V>
struct Pack {  // the values of V channels
    float at[V];
};

template <int V>
__device__ inline void get(const T* p, int64 i, Pack<V>& v) {
    Floats<V> from = load_many<V>(p, i);
#pragma unroll
    for (int k = 0; k < V; k++) v.at[k] = from.v[k];
}
template <int V>
__device__ inline void put(T* p, int64 i, const Pack<V>& v) {
    Floats<V> to;
#pragma unroll
    for (int k = 0; k < V; k++) to.v[k] = v.at[k];
    store_many<V>(p, i, to);
}

// Computes K sums per channel over the chunk, and calls out(k, chunk, c, sum) with each. `add(place, sum)` adds the
// values of V channels to sum[k][v]. A thread adds its items in order; then the threads' sums are added as a tree.
template <int V, int K, class Add, class Out>
__device__ inline void column_sums(const Columns& g, Add add, Out out, float (&shared)[K * V * COLUMN_BLOCK]) {
    Place<V> here(g);
    float sum[K][V];
    for (int k = 0; k < K; k++)
        for (int v = 0; v < V; v++) sum[k][v] = 0;
    if (here.any) {
        add.begin(here.channel);
#pragma unroll 4
        for (int64 i = here.begin; i < here.end; i += here.stride) add(place_of<V>(g, i, here.channel), sum);
    }
    int t = threadIdx.x;
    for (int k = 0; k < K; k++)
        for (int v = 0; v < V; v++) shared[(k * V + v) * COLUMN_BLOCK + t] = sum[k][v];
    for (int half = here.stride / 2; half; half /= 2) {
        __syncthreads();
        if (t < half * g.across)
            for (int kv = 0; kv < K * V; kv++) {
                float* s = shared + kv * COLUMN_BLOCK + t;
                s[0] += s[half * g.across];
            }
    }
    // Thread t < across wrote the value at t itself, so it need not wait for others.
    if (t < g.across && here.any)
        for (int k = 0; k < K; k++)
            for (int v = 0; v < V; v++) out(k, here.chunk, here.channel + v, shared[(k * V + v) * COLUMN_BLOCK + t]);
}

// The `add` for the sum of chunks' sums: the matrix is the partial sums, and its items are the chunks.
struct SumOfPartials {
    const float* partial;

    __device__ void begin(int) {}
    __device__ void operator()(int64 i, float (&sum)[1][1]) { sum[0][0] += partial[i]; }
};

// The `out`s for two sums of each channel: those of chunks, and those of all.
struct TwoSums {  // each of a chunk lies `pitch` values behind that of the chunk before
    float *first, *second;
    int pitch;

    __device__ void operator()(int k, int64 chunk, int c, float v) { (k ? second : first)[chunk * pitch + c] = v; }
};
struct TwoOut {  // 2 * half sums: all first ones, then all second ones
    float *first, *second;
    int half;

    __device__ void operator()(int, int64, int c, float v) { (c < half ? first[c] : second[c - half]) = v; }
};
