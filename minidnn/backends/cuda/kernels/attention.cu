// Attention: y = softmax(scale * q k' + bias) v for each head, in bytes that grow with the tokens, never with their square.
//
// A block takes TILE queries, or of dk and dv TILE keys, and meets TILE of the others at a time (tiles.cuh). A product's
// result has COLUMNS columns a thread. Forward keeps a running maximum and sum of each query (FlashAttention-2), and
// leaves the logarithm of the sum. Backward computes the probabilities again from that, once for dq and once for dk and
// dv: so no block adds to what another one writes, and all sums have a fixed order. The bias's gradient takes them a third
// time.

#include "attention.cuh"
#include "tiles.cuh"

static_assert(ROWS == TILE);
constexpr int WIDEST = 256;

// Fills pool[d][i] with rows [first, first + TILE) and numbers [from, from + DEPTH) of each; 0 beyond both.
__device__ inline void fill(Slice& pool, Rows<const T> m, int first, int from, int depth) {
    for (int e = threadIdx.x; e < TILE * DEPTH; e += THREADS) {
        int i = e / DEPTH, d = e % DEPTH;
        bool there = first + i < m.count && from + d < depth;
        pool[d][i] = there ? load(m.p, (first + i) * m.pitch + from + d) : 0.0f;
    }
}

struct Shared {
    Slice left, right;
    float tile[TILE][TILE + 1], each[TILE][SIDE + 1];
    float rows[DEPTH][WIDEST];
};

// sum = a b', for rows of a from `row` on and rows of b from `column` on.
__device__ inline void multiply(Shared& s, Rows<const T> a, int row, Rows<const T> b, int column, int depth,
                                float (&sum)[EACH][EACH]) {
    clear(sum);
    for (int from = 0; from < depth; from += DEPTH) {
        fill(s.left, a, row, from, depth);
        fill(s.right, b, column, from, depth);
        __syncthreads();
        multiply_add(s.left, s.right, sum);
        __syncthreads();
    }
}

// sums += tile b, for the TILE rows of b from `first` on. The tile is as s.tile has it, or its transpose.
template <int COLUMNS>
__device__ inline void accumulate(Shared& s, bool turned, Rows<const T> b, int first, int depth,
                                  float (&sums)[EACH][COLUMNS]) {
    Me me;
    for (int from = 0; from < TILE; from += DEPTH) {
        for (int e = threadIdx.x; e < DEPTH * COLUMNS * SIDE; e += THREADS) {
            int j = e / (COLUMNS * SIDE), d = e % (COLUMNS * SIDE), row = first + from + j;
            s.rows[j][d] = row < b.count && d < depth ? load(b.p, row * b.pitch + d) : 0.0f;
        }
        __syncthreads();
        for (int j = 0; j < DEPTH; j++) {
            float x[EACH];
#pragma unroll
            for (int i = 0; i < EACH; i++)
                x[i] = turned ? s.tile[from + j][me.row + i * SIDE] : s.tile[me.row + i * SIDE][from + j];
#pragma unroll
            for (int c = 0; c < COLUMNS; c++) {
                float w = s.rows[j][me.column + c * SIDE];
#pragma unroll
                for (int i = 0; i < EACH; i++) sums[i][c] = __fmaf_rn(x[i], w, sums[i][c]);
            }
        }
        __syncthreads();
    }
}

template <int COLUMNS>
__device__ inline void store_rows(Rows<T> to, int first, int depth, const float (&sums)[EACH][COLUMNS], float factor) {
    Me me;
#pragma unroll
    for (int i = 0; i < EACH; i++)
#pragma unroll
        for (int c = 0; c < COLUMNS; c++) {
            int row = first + me.row + i * SIDE, d = me.column + c * SIDE;
            if (row < to.count && d < depth) store(to.p, row * to.pitch + d, sums[i][c] * factor);
        }
}

// A number of each of this thread's rows: over the whole row, of what its 16 threads each found of it.
template <class F>
__device__ inline void across(Shared& s, float (&value)[EACH], F f) {
    Me me;
#pragma unroll
    for (int i = 0; i < EACH; i++) s.each[me.row + i * SIDE][me.column] = value[i];
    __syncthreads();
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        value[i] = s.each[me.row + i * SIDE][0];
        for (int j = 1; j < SIDE; j++) value[i] = f(value[i], s.each[me.row + i * SIDE][j]);
    }
    __syncthreads();
}

