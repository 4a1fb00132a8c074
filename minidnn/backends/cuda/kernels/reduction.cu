// Sums by channel, for three families. `bias` uses the sums of dy, and the sums of a ReLU's dx, taken while dx is
// computed. `normalization` uses the sum of x * dy, which is Scale's gamma gradient. `activation` uses that sum where x
// is not positive, which is PReLU's slope gradient.
//
// The first stage sums chunks of items, and the second sums the chunks' sums; one chunk needs no second stage. One launch
// makes both, and both add in an order that depends on shapes alone. The sums are stored as T, or by kernels with
// `_float` in their names as float: Scale's gradients are float in every storage.

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

template <int V, bool FALLING>  // FALLING: only where x is not positive
struct SumOfProducts {
    const T *x, *dy;

    __device__ void begin(int) {}
    __device__ void operator()(int64 i, float (&sum)[1][V]) {
        Pack<V> a, b;
        get(x, i, a);
        get(dy, i, b);
        for (int v = 0; v < V; v++) sum[0][v] += FALLING && a.at[v] > 0 ? 0 : a.at[v] * b.at[v];
    }
};

// b = b where a > 0, else 0 * b, and adds b to the sum. The sum takes each value before it is rounded to be stored.
template <int V>
__device__ inline void rectified_and_summed(const Pack<V>& a, Pack<V>& b, float (&sum)[1][V]) {
    for (int v = 0; v < V; v++) {
        b.at[v] = a.at[v] > 0 ? b.at[v] : 0 * b.at[v];
        sum[0][v] += b.at[v];
    }
}

// dx = dy where y > 0, else 0 * dy, and the sum of dx
template <int V>
struct RectifiedSum {
    const T *y, *dy;
    T* dx;  // may be dy

    __device__ void begin(int) {}
    __device__ void operator()(int64 i, float (&sum)[1][V]) {
        Pack<V> a, b;
        get(y, i, a);
        get(dy, i, b);
        rectified_and_summed(a, b, sum);
        put(dx, i, b);
    }
};

// The V values from p on. `aligned`: p is a multiple of V values, counted from the tensor's begin.
__device__ inline void get_from(const T* p, bool, Pack<1>& v) { get(p, 0, v); }
__device__ inline void get_from(const T* p, bool aligned, Pack<4>& v) {
    if (aligned) get(p, 0, v);
    else
        for (int k = 0; k < 4; k++) v.at[k] = load(p, k);
}

// The same where y and dy are slices: in memory an item lies so many elements (a pitch) behind the one before. Each
// thread has such a struct of its own, which follows the thread from item to item. Unless `rectify`, dx = dy.
template <int V>
struct RectifiedSumOfSlice {
    const T *y, *dy;
    T* dx;
    int y_pitch, dy_pitch;
    bool rectify, aligned;
    Columns g;

    __device__ void begin(int channel) {
        Place<V> here(g);
        y += here.begin * y_pitch + channel;
        dy += here.begin * dy_pitch + channel;
        y_pitch *= here.stride, dy_pitch *= here.stride;  // from now on between two items of the thread
    }
    __device__ void operator()(int64 i, float (&sum)[1][V]) {
        Pack<V> a, b;
        if (rectify) get_from(y, aligned, a);
        else
            for (int v = 0; v < V; v++) a.at[v] = 1;
        get_from(dy, aligned, b);
        rectified_and_summed(a, b, sum);
        put(dx, i, b);
        y += y_pitch, dy += dy_pitch;
    }
};

// Where a block's sums go: with one chunk to the result, else to an array (chunks, channels).
template <class S>
struct SumsOf {
    float* partial;
    S* to;
    int channels;
    bool whole;

    __device__ void operator()(int, int64 chunk, int c, float v) {
        if (whole) store(to, c, v);
        else partial[chunk * channels + c] = v;
    }
};

// Counts the blocks of a tile that have ended, in 2 KiB of the module itself. Each launch leaves zeros. No two launches
// of a module run at once, since all are on the compute stream.
constexpr int TILES = 512;  // with more tiles than half of the most blocks there is one chunk (columns.py)
static __device__ uint32 ended[TILES];

