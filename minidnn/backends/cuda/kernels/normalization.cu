// BatchNorm and Scale. Statistics are floats in every storage.

#include "columns.cuh"

// ---- statistics of the batch

// Mean and sum of squared deviations of n values, merged as in Chan, Golub and LeVeque 1979. A difference of sums of
// squares would lose all digits if the mean is much larger than the deviation. One value of a channel, its pivot, is
// subtracted from all of them first: a mean that is rounded at the magnitude of x would still lose half the digits.
struct Moments {
    float n, mean, m2;
};

__device__ inline Moments merged(Moments a, Moments b) {
    float n = a.n + b.n;
    if (n == 0) return a;
    float delta = b.mean - a.mean, weight = b.n / n;
    return {n, a.mean + delta * weight, a.m2 + b.m2 + delta * delta * (a.n * weight)};
}

// Merges the threads' moments at shared[n, mean, m2][thread] over the block's items, as a tree.
__device__ inline void merge_block(float (&shared)[3 * COLUMN_BLOCK], int across, int stride) {
    float *n = shared, *mean = shared + COLUMN_BLOCK, *m2 = shared + 2 * COLUMN_BLOCK;
    int t = threadIdx.x;
    for (int half = stride / 2; half; half /= 2) {
        __syncthreads();
        if (t < half * across) {
            int u = t + half * across;
            Moments both = merged({n[t], mean[t], m2[t]}, {n[u], mean[u], m2[u]});
            n[t] = both.n, mean[t] = both.mean, m2[t] = both.m2;
        }
    }
}

// The median of a channel's first, middle and last value, which is seldom far from the mean. It is never so far that it
// spoils the result: each of n values is within sqrt(n) deviations of their mean.
__device__ inline float pivot_of(const T* x, const Columns& g, int channel) {
    float a = load(x, place_of<1>(g, 0, channel)), b = load(x, place_of<1>(g, g.items / 2, channel));
    float c = load(x, place_of<1>(g, g.items - 1, channel));
    return fmaxf(fminf(a, b), fminf(fmaxf(a, b), c));
}

// The moments of a chunk's items. A thread takes four items at a time: first their own mean, then one merge.
template <int V, class Out>
__device__ inline void moments(const T* x, const Columns& g, Out out, float (&shared)[3 * COLUMN_BLOCK]) {
    Place<V> here(g);
    float n = 0, pivot[V], mean[V], m2[V];
    for (int v = 0; v < V; v++) mean[v] = m2[v] = 0;
    if (here.any) {
        for (int v = 0; v < V; v++) pivot[v] = pivot_of(x, g, here.channel + v);
        int64 i = here.begin;
        for (; i + 3 * here.stride < here.end; i += 4 * here.stride) {
            Pack<V> a, b, c, d;
            get(x, place_of<V>(g, i, here.channel), a);
            get(x, place_of<V>(g, i + here.stride, here.channel), b);
            get(x, place_of<V>(g, i + 2 * here.stride, here.channel), c);
            get(x, place_of<V>(g, i + 3 * here.stride, here.channel), d);
            float weight = 4 / (n + 4);
            for (int v = 0; v < V; v++) {
                float xa = a.at[v] - pivot[v], xb = b.at[v] - pivot[v], xc = c.at[v] - pivot[v], xd = d.at[v] - pivot[v];
                float m = 0.25f * ((xa + xb) + (xc + xd)), delta = m - mean[v];
                xa -= m, xb -= m, xc -= m, xd -= m;
                mean[v] += delta * weight;
                m2[v] += ((xa * xa + xb * xb) + (xc * xc + xd * xd)) + delta * delta * (n * weight);
            }
            n += 4;
        }
        for (; i < here.end; i += here.stride) {
            Pack<V> a;
            get(x, place_of<V>(g, i, here.channel), a);
            float weight = 1 / (n + 1);
            for (int v = 0; v < V; v++) {
                float delta = a.at[v] - pivot[v] - mean[v];
                mean[v] += delta * weight;
                m2[v] += delta * delta * (n * weight);
            }
            n += 1;
        }
    }
    int t = threadIdx.x;
    for (int v = 0; v < V; v++) {
        __syncthreads();  // the moments of the channel before have been read
        shared[t] = n, shared[COLUMN_BLOCK + t] = mean[v], shared[2 * COLUMN_BLOCK + t] = m2[v];
        merge_block(shared, g.across, here.stride);
        if (t < g.across && here.any)
            out(here.chunk, here.channel + v, shared[t], shared[COLUMN_BLOCK + t], shared[2 * COLUMN_BLOCK + t]);
    }
}

