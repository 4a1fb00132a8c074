// Attention on tensor cores, for heads of at most 128 numbers, as attention.cu does it without.
//
// Each of a block's 4 warps has 16 of its ROWS queries (of dk and dv, keys) and meets OTHERS keys (queries) at a time.
// The scores stay in registers: as the sums of one product, and then, rounded to T, as an operand of the next.

#include "attention.cuh"
#include "mma.cuh"

constexpr int THREADS = 128;
constexpr float LOG2E = 1.4426950408889634f, LN2 = 0.6931471805599453f;

// 16 rows of a warp, of heads of at most DEEP numbers, with OTHERS rows at a time. A thread has rows g and g + 8, of a
// product with others the columns 2 t and 2 t + 1 of each 8, and likewise of sums over others.
template <int DEEP, int OTHERS>
struct Warp {
    static constexpr int PITCH = DEEP + UNITS, OWN = ROWS * PITCH, MET = OTHERS * PITCH, SCORES = OTHERS / 8;

    // s = own others'
    __device__ static void scores(const T* own, const T* others, float (&s)[SCORES][4]) {
        Lane l;
        clear(s);
#pragma unroll
        for (int k = 0; k < DEEP; k += K) {
            Factor a = in_rows<PITCH>(own, l.warp * 16, k);
#pragma unroll
            for (int n = 0; n < OTHERS; n += 16) two(s[n / 8], s[n / 8 + 1], a, in_rows<PITCH>(others, n, k));
        }
    }
    // sums += p others
    __device__ static void accumulate(const float (&p)[SCORES][4], const T* others, float (&sums)[DEEP / 8][4]) {
#pragma unroll
        for (int k = 0; k < OTHERS; k += K) {
            Factor a = of_sums(p, k);
#pragma unroll
            for (int d = 0; d < DEEP; d += 16)
                two(sums[d / 8], sums[d / 8 + 1], a, in_columns<PITCH, true>(others, d, k));
        }
    }
    __device__ static void fill_own(T* tile, Rows<const T> m, int first, const Geometry& g, int unit) {
        fetch<ROWS, DEEP, PITCH, THREADS>(tile, m.p + first * m.pitch, m.pitch, m.count - first, g.depth, unit);
    }
    __device__ static void fill_met(T* tile, Rows<const T> m, int first, const Geometry& g, int unit) {
        fetch<OTHERS, DEEP, PITCH, THREADS>(tile, m.p + first * m.pitch, m.pitch, m.count - first, g.depth, unit);
    }
    // Rows row and row + 8, each times its factor.
    __device__ static void store_rows(Rows<T> to, int row, const Geometry& g, const float (&sums)[DEEP / 8][4],
                                      float low, float high) {
        Lane l;
#pragma unroll
        for (int n = 0; n < DEEP / 8; n++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                int r = row + e / 2 * 8, d = n * 8 + l.t * 2 + e % 2;
                if (r < to.count && d < g.depth) store(to.p, r * to.pitch + d, sums[n][e] * (e < 2 ? low : high));
            }
    }
};

// Whether each of so many queries sees each of so many keys, and all are there.
__device__ inline bool all_seen(const Geometry& g, int query, int queries, int key, int keys) {
    if (query + queries > g.queries || key + keys > g.keys) return false;
    int place = query + g.place, least = place - (key + keys - 1), most = place + queries - 1 - key;
    return !(g.causal && least < 0) && (!g.window || (most < g.window && -least < g.window));
}

// A bit for each score of a thread, bit 4 n + e for s[n][e]. Rows are queries, or with KEYS_FIRST keys: this thread's
// are row and row + 8, and its columns column, column + 1 and those 8 n further.
struct Bits {
    uint32 v;
    __device__ bool at(int n, int e) const { return v >> (n * 4 + e) & 1; }
};

template <bool KEYS_FIRST, int SCORES>
__device__ inline Bits seen_bits(const Geometry& g, int row, int column) {
    uint32 bits = 0;
#pragma unroll 1
    for (int i = 0; i < SCORES * 4; i++) {
        int r = row + i / 2 % 2 * 8, c = column + i / 4 * 8 + i % 2;
        bits |= (uint32)(KEYS_FIRST ? seen(g, c, r) : seen(g, r, c)) << i;
    }
    return {bits};
}