// Whether this block is the last of its tile's `chunks` to come here. If so, it sees all that the others wrote before,
// if it reads past its own cache (__ldcg). `flag` is a shared value that is free.
__device__ inline bool is_last(int tile, int chunks, float& flag) {
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) flag = atomicInc(ended + tile, chunks - 1) == (uint32)chunks - 1;
    __syncthreads();
    bool last = flag != 0;
    __syncthreads();  // before the next use of the shared value
    return last;
}

// Both stages. The last block of a tile to end the first one makes the second. It adds the chunks' sums in an order that
// does not depend on which block it is.
template <int V, class Add, class S>
__device__ inline void sums(const Columns& g, Add add, float* partial, S* out, float (&shared)[V * COLUMN_BLOCK]) {
    int groups = (g.channels + V - 1) / V, tiles = (groups + g.across - 1) / g.across;
    int chunks = gridDim.x / tiles, tile = blockIdx.x % tiles;
    column_sums<V, 1>(g, add, SumsOf<S>{partial, out, g.channels, chunks == 1}, shared);
    if (chunks == 1 || !is_last(tile, chunks, shared[0])) return;
    int wide = g.across * V, t = threadIdx.x, c = tile * wide + t % wide;
    float sum = 0;
    if (c < g.channels)
#pragma unroll 8
        for (int k = t / wide; k < chunks; k += COLUMN_BLOCK / wide) sum += __ldcg(partial + (int64)k * g.channels + c);
    shared[t] = sum;
    for (int half = COLUMN_BLOCK / wide / 2; half; half /= 2) {
        __syncthreads();
        if (t < half * wide) shared[t] += shared[t + half * wide];
    }
    if (t < wide && c < g.channels) store(out, c, shared[t]);
}

#define SUMS(V, S, name)                                                                                          \
    extern "C" __global__ void sum##name##_##V(const T* dy, float* partial, S* db, COLUMNS) {                     \
        __shared__ float shared[V * COLUMN_BLOCK];                                                                \
        sums<V>(COLUMNS_GIVEN, Sum<V>{dy}, partial, db, shared);                                                  \
    }                                                                                                             \
    extern "C" __global__ void sum_products##name##_##V(const T* x, const T* dy, float* partial, S* dw, COLUMNS) { \
        __shared__ float shared[V * COLUMN_BLOCK];                                                                \
        sums<V>(COLUMNS_GIVEN, SumOfProducts<V, false>{x, dy}, partial, dw, shared);                              \
    }                                                                                                             \
    extern "C" __global__ void sum_falling##name##_##V(const T* x, const T* dy, float* partial, S* dw, COLUMNS) { \
        __shared__ float shared[V * COLUMN_BLOCK];                                                                \
        sums<V>(COLUMNS_GIVEN, SumOfProducts<V, true>{x, dy}, partial, dw, shared);                               \
    }                                                                                                             \
    extern "C" __global__ void rectified_sum##name##_##V(const T* y, const T* dy, T* dx, float* partial, S* db,   \
                                                         COLUMNS) {                                               \
        __shared__ float shared[V * COLUMN_BLOCK];                                                                \
        sums<V>(COLUMNS_GIVEN, RectifiedSum<V>{y, dy, dx}, partial, db, shared);                                  \
    }                                                                                                             \
    extern "C" __global__ void rectified_sum_of_slice##name##_##V(const T* y, const T* dy, T* dx, int y_pitch,    \
                                                                  int dy_pitch, int rectify, int aligned,         \
                                                                  float* partial, S* db, COLUMNS) {               \
        __shared__ float shared[V * COLUMN_BLOCK];                                                                \
        RectifiedSumOfSlice<V> add{y, dy, dx, y_pitch, dy_pitch, rectify != 0, aligned != 0, COLUMNS_GIVEN};      \
        sums<V>(COLUMNS_GIVEN, add, partial, db, shared);                                                         \
    }
SUMS(1, T, )
SUMS(4, T, )
SUMS(1, float, _float)
SUMS(4, float, _float)