// What is added to the scores: sample n has the numbers of n modulo `samples`, and with one head all share them. 0
// samples: nothing is added.
struct Bias {
    const T* p;
    int samples, heads;

    // Where a head's numbers begin.
    __device__ int64 start(const Geometry& g, const Item& it) const {
        return ((it.sample % samples) * heads + it.head % heads) * g.queries * g.keys;
    }
    // For a query that sees the key.
    __device__ float at(const Geometry& g, const Item& it, int query, int key) const {
        return samples ? load(p, start(g, it) + (int64)query * g.keys + key) : 0.0f;
    }
};
#define BIAS const T *bias, int bias_samples, int bias_heads
#define BIAS_GIVEN \
    Bias { bias, bias_samples, bias_heads }

template <int COLUMNS>
__device__ inline void attend(const T* q, const T* k, const T* v, const void* iteration, T* y, void* lse, int keeps,
                              const Bias& bias, const Geometry& g) {
    __shared__ Shared s;
    Me me;
    uint32 now = g.limit ? now_of(iteration) : 0;
    for (int64 i = blockIdx.x; i < g.items; i += gridDim.x) {
        Item it(g, i, g.heads, g.queries);
        Range range = keys_of(g, it.first);
        float most[EACH], all[EACH], sums[EACH][COLUMNS];
        clear(sums);
#pragma unroll
        for (int r = 0; r < EACH; r++) most[r] = -3.402823466e38f, all[r] = 0;
        for (int first = range.low; first < range.high; first += TILE) {
            float p[EACH][EACH], largest[EACH], part[EACH], less[EACH];
            multiply(s, it.queries(g, q), it.first, it.keys(g, k), first, g.depth, p);
#pragma unroll
            for (int r = 0; r < EACH; r++) {
                largest[r] = most[r];
#pragma unroll
                for (int c = 0; c < EACH; c++) {
                    int query = it.first + me.row + r * SIDE, key = first + me.column + c * SIDE;
                    p[r][c] = seen(g, query, key) ? p[r][c] * g.scale + bias.at(g, it, query, key) : -infinity();
                    if (p[r][c] > largest[r]) largest[r] = p[r][c];
                }
            }
            across(s, largest, [](float a, float b) { return b > a ? b : a; });
#pragma unroll
            for (int r = 0; r < EACH; r++) {
                part[r] = 0;
#pragma unroll
                for (int c = 0; c < EACH; c++) {
                    p[r][c] = expf(p[r][c] - largest[r]);
                    part[r] += p[r][c];
                    int key = first + me.column + c * SIDE;
                    s.tile[me.row + r * SIDE][me.column + c * SIDE] =
                        p[r][c] * factor(g, now, it.row + it.first + me.row + r * SIDE, key);
                }
                less[r] = expf(most[r] - largest[r]);
                most[r] = largest[r];
            }
            across(s, part, [](float a, float b) { return a + b; });
#pragma unroll
            for (int r = 0; r < EACH; r++) {
                all[r] = all[r] * less[r] + part[r];
#pragma unroll
                for (int c = 0; c < COLUMNS; c++) sums[r][c] *= less[r];
            }
            accumulate(s, false, it.keys(g, v), first, g.depth, sums);
        }
#pragma unroll
        for (int r = 0; r < EACH; r++) {
            int query = it.first + me.row + r * SIDE;
#pragma unroll
            for (int c = 0; c < COLUMNS; c++) sums[r][c] /= all[r];
            if (keeps && me.column == 0 && query < g.queries)
                ((float*)lse)[it.of_query(g, query)] = most[r] + logf(all[r]);
        }
        store_rows(it.tops(g, y), it.first, g.depth, sums, 1.0f);
    }
}

// Copies k and v of the step's tokens to their places among those that are kept. `pitch`: values from token to token of
// the former, which have `width` of them.
extern "C" __global__ void attention_keep(const T* k, const T* v, const int* places, T* keys, T* values, int64 samples,
                                          int tokens, int kept, int width, int pitch) {
    for (int64 i = first(); i < samples * tokens * width; i += step()) {
        int64 row = quotient(i, width), at = remainder(i, width, row), sample = quotient(row, tokens);
        int64 to = (sample * kept + places[remainder(row, tokens, sample)]) * width + at;
        store(keys, to, load(k, row * pitch + at));
        store(values, to, load(v, row * pitch + at));
    }
}

