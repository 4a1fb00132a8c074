// LayerNorm, RMSNorm, MVN and Normalize: each row is shifted by its mean and divided by its size.
//
// The mean is the first element plus the mean of the distances from it, and the variance is taken from the distances to
// the mean. So both are right however far from 0 a row is. Means, inverses of sizes, gamma and beta are float in every
// storage.

#include "columns.cuh"
#include "rows.cuh"

enum { VARIANCE, DEVIATION, NORM, NONE };  // the divisor

struct Statistics {
    float *mean, *inverse;  // null: not wanted
};

// y may have the bytes of x: each thread reads a value for the last time just before it overwrites it.
__device__ inline void normalize(const T* x, const float* gamma, const float* beta, T* y, Statistics kept, Rows g,
                                 int centred, int divisor, float eps, float (&shared)[ROW_BLOCK]) {
    Thread me(g);
    for_rows(g, me, [&](int64 row, int64 begin, bool there) {
        float first = there && centred ? load(x, begin) : 0.0f, middle = 0, scale = 1;
        if (centred) {
            float sum = 0;
            if (there)
                for (int k = me.lane; k < g.length; k += g.lanes) sum += load(x, begin + k * g.inner) - first;
            middle = of_row(g, me, shared, sum, Plus()) / g.length;
        }
        if (divisor != NONE) {
            float sum = 0;
            if (there)
                for (int k = me.lane; k < g.length; k += g.lanes) {
                    float away = load(x, begin + k * g.inner) - first - middle;
                    sum += away * away;
                }
            float squares = of_row(g, me, shared, sum, Plus());
            if (divisor == DEVIATION) scale = 1 / (sqrtf(squares / g.length) + eps);
            else scale = 1 / sqrtf((divisor == NORM ? squares : squares / g.length) + eps);
        }
        if (!there) return;
        for (int k = me.lane; k < g.length; k += g.lanes) {
            int64 i = begin + k * g.inner;
            float v = (load(x, i) - first - middle) * scale;
            store(y, i, gamma ? v * gamma[k] + beta[k] : v);
        }
        if (me.lane == 0 && kept.mean) kept.mean[row] = first + middle;
        if (me.lane == 0 && kept.inverse) kept.inverse[row] = scale;
    });
}

extern "C" __global__ void forward(const T* x, T* y, int centred, int divisor, float eps, ROWS) {
    __shared__ float shared[ROW_BLOCK];
    normalize(x, nullptr, nullptr, y, {nullptr, nullptr}, ROWS_GIVEN, centred, divisor, eps, shared);
}
extern "C" __global__ void forward_sized(const T* x, T* y, float* inverse, int centred, int divisor, float eps, ROWS) {
    __shared__ float shared[ROW_BLOCK];
    normalize(x, nullptr, nullptr, y, {nullptr, inverse}, ROWS_GIVEN, centred, divisor, eps, shared);
}
extern "C" __global__ void forward_scaled(const T* x, const float* gamma, const float* beta, T* y,
                                          float* inverse, float* mean, int centred, int divisor, float eps, ROWS) {
    __shared__ float shared[ROW_BLOCK];
    normalize(x, gamma, beta, y, {mean, inverse}, ROWS_GIVEN, centred, divisor, eps, shared);
}

