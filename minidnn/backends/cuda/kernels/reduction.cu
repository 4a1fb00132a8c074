// Sums by channel, for two families. `bias` uses the sums of dy, and the sums of a ReLU's dx, taken while dx is
// computed. `normalization` uses the sum of x * dy, which is Scale's gamma gradient.
//
// The first stage sums chunks of items, and the second sums the chunks' sums; one chunk needs no second stage. Both add
// in an order that depends on shapes alone. The sums are stored as T, or by kernels with `_float` in their names as
// float: Scale's gradients are float in every storage.

#include "columns.cuh"

template <int V>
struct Sum {
    const T* dy;

    __device__ void begin(int) {}
    __device__ void operator()(int64 i, float (&sum)[1][V]) {
        Pack<V> b;
        get(dy, i, b);
        for (int v = 0; v < V; v++) sum[0][v] += b.at[v];
    }
};

template <int V>
struct SumOfProducts {
    const T *x, *dy;

    __device__ void begin(int) {}
    __device__ void operator()(int64 i, float (&sum)[1][V]) {
        Pack<V> a, b;
        get(x, i, a);
        get(dy, i, b);
        for (int v = 0; v < V; v++) sum[0][v] += a.at[v] * b.at[v];
    }
};

// dx = dy where y > 0, else 0 * dy, and the sum of dx. The sum takes each value before it is rounded to be stored.
template <int V>
struct RectifiedSum {
    const T *y, *dy;
    T* dx;  // may be dy

    __device__ void begin(int) {}
    __device__ void operator()(int64 i, float (&sum)[1][V]) {
        Pack<V> a, b;
        get(y, i, a);
        get(dy, i, b);
        for (int v = 0; v < V; v++) {
            b.at[v] = a.at[v] > 0 ? b.at[v] : 0 * b.at[v];
            sum[0][v] += b.at[v];
        }
        put(dx, i, b);
    }
};

struct Partial {  // (chunks, channels)
    float* to;
    int channels;

    __device__ void operator()(int, int64 chunk, int c, float v) { to[chunk * channels + c] = v; }
};

template <class S>
struct Whole {
    S* to;

    __device__ void operator()(int, int64, int c, float v) { store(to, c, v); }
};

#define SUMS(V, S, name)                                                                               \
    extern "C" __global__ void sum##name##_##V(const T* dy, S* db, COLUMNS) {                          \
        __shared__ float shared[V * COLUMN_BLOCK];                                                     \
        column_sums<V, 1>(COLUMNS_GIVEN, Sum<V>{dy}, Whole<S>{db}, shared);                            \
    }                                                                                                  \
    extern "C" __global__ void sum_products##name##_##V(const T* x, const T* dy, S* dw, COLUMNS) {     \
        __shared__ float shared[V * COLUMN_BLOCK];                                                     \
        column_sums<V, 1>(COLUMNS_GIVEN, SumOfProducts<V>{x, dy}, Whole<S>{dw}, shared);               \
    }                                                                                                  \
    extern "C" __global__ void rectified_sum##name##_##V(const T* y, const T* dy, T* dx, S* db, COLUMNS) { \
        __shared__ float shared[V * COLUMN_BLOCK];                                                     \
        column_sums<V, 1>(COLUMNS_GIVEN, RectifiedSum<V>{y, dy, dx}, Whole<S>{db}, shared);            \
    }
#define SUMS_OF_CHUNKS(V)                                                                                        \
    extern "C" __global__ void sum_chunks_##V(const T* dy, float* partial, COLUMNS) {                            \
        __shared__ float shared[V * COLUMN_BLOCK];                                                               \
        column_sums<V, 1>(COLUMNS_GIVEN, Sum<V>{dy}, Partial{partial, channels}, shared);                        \
    }                                                                                                            \
    extern "C" __global__ void sum_products_chunks_##V(const T* x, const T* dy, float* partial, COLUMNS) {       \
        __shared__ float shared[V * COLUMN_BLOCK];                                                               \
        column_sums<V, 1>(COLUMNS_GIVEN, SumOfProducts<V>{x, dy}, Partial{partial, channels}, shared);           \
    }                                                                                                            \
    extern "C" __global__ void rectified_sum_chunks_##V(const T* y, const T* dy, T* dx, float* partial, COLUMNS) { \
        __shared__ float shared[V * COLUMN_BLOCK];                                                               \
        column_sums<V, 1>(COLUMNS_GIVEN, RectifiedSum<V>{y, dy, dx}, Partial{partial, channels}, shared);        \
    }
SUMS(1, T, )
SUMS(4, T, )
SUMS(1, float, _float)
SUMS(4, float, _float)
SUMS_OF_CHUNKS(1)
SUMS_OF_CHUNKS(4)

// The second stage: out[c] = the sum of partial[., c].
#define FINISH(S, name)                                                                          \
    extern "C" __global__ void finish##name(const float* partial, S* out, COLUMNS) {             \
        __shared__ float shared[COLUMN_BLOCK];                                                   \
        column_sums<1, 1>(COLUMNS_GIVEN, SumOfPartials{partial}, Whole<S>{out}, shared);         \
    }
FINISH(T, )
FINISH(float, _float)