struct MomentsOfChunk {  // writes to an array (chunks, [n, mean, m2], channels)
    float* to;
    int channels;

    __device__ void operator()(int64 chunk, int c, float n, float mean, float m2) {
        float* at = to + chunk * 3 * channels + c;
        at[0] = n, at[channels] = mean, at[2 * (int64)channels] = m2;
    }
};

struct MomentsOfBatch {  // writes the mean and the biased variance
    const T* x;
    Columns of_x;
    float *mean, *variance;

    __device__ void operator()(int64, int c, float n, float m, float m2) {
        mean[c] = pivot_of(x, of_x, c) + m;
        variance[c] = m2 / n;
    }
};

#define MOMENTS(V)                                                                                         \
    extern "C" __global__ void moments_##V(const T* x, float* mean, float* variance, COLUMNS) {            \
        __shared__ float shared[3 * COLUMN_BLOCK];                                                         \
        moments<V>(x, COLUMNS_GIVEN, MomentsOfBatch{x, COLUMNS_GIVEN, mean, variance}, shared);            \
    }                                                                                                      \
    extern "C" __global__ void moments_chunks_##V(const T* x, float* partial, COLUMNS) {                   \
        __shared__ float shared[3 * COLUMN_BLOCK];                                                         \
        moments<V>(x, COLUMNS_GIVEN, MomentsOfChunk{partial, channels}, shared);                           \
    }
MOMENTS(1)
MOMENTS(4)

// Merges the chunks' moments. Here `items` are the chunks; those of x are x_items, with x_inner.
extern "C" __global__ void moments_finish(const T* x, const float* partial, float* mean, float* variance,
                                          int64 x_items, int x_inner, COLUMNS) {
    __shared__ float shared[3 * COLUMN_BLOCK];
    Columns g = COLUMNS_GIVEN;
    Place<1> here(g);
    Moments all = {0, 0, 0};
    if (here.any)
        for (int64 i = here.begin; i < here.end; i += here.stride) {
            const float* at = partial + i * 3 * channels + here.channel;
            all = merged(all, {at[0], at[channels], at[2 * (int64)channels]});
        }
    int t = threadIdx.x;
    shared[t] = all.n, shared[COLUMN_BLOCK + t] = all.mean, shared[2 * COLUMN_BLOCK + t] = all.m2;
    merge_block(shared, across, here.stride);
    if (t < across && here.any)
        MomentsOfBatch{x, Columns{channels, x_inner, 1, x_items, x_items}, mean, variance}(
            0, here.channel, shared[t], shared[COLUMN_BLOCK + t], shared[2 * COLUMN_BLOCK + t]);
}

// ---- running statistics

// sum <- fraction * sum + the batch's statistic (the variance is made unbiased); factor <- fraction * factor + 1
extern "C" __global__ void statistics(const float* mean, const float* variance, float* mean_sum, float* variance_sum,
                                      float* factor, int channels, float fraction, float unbiased) {
    for (int64 c = first(); c < channels; c += step()) {
        mean_sum[c] = fraction * mean_sum[c] + mean[c];
        variance_sum[c] = fraction * variance_sum[c] + unbiased * variance[c];
        if (c == 0) factor[0] = fraction * factor[0] + 1;
    }
}

// A running statistic from its sum; 0 before the first update.
__device__ inline float running(float total, float factor) { return factor != 0 ? total / factor : 0; }

// ---- normalizing. A thread keeps the numbers of its channels in registers.

