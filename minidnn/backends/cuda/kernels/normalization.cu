// BatchNorm and Scale, alone and fused, with a ReLU behind or without, or with a sum and a ReLU. Statistics, gamma and
// beta are floats in every storage.

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
#ifdef SIXTEEN_BITS
MOMENTS(8)
#endif

// The sum of a value of each thread over the block's items, added as a tree, for all threads of a channel.
__device__ inline float sum_of_items(float (&shared)[COLUMN_BLOCK], float value, int across, int stride) {
    int t = threadIdx.x;
    shared[t] = value;
    for (int half = stride / 2; half; half /= 2) {
        __syncthreads();
        if (t < half * across) shared[t] += shared[t + half * across];
    }
    __syncthreads();
    float sum = shared[t % across];
    __syncthreads();  // before the next use of `shared`
    return sum;
}

// Merges the chunks' moments: first their mean, then the deviations from it. So no sum waits for a division, and no
// merge for another. Here `items` are the chunks; those of x are x_items, with x_inner.
extern "C" __global__ void moments_finish(const T* x, const float* partial, float* mean, float* variance,
                                          int64 x_items, int x_inner, COLUMNS) {
    __shared__ float shared[COLUMN_BLOCK];
    Place<1> here(COLUMNS_GIVEN);
    float n = (float)x_items, part = 1 / n, m = 0, m2 = 0;
    if (here.any)
#pragma unroll 4
        for (int64 i = here.begin; i < here.end; i += here.stride) {
            const float* at = partial + i * 3 * channels + here.channel;
            m += at[0] * part * at[channels];
        }
    m = sum_of_items(shared, m, across, here.stride);
    if (here.any)
#pragma unroll 4
        for (int64 i = here.begin; i < here.end; i += here.stride) {
            const float* at = partial + i * 3 * channels + here.channel;
            float delta = at[channels] - m;
            m2 += at[2 * (int64)channels] + at[0] * delta * delta;
        }
    m2 = sum_of_items(shared, m2, across, here.stride);
    if ((int)threadIdx.x < across && here.any)
        MomentsOfBatch{x, Columns{channels, x_inner, 1, x_items, x_items}, mean, variance}(0, here.channel, n, m, m2);
}

// ---- what a batch has of what its parts have: two numbers of each channel

constexpr int PARTS = 240;  // most parts of a launch
struct Parts {
    const float *x[PARTS], *y[PARTS];
};

// The first `before` parts have been added up already.
extern "C" __global__ void merge_sums(Parts of, int count, int before, float* x, float* y, int channels) {
    for (int64 c = first(); c < channels; c += step()) {
        float s = before ? x[c] : 0, t = before ? y[c] : 0;
        for (int k = 0; k < count; k++) s += of.x[k][c], t += of.y[k][c];
        x[c] = s, y[c] = t;
    }
}

// Merges parts that have as many values each. The first `before` of `all` parts have been merged into mean and variance.
// Until all have been, the mean is that of the differences from the first part's, which are small and so more exact.
extern "C" __global__ void merge_moments(Parts of, int count, int before, float* mean, float* variance, int channels,
                                         const float* pivot, int all) {
    for (int64 c = first(); c < channels; c += step()) {
        float m = before ? mean[c] : 0, v = before ? variance[c] : 0;
        for (int k = 0; k < count; k++) {
            float delta = of.x[k][c] - pivot[c] - m, part = 1.0f / (before + k + 1);
            m += delta * part;
            v += (of.y[k][c] - v) * part + delta * delta * (part * (1 - part));
        }
        mean[c] = before + count < all ? m : pivot[c] + m, variance[c] = v;
    }
}

// ---- running statistics

constexpr int NORMS = 72;  // most BatchNorms of a launch
struct Statistics {
    const float *mean[NORMS], *variance[NORMS];
    float *mean_sum[NORMS], *variance_sum[NORMS], *factor[NORMS];
    int channels[NORMS];
    float fraction[NORMS], unbiased[NORMS];
};