// The probabilities p and the gradients of the scores, of a tile of queries and keys, as a thread has them. `dropped`:
// the probabilities that v meets.
struct Slopes {
    float dropped[EACH][EACH], slope[EACH][EACH];

    __device__ Slopes(Shared& s, const Geometry& g, const Item& it, int from, int first, Rows<const T> q, Rows<const T> k,
                      Rows<const T> v, Rows<const T> dy, const float* lse, const float* delta, const Bias& bias,
                      uint32 now) {
        Me me;
        multiply(s, q, from, k, first, g.depth, dropped);
        multiply(s, dy, from, v, first, g.depth, slope);
#pragma unroll
        for (int r = 0; r < EACH; r++) {
            int query = from + me.row + r * SIDE;
            int64 at = it.of_query(g, query < g.queries ? query : 0);
#pragma unroll
            for (int c = 0; c < EACH; c++) {
                int key = first + me.column + c * SIDE;
                if (!seen(g, query, key)) {
                    dropped[r][c] = slope[r][c] = 0;
                    continue;
                }
                float score = dropped[r][c] * g.scale + bias.at(g, it, query, key);
                float p = expf(score - lse[at]), f = factor(g, now, it.row + query, key);
                slope[r][c] = p * (slope[r][c] * f - delta[at]);
                dropped[r][c] = p * f;
            }
        }
    }
};

__device__ inline void keep(Shared& s, const float (&value)[EACH][EACH]) {
    Me me;
#pragma unroll
    for (int r = 0; r < EACH; r++)
#pragma unroll
        for (int c = 0; c < EACH; c++) s.tile[me.row + r * SIDE][me.column + c * SIDE] = value[r][c];
    __syncthreads();
}

template <int COLUMNS>
__device__ inline void to_queries(const T* q, const T* k, const T* v, const float* lse, const T* dy, const void* iteration,
                                  const float* delta, T* dq, const Bias& bias, const Geometry& g) {
    __shared__ Shared s;
    uint32 now = g.limit ? now_of(iteration) : 0;
    for (int64 i = blockIdx.x; i < g.items; i += gridDim.x) {
        Item it(g, i, g.heads, g.queries);
        Range range = keys_of(g, it.first);
        float sums[EACH][COLUMNS];
        clear(sums);
        for (int first = range.low; first < range.high; first += TILE) {
            Slopes found(s, g, it, it.first, first, it.queries(g, q), it.keys(g, k), it.keys(g, v), it.tops(g, dy), lse,
                         delta, bias, now);
            keep(s, found.slope);
            accumulate(s, false, it.keys(g, k), first, g.depth, sums);
        }
        store_rows(it.queries(g, dq), it.first, g.depth, sums, g.scale);
    }
}

// dk and dv, those that are wanted.
template <int COLUMNS>
__device__ inline void to_keys(const T* q, const T* k, const T* v, const float* lse, const T* dy, const void* iteration,
                               const float* delta, T* dk, T* dv, int wants_k, int wants_v, const Bias& bias,
                               const Geometry& g) {
    __shared__ Shared s;
    uint32 now = g.limit ? now_of(iteration) : 0;
    int group = g.heads / g.kv_heads;
    for (int64 i = blockIdx.x; i < g.items; i += gridDim.x) {
        Item it(g, i, g.kv_heads, g.keys);
        Range range = queries_of(g, it.first);
        float of_k[EACH][COLUMNS], of_v[EACH][COLUMNS];
        clear(of_k);
        clear(of_v);
        int kv_head = it.head;
        for (int h = 0; h < group; h++) {
            it.of(g, kv_head * group + h);
            for (int from = range.low; from < range.high; from += TILE) {
                Slopes found(s, g, it, from, it.first, it.queries(g, q), it.keys(g, k), it.keys(g, v), it.tops(g, dy),
                             lse, delta, bias, now);
                if (wants_v) {
                    keep(s, found.dropped);
                    accumulate(s, true, it.tops(g, dy), from, g.depth, of_v);
                }
                if (wants_k) {
                    keep(s, found.slope);
                    accumulate(s, true, it.queries(g, q), from, g.depth, of_k);
                }
            }
        }
        if (wants_v) store_rows(it.keys(g, dv), it.first, g.depth, of_v, 1.0f);
        if (wants_k) store_rows(it.keys(g, dk), it.first, g.depth, of_k, g.scale);
    }
}