template <int V, class Each>
__device__ inline void map_columns(const Columns& g, Each each) {
    Place<V> here(g);
    if (!here.any) return;
    each.begin(here.channel);
#pragma unroll 2
    for (int64 i = here.begin; i < here.end; i += here.stride) each(place_of<V>(g, i, here.channel));
}

template <int V>
struct Normalize {
    const T* x;
    T* y;
    const float *mean, *variance, *factor;  // a null factor: mean and variance are the batch's, not running sums
    float eps;
    Pack<V> m, scale;

    __device__ void begin(int c) {
        for (int v = 0; v < V; v++) {
            m.at[v] = factor ? running(mean[c + v], *factor) : mean[c + v];
            scale.at[v] = 1 / sqrtf((factor ? running(variance[c + v], *factor) : variance[c + v]) + eps);
        }
    }
    __device__ void operator()(int64 i) {
        Pack<V> a;
        get(x, i, a);
        for (int v = 0; v < V; v++) a.at[v] = (a.at[v] - m.at[v]) * scale.at[v];
        put(y, i, a);
    }
};

template <int V>
struct Rescale {
    const T* dy;
    T* dx;
    const float *variance_sum, *factor;
    float eps;
    Pack<V> scale;

    __device__ void begin(int c) {
        for (int v = 0; v < V; v++) scale.at[v] = 1 / sqrtf(running(variance_sum[c + v], *factor) + eps);
    }
    __device__ void operator()(int64 i) {
        Pack<V> a;
        get(dy, i, a);
        for (int v = 0; v < V; v++) a.at[v] *= scale.at[v];
        put(dx, i, a);
    }
};

// ---- backward: dx = (dy - mean(dy) - xhat mean(dy xhat)) / deviation, xhat = (x - mean) / deviation

template <int V>
struct SumsOfBackward {  // adds dy, and dy (x - mean)
    const T *x, *dy;
    const float* mean;
    Pack<V> m;

    __device__ void begin(int c) {
        for (int v = 0; v < V; v++) m.at[v] = mean[c + v];
    }
    __device__ void operator()(int64 i, float (&sum)[2][V]) {
        Pack<V> a, b;
        get(x, i, a);
        get(dy, i, b);
        for (int v = 0; v < V; v++) {
            sum[0][v] += b.at[v];
            sum[1][v] += b.at[v] * (a.at[v] - m.at[v]);
        }
    }
};

struct TwoSums {  // writes to an array (chunks, 2, channels)
    float* to;
    int channels;

    __device__ void operator()(int k, int64 chunk, int c, float v) { to[(chunk * 2 + k) * channels + c] = v; }
};

template <int V>
struct Backward {
    const T *x, *dy;
    const float *mean, *variance, *sums;
    T* dx;
    float eps;
    int channels;
    int64 items;
    Pack<V> m, scale, of_x, constant;

    __device__ void begin(int c) {
        for (int v = 0; v < V; v++) {
            m.at[v] = mean[c + v];
            scale.at[v] = 1 / sqrtf(variance[c + v] + eps);
            of_x.at[v] = sums[channels + c + v] / items * scale.at[v] * scale.at[v];
            constant.at[v] = sums[c + v] / items;
        }
    }
    __device__ void operator()(int64 i) {
        Pack<V> a, b;
        get(x, i, a);
        get(dy, i, b);
        for (int v = 0; v < V; v++)
            b.at[v] = (b.at[v] - constant.at[v] - (a.at[v] - m.at[v]) * of_x.at[v]) * scale.at[v];
        put(dx, i, b);
    }
};

struct FloatOut {
    float* to;

    __device__ void operator()(int, int64, int c, float v) { to[c] = v; }
};

extern "C" __global__ void backward_finish(const float* partial, float* sums, COLUMNS) {
    __shared__ float shared[COLUMN_BLOCK];
    column_sums<1, 1>(COLUMNS_GIVEN, SumOfPartials{partial}, FloatOut{sums}, shared);
}