// dx = inverse (g - mean(g) - n factor mean(g n)), where g is dy (* gamma) and n the normalized x. A row that is not
// centred has no mean(g). One that was divided by its norm has the sum of g n in place of its mean. Without `mean`, x is n itself; without `inverse`
// there is no x. dx may have the bytes of x or dy.
__device__ inline void differentiate(const T* x, const float* mean, const float* inverse, const float* gamma,
                                     const T* dy, T* dx, Rows r, int centred, int divisor, float eps,
                                     float (&shared)[ROW_BLOCK]) {
    Thread me(r);
    for_rows(r, me, [&](int64 row, int64 begin, bool there) {
        float scale = there && inverse ? inverse[row] : 1.0f, shift = there && mean ? mean[row] : 0.0f;
        auto gradient = [&](int k) { return load(dy, begin + k * r.inner) * (gamma ? gamma[k] : 1.0f); };
        auto normalized = [&](int k) {
            float v = load(x, begin + k * r.inner);
            return mean ? (v - shift) * scale : v;
        };
        float level = 0, along = 0;
        if (there)
            for (int k = me.lane; k < r.length; k += r.lanes) {
                float g = gradient(k);
                level += g;
                if (inverse) along += g * normalized(k);
            }
        level = centred ? of_row(r, me, shared, level, Plus()) / r.length : 0;
        if (inverse) {
            along = of_row(r, me, shared, along, Plus());
            if (divisor != NORM) along /= r.length;
            if (divisor == DEVIATION) {
                // deviation / (deviation + eps); 0 where all elements are equal, and the normalized ones are 0
                float share = 1 - scale * eps;
                along = share <= 0 ? 0 : along / share;
            }
        }
        if (!there) return;
        for (int k = me.lane; k < r.length; k += r.lanes) {
            float away = gradient(k) - level;
            store(dx, begin + k * r.inner, inverse ? (away - normalized(k) * along) * scale : away);
        }
    });
}

extern "C" __global__ void backward(const T* dy, T* dx, int centred, int divisor, float eps, ROWS) {
    __shared__ float shared[ROW_BLOCK];
    differentiate(nullptr, nullptr, nullptr, nullptr, dy, dx, ROWS_GIVEN, centred, divisor, eps, shared);
}
extern "C" __global__ void backward_sized(const T* y, const T* dy, const float* inverse, T* dx, int centred,
                                          int divisor, float eps, ROWS) {
    __shared__ float shared[ROW_BLOCK];
    differentiate(y, nullptr, inverse, nullptr, dy, dx, ROWS_GIVEN, centred, divisor, eps, shared);
}
extern "C" __global__ void backward_scaled(const T* x, const T* dy, const float* inverse, const float* mean,
                                           const float* gamma, T* dx, int centred, int divisor, float eps, ROWS) {
    __shared__ float shared[ROW_BLOCK];
    differentiate(x, mean, inverse, gamma, dy, dx, ROWS_GIVEN, centred, divisor, eps, shared);
}

// ---- the gradients of gamma and beta: sums over rows of dy times the normalized x, and of dy. A channel is a place in
// a row, and an item is a row.

template <int V>
struct SumsOfRows {
    const T *x, *dy;
    const float *mean, *inverse;
    int length, inner;

    __device__ void begin(int) {}
    __device__ void operator()(int64 i, float (&sum)[2][V]) {
        Pack<V> a, b;
        get(x, i, a);
        get(dy, i, b);
        int64 group = over(i * V, (int64)length * inner);
        int64 row = inner == 1 ? group : group * inner + remainder(i, inner, quotient(i, inner));
        for (int v = 0; v < V; v++) {
            sum[0][v] += b.at[v] * ((a.at[v] - mean[row]) * inverse[row]);
            sum[1][v] += b.at[v];
        }
    }
};

#define FILTER(V)                                                                                                 \
    extern "C" __global__ void filter_##V(const T* x, const T* dy, const float* inverse, const float* mean,       \
                                          float* dgamma, float* dbeta, int pitch, COLUMNS) {                      \
        __shared__ float shared[2 * V * COLUMN_BLOCK];                                                            \
        SumsOfRows<V> add{x, dy, mean, inverse, channels, inner};                                                 \
        column_sums<V, 2>(COLUMNS_GIVEN, add, TwoSums{dgamma, dbeta, pitch}, shared);                             \
    }
FILTER(1)
FILTER(4)

// Adds the chunks' sums; here `channels` counts both sums of each channel.
extern "C" __global__ void filter_finish(const float* partial, float* dgamma, float* dbeta, COLUMNS) {
    __shared__ float shared[COLUMN_BLOCK];
    column_sums<1, 1>(COLUMNS_GIVEN, SumOfPartials{partial}, TwoOut{dgamma, dbeta, channels / 2}, shared);
}