// The bias's gradient: a tile of it is the sum of its tiles of all samples, and heads, that share it. A block adds up
// `each` of these, a piece, in their order: partial (pieces, bias).
extern "C" __global__ void __launch_bounds__(256) attention_to_bias(
    const T* q, const T* k, const T* v, const float* lse, const T* dy, const void* iteration, const float* delta,
    float* partial, int64 sharing, int64 each, BIAS, SIZES) {
    __shared__ Shared s;
    Geometry g = GEOMETRY;
    Bias of = BIAS_GIVEN;
    uint32 now = g.limit ? now_of(iteration) : 0;
    Me me;
    int down = (queries + TILE - 1) / TILE, across = (keys + TILE - 1) / TILE, among = of.heads == 1 ? g.heads : 1;
    int64 slots = (int64)of.samples * of.heads;
    for (int64 i = blockIdx.x; i < items; i += gridDim.x) {
        int64 line = quotient(i, across), slice = quotient(line, down), piece = slice / slots, slot = slice % slots;
        int first = (int)remainder(i, across, line) * TILE, from = (int)remainder(line, down, slice) * TILE;
        float sums[EACH][EACH];
        clear(sums);
        for (int64 m = piece * each; m < sharing && m < (piece + 1) * each; m++) {
            Item it(g, 0, g.heads, g.queries);
            it.sample = m / among * of.samples + slot / of.heads;
            it.of(g, (int)(of.heads == 1 ? m % among : slot % of.heads));
            Slopes found(s, g, it, from, first, it.queries(g, q), it.keys(g, k), it.keys(g, v), it.tops(g, dy), lse,
                         delta, of, now);
#pragma unroll
            for (int r = 0; r < EACH; r++)
#pragma unroll
                for (int c = 0; c < EACH; c++) sums[r][c] += found.slope[r][c];
        }
        for (int r = 0; r < EACH; r++)
            for (int c = 0; c < EACH; c++) {
                int query = from + me.row + r * SIDE, key = first + me.column + c * SIDE;
                if (query < queries && key < keys) partial[(slice * queries + query) * keys + key] = sums[r][c];
            }
    }
}

extern "C" __global__ void attention_sum_pieces(const float* partial, T* dbias, int64 pieces, int64 n) {
    for (int64 i = first(); i < n; i += step()) {
        float sum = 0;
        for (int64 k = 0; k < pieces; k++) sum += partial[k * n + i];
        store(dbias, i, sum);
    }
}

// For heads of at most 16 * COLUMNS numbers.
#define KERNELS(DEEP, COLUMNS)                                                                                         \
    extern "C" __global__ void __launch_bounds__(256) attention_##DEEP(                                                \
        const T* q, const T* k, const T* v, const void* iteration, T* y, void* lse, int keeps, BIAS, SIZES) {          \
        attend<COLUMNS>(q, k, v, iteration, y, lse, keeps, BIAS_GIVEN, GEOMETRY);                                      \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(256) attention_kept_##DEEP(                                           \
        const T* q, const T* k, const T* v, const int* places, T* y, BIAS, SIZES) {                                    \
        Geometry g = GEOMETRY;                                                                                         \
        g.place = places[0];                                                                                           \
        attend<COLUMNS>(q, k, v, places, y, y, 0, BIAS_GIVEN, g);                                                      \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(256) attention_to_queries_##DEEP(                                     \
        const T* q, const T* k, const T* v, const float* lse, const T* dy, const void* iteration, const float* delta, \
        T* dq, BIAS, SIZES) {                                                                                          \
        to_queries<COLUMNS>(q, k, v, lse, dy, iteration, delta, dq, BIAS_GIVEN, GEOMETRY);                             \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(256) attention_to_keys_##DEEP(                                        \
        const T* q, const T* k, const T* v, const float* lse, const T* dy, const void* iteration, const float* delta, \
        T* dk, T* dv, int wants_k, int wants_v, BIAS, SIZES) {                                                         \
        to_keys<COLUMNS>(q, k, v, lse, dy, iteration, delta, dk, dv, wants_k, wants_v, BIAS_GIVEN, GEOMETRY);          \
    }
KERNELS(64, 4)
KERNELS(128, 8)
KERNELS(256, 16)