// sum <- fraction * sum + the batch's statistic (the variance is made unbiased); factor <- fraction * factor + 1. A
// block takes one BatchNorm after another, and each batch's row after the one before.
extern "C" __global__ void statistics(Statistics of, int count, int rows) {
    for (int k = blockIdx.x; k < count; k += gridDim.x) {
        float fraction = of.fraction[k];
        int channels = of.channels[k];
        for (int c = threadIdx.x; c < channels; c += blockDim.x)
            for (int64 i = c; i < (int64)rows * channels; i += channels) {
                of.mean_sum[k][c] = fraction * of.mean_sum[k][c] + of.mean[k][i];
                of.variance_sum[k][c] = fraction * of.variance_sum[k][c] + of.unbiased[k] * of.variance[k][i];
            }
        if (threadIdx.x == 0)
            for (int row = 0; row < rows; row++) of.factor[k][0] = fraction * of.factor[k][0] + 1;
    }
}

// The batch's statistics become the row of this micro-batch.
extern "C" __global__ void keep(float* means, float* variances, const float* mean, const float* variance,
                                const int64* iteration, int every, int channels) {
    int64 row = *iteration % every * channels;
    for (int64 c = first(); c < channels; c += step()) means[row + c] = mean[c], variances[row + c] = variance[c];
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

// What a kernel is given by channel. `factor` is null if mean and variance are the batch's, not running sums. `gamma` and
// `beta` are null if no Scale is fused with the BatchNorm.
struct Given {
    const float *mean, *variance, *factor, *gamma, *beta;
    float eps;
};

template <int V>
struct Affine {  // of V channels: xhat = (x - mean) scale, u = gamma xhat + beta
    Pack<V> mean, scale, gamma, beta;

    __device__ void begin(const Given& g, int c) {
        for (int v = 0; v < V; v++) {
            mean.at[v] = g.factor ? running(g.mean[c + v], *g.factor) : g.mean[c + v];
            scale.at[v] = 1 / sqrtf((g.factor ? running(g.variance[c + v], *g.factor) : g.variance[c + v]) + g.eps);
            gamma.at[v] = g.gamma ? g.gamma[c + v] : 1, beta.at[v] = g.beta ? g.beta[c + v] : 0;
        }
    }
    __device__ float xhat(float x, int v) const { return (x - mean.at[v]) * scale.at[v]; }
    __device__ float u(float xhat, int v) const { return xhat * gamma.at[v] + beta.at[v]; }
    // du: the gradient of y that the ReLU, if there is one, lets through
    template <bool RELU>
    __device__ float du(float xhat, float dy, int v) const {
        return !RELU || u(xhat, v) > 0 ? dy : 0 * dy;
    }
};

// ADD: with the shortcut, an element for each of x, added to u. The sum is rounded as Eltwise's is; u is not stored.
template <int V, bool RELU, bool ADD>
struct Normalize {
    Given given;
    const T *x, *shortcut;
    T* y;
    Affine<V> own;

    __device__ void begin(int c) { own.begin(given, c); }
    __device__ void operator()(int64 i) {
        Pack<V> a, b;
        get(x, i, a);
        if (ADD) get(shortcut, i, b);
        for (int v = 0; v < V; v++) {
            float u = own.u(own.xhat(a.at[v], v), v);
            if (ADD) u += b.at[v];
            a.at[v] = !RELU || u > 0 ? u : 0 * u + 0;  // without the sign of -0: see relu.cu
        }
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

// ---- backward: dx = gamma (du - mean(du) - xhat mean(du xhat)) / deviation. xhat and the sign of u are computed again.

template <int V, bool RELU>
struct SumsOfBackward {  // adds du, and du xhat: the gradients of beta and gamma
    Given given;
    const T *x, *dy;
    Affine<V> own;

    __device__ void begin(int c) { own.begin(given, c); }
    __device__ void operator()(int64 i, float (&sum)[2][V]) {
        Pack<V> a, b;
        get(x, i, a);
        get(dy, i, b);
        for (int v = 0; v < V; v++) {
            float xhat = own.xhat(a.at[v], v), du = own.template du<RELU>(xhat, b.at[v], v);
            sum[0][v] += du;
            sum[1][v] += du * xhat;
        }
    }
};

template <int V, bool RELU>
struct Backward {
    Given given;
    const T *x, *dy;
    const float *of_du, *of_product;
    T* dx;
    int64 count;  // values of a channel in the batch, of which these may be a part
    Affine<V> own;
    Pack<V> constant, of_xhat, factor;

    __device__ void begin(int c) {
        own.begin(given, c);
        for (int v = 0; v < V; v++) {
            constant.at[v] = of_du[c + v] / count;
            of_xhat.at[v] = of_product[c + v] / count;
            factor.at[v] = own.gamma.at[v] * own.scale.at[v];
        }
    }
    __device__ void operator()(int64 i) {
        Pack<V> a, b;
        get(x, i, a);
        get(dy, i, b);
        for (int v = 0; v < V; v++) {
            float xhat = own.xhat(a.at[v], v), du = own.template du<RELU>(xhat, b.at[v], v);
            b.at[v] = (du - constant.at[v] - xhat * of_xhat.at[v]) * factor.at[v];
        }
        put(dx, i, b);
    }
};

// Adds the chunks' sums; here `channels` counts both sums of each channel.
extern "C" __global__ void backward_finish(const float* partial, float* of_du, float* of_product, COLUMNS) {
    __shared__ float shared[COLUMN_BLOCK];
    column_sums<1, 1>(COLUMNS_GIVEN, SumOfPartials{partial}, TwoOut{of_du, of_product, channels / 2}, shared);
}

// x or the shortcut and y (and dx with x or dy) may be the same bytes if the op permits it, so they are not __restrict__.
// BEHIND: the parameters that a Scale behind the BatchNorm adds; `gamma` and `beta` are their values.
#define BATCH_NORM(V, RELU, name, BEHIND, gamma, beta)                                                            \
    extern "C" __global__ void normalize##name##_##V(const T* x, const float* mean, const float* variance,        \
                                                     BEHIND T* y, float eps, COLUMNS) {                           \
        Given given{mean, variance, nullptr, gamma, beta, eps};                                                   \
        map_columns<V>(COLUMNS_GIVEN, Normalize<V, RELU, false>{given, x, nullptr, y, {}});                       \
    }                                                                                                             \
    extern "C" __global__ void inference##name##_##V(const T* x, const float* mean_sum,                           \
                                                     const float* variance_sum, const float* factor, BEHIND T* y, \
                                                     float eps, COLUMNS) {                                        \
        Given given{mean_sum, variance_sum, factor, gamma, beta, eps};                                            \
        map_columns<V>(COLUMNS_GIVEN, Normalize<V, RELU, false>{given, x, nullptr, y, {}});                       \
    }                                                                                                             \
    extern "C" __global__ void backward_sums##name##_##V(const T* x, const float* mean, const float* variance,    \
                                                         BEHIND const T* dy, float* of_du, float* of_product,     \
                                                         int pitch, float eps, COLUMNS) {                         \
        __shared__ float shared[2 * V * COLUMN_BLOCK];                                                            \
        SumsOfBackward<V, RELU> add{{mean, variance, nullptr, gamma, beta, eps}, x, dy, {}};                      \
        column_sums<V, 2>(COLUMNS_GIVEN, add, TwoSums{of_du, of_product, pitch}, shared);                         \
    }                                                                                                             \
    extern "C" __global__ void backward##name##_##V(const T* x, const float* mean, const float* variance,         \
                                                    BEHIND const T* dy, const float* of_du,                       \
                                                    const float* of_product, T* dx, int64 count, float eps,       \
                                                    COLUMNS) {                                                    \
        Given given{mean, variance, nullptr, gamma, beta, eps};                                                   \
        Backward<V, RELU> each{given, x, dy, of_du, of_product, dx, count, {}, {}, {}, {}};                       \
        map_columns<V>(COLUMNS_GIVEN, each);                                                                      \
    }