// A bit for each of the four keys from `key` on, a multiple of four: whether the query keeps it (`factor`).
__device__ inline uint32 kept_keys(const Geometry& g, uint32 iteration, int64 row, int key) {
    Words w = philox(row * ((g.keys + 3) / 4) + key / 4, iteration, g.key, g.seed_low, g.seed_high);
    return (w.v[0] >= g.limit) | (w.v[1] >= g.limit) << 1 | (w.v[2] >= g.limit) << 2 | (w.v[3] >= g.limit) << 3;
}

// Whether a score is kept. Four keys have their random numbers together, and threads share them: two that have these keys
// of two queries, or with KEYS_FIRST four that have one of these keys each, of four queries. `head`: its first query.
template <bool KEYS_FIRST, int SCORES>
__device__ inline Bits kept_bits(const Geometry& g, uint32 iteration, int64 head, int row, int column) {
    uint32 bits = g.limit ? 0 : 0xFFFFFFFFu;
    int mine = KEYS_FIRST ? row % 4 : column / 2 % 2;  // which of the threads that share this one is
#pragma unroll 1
    for (int n = 0; g.limit && n < SCORES; n++, column += 8) {
        if (KEYS_FIRST) {  // this thread finds out for its score `mine`
            uint32 found = kept_keys(g, iteration, head + column + mine % 2, (row + mine / 2 * 8) / 4 * 4);
#pragma unroll
            for (int by = 0; by < 4; by++) {
                uint32 other = by ? __shfl_xor_sync(0xFFFFFFFFu, found, 4 * by) : found;
                bits |= (other >> mine & 1) << (n * 4 + (mine ^ by));
            }
        } else {  // for row row + 8 mine
            uint32 found = kept_keys(g, iteration, head + row + mine * 8, column / 4 * 4);
            uint32 other = __shfl_xor_sync(0xFFFFFFFFu, found, 1);
            uint32 low = mine ? other : found, high = mine ? found : other;
            bits |= (low >> mine * 2 & 3) << n * 4 | (high >> mine * 2 & 3) << (n * 4 + 2);
        }
    }
    return {bits};
}

// Over the four threads that have a row.
template <class F>
__device__ inline float over_row(float v, F f) {
    v = f(v, __shfl_xor_sync(0xFFFFFFFFu, v, 1));
    return f(v, __shfl_xor_sync(0xFFFFFFFFu, v, 2));
}

template <int DEEP, int OTHERS>
__device__ inline void attend(const T* q, const T* k, const T* v, const void* iteration, T* y, void* lse, int keeps,
                              int unit, const Geometry& g) {
    using W = Warp<DEEP, OTHERS>;
    extern __shared__ __align__(16) T tiles[];
    T *own = tiles, *keys = own + W::OWN, *values = keys + W::MET;
    Lane l;
    uint32 now = g.limit ? now_of(iteration) : 0;
    float scale = g.scale * LOG2E;  // scores, their maximum and logarithms to base 2
    for (int64 i = blockIdx.x; i < g.items; i += gridDim.x) {
        Item it(g, i, g.heads, g.queries);
        Range range = keys_of(g, it.first);
        int query = it.first + l.warp * 16 + l.g;  // and query + 8
        float most[2] = {-3.402823466e38f, -3.402823466e38f}, all[2] = {}, sums[DEEP / 8][4];
        clear(sums);
        W::fill_own(own, it.queries(g, q), it.first, g, unit);
        W::fill_met(keys, it.keys(g, k), range.low, g, unit);
        commit_group();
        for (int first = range.low; first < range.high; first += OTHERS) {
            W::fill_met(values, it.keys(g, v), first, g, unit);
            commit_group();
            wait_group<1>();
            __syncthreads();
            float p[W::SCORES][4];
            W::scores(own, keys, p);
            __syncthreads();
            if (first + OTHERS < range.high) W::fill_met(keys, it.keys(g, k), first + OTHERS, g, unit);
            commit_group();

            Bits sees = {0xFFFFFFFFu}, kept = kept_bits<false, W::SCORES>(g, now, it.row, query, first + l.t * 2);
            if (!all_seen(g, it.first, ROWS, first, OTHERS))
                sees = seen_bits<false, W::SCORES>(g, query, first + l.t * 2);
            float largest[2] = {most[0], most[1]};
#pragma unroll
            for (int n = 0; n < W::SCORES; n++)
#pragma unroll
                for (int e = 0; e < 4; e++) {
                    p[n][e] = sees.at(n, e) ? p[n][e] * scale : -infinity();
                    if (p[n][e] > largest[e / 2]) largest[e / 2] = p[n][e];
                }
#pragma unroll
            for (int r = 0; r < 2; r++) {
                largest[r] = over_row(largest[r], [](float a, float b) { return b > a ? b : a; });
                float less = exp2f(most[r] - largest[r]);
                most[r] = largest[r];
                all[r] *= less;
#pragma unroll
                for (int n = 0; n < DEEP / 8; n++) sums[n][2 * r] *= less, sums[n][2 * r + 1] *= less;
            }
#pragma unroll
            for (int n = 0; n < W::SCORES; n++)
#pragma unroll
                for (int e = 0; e < 4; e++) {
                    p[n][e] = exp2f(p[n][e] - most[e / 2]);
                    all[e / 2] += p[n][e];
                    p[n][e] = kept.at(n, e) ? p[n][e] * g.kept : 0.0f;
                }
            wait_group<1>();
            __syncthreads();
            W::accumulate(p, values, sums);
            __syncthreads();
        }
#pragma unroll
        for (int r = 0; r < 2; r++) {
            all[r] = over_row(all[r], [](float a, float b) { return a + b; });
            if (keeps && l.t == 0 && query + 8 * r < g.queries)
                ((float*)lse)[it.of_query(g, query + 8 * r)] = (most[r] + log2f(all[r])) * LN2;
        }
        W::store_rows(it.tops(g, y), query, g, sums, 1 / all[0], 1 / all[1]);
    }
}

