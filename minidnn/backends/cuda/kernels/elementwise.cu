// Element-wise kernels: sums, products and maxima of tensors of one shape, and copies. They take the elements in the
// order of memory. y may have the bytes of any x.

#include "multi_tensor.cuh"

extern "C" __global__ void add(const T* a, const T* b, T* y, int64 n) {
    map(n, y, [](float u, float v) { return u + v; }, a, b);
}

extern "C" __global__ void fill(T* y, float value, int64 n) {
    map(n, y, [=] { return value; });
}
extern "C" __global__ void fill_scaled(const float* scale, T* y, float value, int64 n) {
    float scaled = value * scale[0];
    map(n, y, [=] { return scaled; });
}

// A sum where a is a slice: its items, the pixels, have `width` of `pitch` values. n: values of y, which may be b.
template <int V>
__device__ inline void add_of_slice(const T* a, const T* b, T* y, int64 n, int width, int pitch) {
    auto sum = [](float u, float v) { return u + v; };
    for (int64 i = first(); i < n / V; i += step()) {
        int64 item = quotient(i, (uint32)(width / V)), at = item * (pitch / V) + (i - item * (width / V));
        if constexpr (V == 4) store4(y, i, apply4(sum, load4(a, at), load4(b, i)));
        else store(y, i, sum(load(a, at), load(b, i)));
    }
}
extern "C" __global__ void add_slice_1(const T* a, const T* b, T* y, int64 n, int width, int pitch) {
    add_of_slice<1>(a, b, y, n, width, pitch);
}
extern "C" __global__ void add_slice_4(const T* a, const T* b, T* y, int64 n, int width, int pitch) {
    add_of_slice<4>(a, b, y, n, width, pitch);
}

// Sums of 2 to 4 gradients, from left to right. *_relu: only where y > 0, elsewhere 0, or NaN if the sum is not finite.
template <class... V>
__device__ inline float total(float v, V... more) {
    ((v += more), ...);
    return v;
}
struct TotalWherePositive {  // no lambda: of one with `auto` NVRTC takes the call for a function of the host
    template <class... V>
    __device__ float operator()(float y, V... parts) const {
        return y > 0 ? total(parts...) : 0 * total(parts...);
    }
};
extern "C" __global__ void add_3(const T* a, const T* b, const T* c, T* dx, int64 n) {
    map(n, dx, [](float u, float v, float w) { return total(u, v, w); }, a, b, c);
}
extern "C" __global__ void add_4(const T* a, const T* b, const T* c, const T* d, T* dx, int64 n) {
    map(n, dx, [](float u, float v, float w, float x) { return total(u, v, w, x); }, a, b, c, d);
}
extern "C" __global__ void add_relu_2(const T* y, const T* a, const T* b, T* dx, int64 n) {
    map(n, dx, TotalWherePositive{}, y, a, b);
}
extern "C" __global__ void add_relu_3(const T* y, const T* a, const T* b, const T* c, T* dx, int64 n) {
    map(n, dx, TotalWherePositive{}, y, a, b, c);
}
extern "C" __global__ void add_relu_4(
    const T* y, const T* a, const T* b, const T* c, const T* d, T* dx, int64 n) {
    map(n, dx, TotalWherePositive{}, y, a, b, c, d);
}

extern "C" __global__ void copy(const T* x, T* y, int64 n) {
    map(n, y, [](float v) { return v; }, x);
}

// Conversions from float to the storage's format, of many tensors or perhaps times a factor, and back.
constexpr int CASTS = 128;  // most tensors of a launch
struct Casts {
    const float* x[CASTS];
    T* y[CASTS];
    int64 n[CASTS];
    int first[CASTS];
};
extern "C" __global__ void cast_to(Casts of, int count, int pieces) {
    each_piece(of, count, pieces, [&](int k, int64 begin, int64 end) {
        map_piece(begin, end, of.y[k], [](float v) { return v; }, of.x[k]);
    });
}
extern "C" __global__ void cast_scaled(const float* x, const float* scale, T* y, int64 n) {
    float factor = scale[0];
    map(n, y, [=](float v) { return v * factor; }, x);
}
extern "C" __global__ void cast_from(const T* x, float* y, int64 n) {
    map(n, y, [](float v) { return v; }, x);
}

extern "C" __global__ void multiply(const T* x, T* y, float factor, int64 n) {
    map(n, y, [=](float v) { return factor * v; }, x);
}

// dx = dy where `which` is `index`, 0 elsewhere
extern "C" __global__ void choose(const uint8* which, const T* dy, T* dx, int index, int64 n) {
    map(n, dx, [=](float w, float g) { return w == (float)index ? g : 0.0f; }, which, dy);
}

// ---- Eltwise over N operands in one pass, N from 2 to 4 (*_2 .. *_4)
//
// All of these kernels take four pointers, and use the first N. For more operands backends/cuda/elementwise.py makes
// several passes, and the first operand of each later pass is the result so far.