#define JOIN(V)                                                                                                    \
    extern "C" __global__ void normalize_scale_add_relu_##V(                                                       \
        const T* x, const T* shortcut, const float* mean, const float* variance, const float* gamma,               \
        const float* beta, T* y, float eps, COLUMNS) {                                                             \
        Given given{mean, variance, nullptr, gamma, beta, eps};                                                    \
        map_columns<V>(COLUMNS_GIVEN, Normalize<V, true, true>{given, x, shortcut, y, {}});                        \
    }                                                                                                              \
    extern "C" __global__ void inference_scale_add_relu_##V(                                                       \
        const T* x, const T* shortcut, const float* mean_sum, const float* variance_sum, const float* factor,      \
        const float* gamma, const float* beta, T* y, float eps, COLUMNS) {                                         \
        Given given{mean_sum, variance_sum, factor, gamma, beta, eps};                                             \
        map_columns<V>(COLUMNS_GIVEN, Normalize<V, true, true>{given, x, shortcut, y, {}});                        \
    }
#define NOTHING
#define GAMMA_AND_BETA const float *gamma, const float *beta,
#define EACH(V)                                                                           \
    BATCH_NORM(V, false, , NOTHING, nullptr, nullptr)                                     \
    BATCH_NORM(V, false, _scale, GAMMA_AND_BETA, gamma, beta)                             \
    BATCH_NORM(V, true, _scale_relu, GAMMA_AND_BETA, gamma, beta)                         \
    JOIN(V)                                                                               \
    extern "C" __global__ void inference_backward_##V(                                    \
        const float* variance_sum, const float* factor, const T* dy, T* dx, float eps, COLUMNS) { \
        map_columns<V>(COLUMNS_GIVEN, Rescale<V>{dy, dx, variance_sum, factor, eps, {}}); \
    }