template <int DEEP, int OTHERS>
__device__ inline void to_queries(const T* q, const T* k, const T* v, const float* lse, const T* dy, const void* iteration,
                                  const float* delta, T* dq, int unit, const Geometry& g) {
    using W = Warp<DEEP, OTHERS>;
    extern __shared__ __align__(16) T tiles[];
    T *own = tiles, *slopes = own + W::OWN, *keys = slopes + W::OWN, *values = keys + W::MET;
    Lane l;
    uint32 now = g.limit ? now_of(iteration) : 0;
    float scale = g.scale * LOG2E;
    for (int64 i = blockIdx.x; i < g.items; i += gridDim.x) {
        Item it(g, i, g.heads, g.queries);
        Range range = keys_of(g, it.first);
        int query = it.first + l.warp * 16 + l.g;
        float logs[2], less[2], sums[DEEP / 8][4];
        clear(sums);
#pragma unroll
        for (int r = 0; r < 2; r++) {
            int64 at = it.of_query(g, query + 8 * r < g.queries ? query + 8 * r : 0);
            logs[r] = lse[at] * LOG2E, less[r] = delta[at];
        }
        W::fill_own(own, it.queries(g, q), it.first, g, unit);
        W::fill_own(slopes, it.tops(g, dy), it.first, g, unit);
        for (int first = range.low; first < range.high; first += OTHERS) {
            W::fill_met(keys, it.keys(g, k), first, g, unit);
            W::fill_met(values, it.keys(g, v), first, g, unit);
            commit_group();
            wait_group<0>();
            __syncthreads();
            float p[W::SCORES][4], slope[W::SCORES][4];
            W::scores(own, keys, p);
            W::scores(slopes, values, slope);
            Bits sees = {0xFFFFFFFFu}, kept = kept_bits<false, W::SCORES>(g, now, it.row, query, first + l.t * 2);
            if (!all_seen(g, it.first, ROWS, first, OTHERS))
                sees = seen_bits<false, W::SCORES>(g, query, first + l.t * 2);
#pragma unroll
            for (int n = 0; n < W::SCORES; n++)
#pragma unroll
                for (int e = 0; e < 4; e++) {
                    float one = exp2f(p[n][e] * scale - logs[e / 2]);
                    float to = kept.at(n, e) ? slope[n][e] * g.kept : 0.0f;
                    slope[n][e] = sees.at(n, e) ? one * (to - less[e / 2]) : 0.0f;
                }
            W::accumulate(slope, keys, sums);
            __syncthreads();
        }
        commit_group(), wait_group<0>();  // of a tile that met no other one, before the next is on its way there
        W::store_rows(it.queries(g, dq), query, g, sums, g.scale, g.scale);
    }
}