// x and y (and dy and dx) may be the same bytes if the op permits it, so they are not __restrict__.
#define NORMALIZE(V)                                                                                           \
    extern "C" __global__ void normalize_##V(const T* x, const float* mean, const float* variance, T* y,       \
                                             float eps, COLUMNS) {                                             \
        map_columns<V>(COLUMNS_GIVEN, Normalize<V>{x, y, mean, variance, nullptr, eps, {}, {}});               \
    }                                                                                                          \
    extern "C" __global__ void inference_##V(const T* x, const float* mean_sum, const float* variance_sum,     \
                                             const float* factor, T* y, float eps, COLUMNS) {                  \
        map_columns<V>(COLUMNS_GIVEN, Normalize<V>{x, y, mean_sum, variance_sum, factor, eps, {}, {}});        \
    }                                                                                                          \
    extern "C" __global__ void inference_backward_##V(const float* variance_sum, const float* factor,          \
                                                      const T* dy, T* dx, float eps, COLUMNS) {                \
        map_columns<V>(COLUMNS_GIVEN, Rescale<V>{dy, dx, variance_sum, factor, eps, {}});                      \
    }                                                                                                          \
    extern "C" __global__ void backward_sums_##V(const T* x, const float* mean, const T* dy, float* partial,   \
                                                 COLUMNS) {                                                    \
        __shared__ float shared[2 * V * COLUMN_BLOCK];                                                         \
        column_sums<V, 2>(COLUMNS_GIVEN, SumsOfBackward<V>{x, dy, mean, {}}, TwoSums{partial, channels}, shared); \
    }                                                                                                          \
    extern "C" __global__ void backward_##V(const T* x, const float* mean, const float* variance, const T* dy, \
                                            const float* sums, T* dx, float eps, COLUMNS) {                    \
        Backward<V> each{x, dy, mean, variance, sums, dx, eps, channels, items, {}, {}, {}, {}};               \
        map_columns<V>(COLUMNS_GIVEN, each);                                                                   \
    }
NORMALIZE(1)
NORMALIZE(4)

// ---- Scale: a factor, and perhaps a summand, by channel. y may have the bytes of x.

// For channels that are innermost, in a number that is a multiple of four; `four` is that number / 4.
template <bool SHIFT>
__device__ inline void scale_inner(const T* x, const T* gamma, const T* beta, T* y, int64 n4, int four) {
    for (int64 i = first(); i < n4; i += step()) {
        uint32 c = remainder(i, four, quotient(i, four));
        float4 v = load4(x, i), g = load4(gamma, c), b = make_float4(0, 0, 0, 0);
        if (SHIFT) b = load4(beta, c);
        auto f = [](float u, float factor, float summand) { return SHIFT ? u * factor + summand : u * factor; };
        store4(y, i, apply4(f, v, g, b));
    }
}

// For any layout: `inner` elements of a channel are neighbours in memory.
template <bool SHIFT>
__device__ inline void scale_any(const T* x, const T* gamma, const T* beta, T* y, int64 n, int inner, int channels) {
    for (int64 i = first(); i < n; i += step()) {
        int64 row = quotient(i, inner);
        uint32 c = remainder(row, channels, quotient(row, channels));
        float v = load(x, i) * load(gamma, c);
        store(y, i, SHIFT ? v + load(beta, c) : v);
    }
}

extern "C" __global__ void scale_4(const T* x, const T* gamma, T* y, int64 n4, int four) {
    scale_inner<false>(x, gamma, nullptr, y, n4, four);
}
extern "C" __global__ void scale_shift_4(const T* x, const T* gamma, const T* beta, T* y, int64 n4, int four) {
    scale_inner<true>(x, gamma, beta, y, n4, four);
}
extern "C" __global__ void scale_1(const T* x, const T* gamma, T* y, int64 n, int inner, int channels) {
    scale_any<false>(x, gamma, nullptr, y, n, inner, channels);
}
extern "C" __global__ void scale_shift_1(
    const T* x, const T* gamma, const T* beta, T* y, int64 n, int inner, int channels) {
    scale_any<true>(x, gamma, beta, y, n, inner, channels);
}