#define OPERANDS const T *x0, const T *x1, const T *x2, const T *x3
#define COEFFICIENTS float c0, float c1, float c2, float c3
#define GATHER const T* const x[4] = {x0, x1, x2, x3}

// y = f(x0, x1, ...), of the first N operands
template <int N, class F>
__device__ inline void map_operands(OPERANDS, T* y, int64 n, F f) {
    if constexpr (N == 2) map(n, y, f, x0, x1);
    if constexpr (N == 3) map(n, y, f, x0, x1, x2);
    if constexpr (N == 4) map(n, y, f, x0, x1, x2, x3);
}

struct Sum {  // c0 v0 + c1 v1 + ..., with a ReLU behind or without. Adding 0 turns -0 into +0, as in relu.cu.
    float c0, c1, c2, c3;
    bool relu;

    __device__ float operator()(float v0, float v1) const { return last(c0 * v0 + c1 * v1); }
    __device__ float operator()(float v0, float v1, float v2) const { return last(c0 * v0 + c1 * v1 + c2 * v2); }
    __device__ float operator()(float v0, float v1, float v2, float v3) const {
        return last(c0 * v0 + c1 * v1 + c2 * v2 + c3 * v3);
    }
    __device__ float last(float v) const { return !relu || v > 0 ? v : 0 * v + 0; }
};

struct Product {
    __device__ float operator()(float a, float b) const { return a * b; }
    __device__ float operator()(float a, float b, float c) const { return a * b * c; }
    __device__ float operator()(float a, float b, float c, float d) const { return a * b * c * d; }
};

// The largest of one element's values, and the index of its operand. If the first two are equal, the second is taken,
// as in Caffe; of later equals the first. NaN counts as the largest. If done > 0, v[0] is the largest of `done`
// operands so far, and `best` its index.
template <int N>
__device__ inline float largest(const float* v, int done, int& best) {
    float y = v[0];
    if (!done) best = 0;
#pragma unroll
    for (int k = 1; k < N; k++) {
        bool takes = done || k > 1 ? beats(v[k], y) : !beats(y, v[k]);
        if (takes) y = v[k], best = done ? done + k - 1 : k;
    }
    return y;
}

template <int N, bool WHICH>
__device__ inline void maximum(OPERANDS, T* y, uint8* which, const uint8* before, int done, int64 n) {
    GATHER;
    for (int64 i = first(); i < n / 4; i += step()) {
        float4 v[N];
#pragma unroll
        for (int k = 0; k < N; k++) v[k] = load4(x[k], i);
        uchar4 was = make_uchar4(0, 0, 0, 0);
        if (WHICH && done) was = reinterpret_cast<const uchar4*>(before)[i];
        int w[4] = {was.x, was.y, was.z, was.w};
        float a[N], b[N], c[N], d[N];
#pragma unroll
        for (int k = 0; k < N; k++) a[k] = v[k].x, b[k] = v[k].y, c[k] = v[k].z, d[k] = v[k].w;
        float4 r;
        r.x = largest<N>(a, done, w[0]), r.y = largest<N>(b, done, w[1]);
        r.z = largest<N>(c, done, w[2]), r.w = largest<N>(d, done, w[3]);
        store4(y, i, r);
        if (WHICH) reinterpret_cast<uchar4*>(which)[i] = make_uchar4(w[0], w[1], w[2], w[3]);
    }
    for (int64 i = n / 4 * 4 + first(); i < n; i += step()) {
        float a[N];
#pragma unroll
        for (int k = 0; k < N; k++) a[k] = load(x[k], i);
        int w = WHICH && done ? before[i] : 0;
        store(y, i, largest<N>(a, done, w));
        if (WHICH) which[i] = w;
    }
}

#define KERNELS(N)                                                                                              \
    extern "C" __global__ void sum_##N(OPERANDS, COEFFICIENTS, T* y, int64 n) {                                 \
        map_operands<N>(x0, x1, x2, x3, y, n, Sum{c0, c1, c2, c3, false});                                      \
    }                                                                                                           \
    extern "C" __global__ void sum_relu_##N(OPERANDS, COEFFICIENTS, T* y, int64 n) {                            \
        map_operands<N>(x0, x1, x2, x3, y, n, Sum{c0, c1, c2, c3, true});                                       \
    }                                                                                                           \
    extern "C" __global__ void product_##N(OPERANDS, T* y, int64 n) {                                           \
        map_operands<N>(x0, x1, x2, x3, y, n, Product{});                                                       \
    }                                                                                                           \
    extern "C" __global__ void maximum_##N(OPERANDS, T* y, int done, int64 n) { \
        maximum<N, false>(x0, x1, x2, x3, y, nullptr, nullptr, done, n);        \
    }                                                                           \
    extern "C" __global__ void maximum_which_##N(                               \
        OPERANDS, T* y, uint8* which, const uint8* before, int done, int64 n) { \
        maximum<N, true>(x0, x1, x2, x3, y, which, before, done, n);            \
    }
KERNELS(2)
KERNELS(3)
KERNELS(4)