// dk and dv, those that are wanted. Rows are keys, and others queries.
template <int DEEP, int OTHERS>
__device__ inline void to_keys(const T* q, const T* k, const T* v, const float* lse, const T* dy, const void* iteration,
                               const float* delta, T* dk, T* dv, int wants_k, int wants_v, int unit, const Geometry& g) {
    using W = Warp<DEEP, OTHERS>;
    extern __shared__ __align__(16) T tiles[];
    __shared__ float logs[OTHERS], less[OTHERS];
    T *own = tiles, *values = own + W::OWN, *queries = values + W::OWN, *slopes = queries + W::MET;
    Lane l;
    uint32 now = g.limit ? now_of(iteration) : 0;
    int group = g.heads / g.kv_heads;
    float scale = g.scale * LOG2E;
    for (int64 i = blockIdx.x; i < g.items; i += gridDim.x) {
        Item it(g, i, g.kv_heads, g.keys);
        Range range = queries_of(g, it.first);
        float of_k[DEEP / 8][4], of_v[DEEP / 8][4];
        clear(of_k);
        clear(of_v);
        int kv_head = it.head, key = it.first + l.warp * 16 + l.g;
        it.of(g, kv_head * group);
        W::fill_own(own, it.keys(g, k), it.first, g, unit);
        W::fill_own(values, it.keys(g, v), it.first, g, unit);
        for (int h = 0; h < group; h++) {
            it.of(g, kv_head * group + h);
            for (int first = range.low; first < range.high; first += OTHERS) {
                W::fill_met(queries, it.queries(g, q), first, g, unit);
                W::fill_met(slopes, it.tops(g, dy), first, g, unit);
                commit_group();
                for (int e = threadIdx.x; e < OTHERS; e += THREADS) {
                    int64 at = it.of_query(g, first + e < g.queries ? first + e : 0);
                    logs[e] = lse[at] * LOG2E, less[e] = delta[at];
                }
                wait_group<0>();
                __syncthreads();
                float p[W::SCORES][4], slope[W::SCORES][4];
                W::scores(own, queries, p);
                W::scores(values, slopes, slope);
                Bits sees = {0xFFFFFFFFu}, kept = kept_bits<true, W::SCORES>(g, now, it.row, key, first + l.t * 2);
                if (!all_seen(g, first, OTHERS, it.first, ROWS))
                    sees = seen_bits<true, W::SCORES>(g, key, first + l.t * 2);
#pragma unroll
                for (int n = 0; n < W::SCORES; n++)
#pragma unroll
                    for (int e = 0; e < 4; e++) {
                        int met = n * 8 + l.t * 2 + e % 2;
                        float one = sees.at(n, e) ? exp2f(p[n][e] * scale - logs[met]) : 0.0f;
                        float to = kept.at(n, e) ? slope[n][e] * g.kept : 0.0f;
                        slope[n][e] = sees.at(n, e) ? one * (to - less[met]) : 0.0f;
                        p[n][e] = kept.at(n, e) ? one * g.kept : 0.0f;
                    }
                if (wants_v) W::accumulate(p, slopes, of_v);
                if (wants_k) W::accumulate(slope, queries, of_k);
                __syncthreads();
            }
        }
        commit_group(), wait_group<0>();
        if (wants_v) W::store_rows(it.keys(g, dv), key, g, of_v, 1.0f, 1.0f);
        if (wants_k) W::store_rows(it.keys(g, dk), key, g, of_k, g.scale, g.scale);
    }
}

// For heads of at most DEEP numbers. OTHERS and BACK, those of backward, are
// as backends/cuda/attention.py says.
#define KERNELS(DEEP, OTHERS, BACK)                                                                                    \
    extern "C" __global__ void __launch_bounds__(128) tensor_attention_##DEEP(                                         \
        const T* q, const T* k, const T* v, const void* iteration, T* y, void* lse, int keeps, int unit, SIZES) {      \
        attend<DEEP, OTHERS>(q, k, v, iteration, y, lse, keeps, unit, GEOMETRY);                                       \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(128) tensor_attention_to_queries_##DEEP(                              \
        const T* q, const T* k, const T* v, const float* lse, const T* dy, const void* iteration, const float* delta,  \
        T* dq, int unit, SIZES) {                                                                                      \
        to_queries<DEEP, BACK>(q, k, v, lse, dy, iteration, delta, dq, unit, GEOMETRY);                                \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(128) tensor_attention_to_keys_##DEEP(                                 \
        const T* q, const T* k, const T* v, const float* lse, const T* dy, const void* iteration, const float* delta,  \
        T* dk, T* dv, int wants_k, int wants_v, int unit, SIZES) {                                                     \
        to_keys<DEEP, BACK>(q, k, v, lse, dy, iteration, delta, dk, dv, wants_k, wants_v, unit, GEOMETRY);             \
    }
KERNELS(64, sizeof(T) == 2 ? 64 : 32, sizeof(T) == 2 ? 64 : 32)
KERNELS(128, sizeof(T) == 2 ? 32 : 16, sizeof(T) == 2 ? 32 : 16)
