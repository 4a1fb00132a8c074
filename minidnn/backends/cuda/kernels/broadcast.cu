// A factor or a constant that spans some axes of a tensor, and sums over the others. The smaller tensor is T, or float
// in every storage (F). A constant that is added to a product is float.
//
// A tensor has dimensions in the order of memory, the innermost last; unused ones, of size 1, come first. Each has steps
// in the tensors that a kernel touches.

#include "common.cuh"

constexpr int DIMS = 6;
struct Dims {
    int64 size[DIMS], step[DIMS], other[DIMS];
};

struct Places {
    int64 at, other;
};
__device__ inline Places place(const Dims& g, int64 i) {
    Places p{0, 0};
#pragma unroll
    for (int d = DIMS - 1; d > 0; d--) {
        if (g.size[d] == 1) continue;
        int64 q = over(i, g.size[d]), r = i - q * g.size[d];
        p.at += r * g.step[d], p.other += r * g.other[d];
        i = q;
    }
    p.at += i * g.step[0], p.other += i * g.other[0];
    return p;
}

// y = x f + b; y may have the bytes of x.
template <bool FACTOR, bool CONSTANT, class F, class B>
__device__ inline void affine(const T* x, const F* f, const B* b, T* y, int64 n, const Dims& g) {
    for (int64 i = first(); i < n; i += step()) {
        int64 at = place(g, i).at;
        float v = load(x, i);
        if (FACTOR) v *= load(f, at);
        if (CONSTANT) v += load(b, at);
        store(y, i, v);
    }
}

// Sums of dy, or of x dy, in `of`: `across` elements of the smaller tensor at a time, that are neighbours in dy if there
// are several. A thread adds its places in order; then the threads' sums are added as a tree.
constexpr int BLOCK = 256;
template <bool PRODUCTS, class F>
__device__ inline void sums(const T* x, const T* dy, F* to, int64 count, int64 items, int across, const Dims& kept,
                            const Dims& summed) {
    __shared__ float shared[BLOCK];
    int t = threadIdx.x, lane = t % across, rows = BLOCK / across;
    for (int64 tile = blockIdx.x; tile * across < count; tile += gridDim.x) {
        int64 k = tile * across + lane;
        Places p = place(kept, k < count ? k : 0);
        float sum = 0;
        for (int64 i = t / across; k < count && i < items; i += rows) {
            int64 at = p.at + place(summed, i).at;
            sum += PRODUCTS ? load(x, at) * load(dy, at) : load(dy, at);
        }
        shared[t] = sum;
        for (int half = rows / 2; half; half /= 2) {
            __syncthreads();
            if (t < half * across) shared[t] += shared[t + half * across];
        }
        if (t < across && k < count) store(to, p.other, shared[t]);
        __syncthreads();  // before the next use of `shared`
    }
}

#define KERNELS(F, name)                                                                                           \
    extern "C" __global__ void multiply##name(const T* x, const F* f, T* y, int64 n, Dims g) {                     \
        affine<true, false>(x, f, (const float*)nullptr, y, n, g);                                                 \
    }                                                                                                              \
    extern "C" __global__ void multiply_add##name(const T* x, const F* f, const float* b, T* y, int64 n, Dims g) { \
        affine<true, true>(x, f, b, y, n, g);                                                                      \
    }                                                                                                              \
    extern "C" __global__ void add##name(const T* x, const F* b, T* y, int64 n, Dims g) {                          \
        affine<false, true>(x, (const float*)nullptr, b, y, n, g);                                                 \
    }                                                                                                              \
    extern "C" __global__ void sum##name(const T* dy, F* to, int64 count, int64 items, int across, Dims kept,      \
                                         Dims summed) {                                                            \
        sums<false>((const T*)nullptr, dy, to, count, items, across, kept, summed);                                \
    }                                                                                                              \
    extern "C" __global__ void sum_products##name(const T* x, const T* dy, F* to, int64 count, int64 items,        \
                                                  int across, Dims kept, Dims summed) {                            \
        sums<true>(x, dy, to, count, items, across, kept, summed);                                                 \
    }
KERNELS(T, )
KERNELS(float, _float)