EACH(1)
EACH(4)
#ifdef SIXTEEN_BITS
EACH(8)
#endif

// ---- Scale: a factor, and perhaps a summand, by channel. y may have the bytes of x.

// For channels that are innermost, in a number that is a multiple of four; `four` is that number / 4.
template <bool SHIFT>
__device__ inline void scale_inner(const T* x, const float* gamma, const float* beta, T* y, int64 n4, int four) {
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
__device__ inline void scale_any(const T* x, const float* gamma, const float* beta, T* y, int64 n, int inner, int channels) {
    for (int64 i = first(); i < n; i += step()) {
        int64 row = quotient(i, inner);
        uint32 c = remainder(row, channels, quotient(row, channels));
        float v = load(x, i) * load(gamma, c);
        store(y, i, SHIFT ? v + load(beta, c) : v);
    }
}

extern "C" __global__ void scale_4(const T* x, const float* gamma, T* y, int64 n4, int four) {
    scale_inner<false>(x, gamma, nullptr, y, n4, four);
}
extern "C" __global__ void scale_shift_4(const T* x, const float* gamma, const float* beta, T* y, int64 n4, int four) {
    scale_inner<true>(x, gamma, beta, y, n4, four);
}
extern "C" __global__ void scale_1(const T* x, const float* gamma, T* y, int64 n, int inner, int channels) {
    scale_any<false>(x, gamma, nullptr, y, n, inner, channels);
}
extern "C" __global__ void scale_shift_1(
    const T* x, const float* gamma, const float* beta, T* y, int64 n, int inner, int channels) {
    scale_any<true>(x, gamma, beta, y, n, inner, channels);
}
