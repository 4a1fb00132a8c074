// The parts that all kernels share. Values are stored as T (float unless compiled with -DSTORAGE=...) and computed as
// float.
//
// A kernel gives the same bytes whatever its grid: each thread strides over items that no other thread touches, and a
// sum's order depends on shapes alone. All tensors begin at multiples of 256 bytes. So four values may move at once
// wherever a count is a multiple of four, and likewise eight.

#pragma once

// The 16-bit formats, as bits, so that no header of CUDA is needed.
struct bf16 {
    unsigned short bits;
};
struct fp16 {
    unsigned short bits;
};

#ifndef STORAGE
#define STORAGE float  // or bf16, fp16
#endif
using T = STORAGE;

using int64 = long long;
using uint8 = unsigned char;
using uint32 = unsigned int;
using uint64 = unsigned long long;

// ---- loops over items of the whole grid: for (int64 i = first(); i < n; i += step())

__device__ inline int64 first() { return (int64)blockIdx.x * blockDim.x + threadIdx.x; }
__device__ inline int64 step() { return (int64)gridDim.x * blockDim.x; }

// ---- conversion from stored numbers to float, and back. Narrowing rounds to the nearest number, and a tie to even.

__device__ inline float widen(float v) { return v; }
__device__ inline float widen(uint8 v) { return v; }  // masks, indices
__device__ inline float widen(bf16 v) { return __uint_as_float((uint32)v.bits << 16); }
__device__ inline void narrow(float v, float& to) { to = v; }

__device__ inline void narrow(float v, bf16& to) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(to.bits) : "f"(v));
#else
    uint32 bits = __float_as_uint(v);
    to.bits = v != v ? 0x7FFF : (bits + 0x7FFF + (bits >> 16 & 1)) >> 16;
#endif
}

#ifdef __CUDA_ARCH__
__device__ inline float widen(fp16 v) {
    float to;
    asm("cvt.f32.f16 %0, %1;" : "=f"(to) : "h"(v.bits));
    return to;
}
__device__ inline void narrow(float v, fp16& to) { asm("cvt.rn.f16.f32 %0, %1;" : "=h"(to.bits) : "f"(v)); }
#else
inline float widen(fp16 v) { return shim_widen(v.bits); }
inline void narrow(float v, fp16& to) { to.bits = shim_narrow(v); }
#endif

// ---- memory: load and store move the i-th value, load4 and store4 the i-th four values

template <class S>
struct alignas(4 * sizeof(S)) Four {
    S v[4];
};

template <class S>
__device__ inline float load(const S* p, int64 i) {
    return widen(p[i]);
}
template <class S>
__device__ inline void store(S* p, int64 i, float v) {
    narrow(v, p[i]);
}
template <class S>
__device__ inline float4 load4(const S* p, int64 i) {
    Four<S> f = reinterpret_cast<const Four<S>*>(p)[i];
    return make_float4(widen(f.v[0]), widen(f.v[1]), widen(f.v[2]), widen(f.v[3]));
}
template <class S>
__device__ inline void store4(S* p, int64 i, float4 v) {
    Four<S> f;
    narrow(v.x, f.v[0]), narrow(v.y, f.v[1]), narrow(v.z, f.v[2]), narrow(v.w, f.v[3]);
    reinterpret_cast<Four<S>*>(p)[i] = f;
}

// ---- a function of every element: y[i] = f(x[i] ...), several at a time. y may be any of the x.

template <class F, class... V>
__device__ inline float4 apply4(F f, V... v) {
    return make_float4(f(v.x...), f(v.y...), f(v.z...), f(v.w...));
}

// W values at a time: 16 bytes of the narrowest type that has two or four bytes
template <int W>
struct Floats {
    float v[W];
};
template <class S, int W>
struct alignas(W * sizeof(S) < 16 ? W * sizeof(S) : 16) Many {
    S v[W];
};
template <int W, class S>
__device__ inline Floats<W> load_many(const S* p, int64 i) {
    Many<S, W> from = reinterpret_cast<const Many<S, W>*>(p)[i];
    Floats<W> to;
#pragma unroll
    for (int w = 0; w < W; w++) to.v[w] = widen(from.v[w]);
    return to;
}
template <int W, class S>
__device__ inline void store_many(S* p, int64 i, Floats<W> from) {
    Many<S, W> to;
#pragma unroll
    for (int w = 0; w < W; w++) narrow(from.v[w], to.v[w]);
    reinterpret_cast<Many<S, W>*>(p)[i] = to;
}
template <class... S>
constexpr int WIDTH = (... || (sizeof(S) == 2)) ? 8 : 4;
constexpr int MAPPED = 16;  // values of a thread whose loads come before the first store

template <int W, class F, class... V>
__device__ inline Floats<W> apply_many(F f, V... v) {
    Floats<W> to;
#pragma unroll
    for (int w = 0; w < W; w++) to.v[w] = f(v.v[w]...);
    return to;
}

// Groups i, i + stride, ... of W values, TIMES of them. A store might change what a later load reads, so the compiler
// moves no load before a store. Here all loads come first.
template <int W, int TIMES, class Y, class F, class... X>
__device__ inline void map_many(int64 i, int64 stride, Y* y, F f, const X*... x) {
    Floats<W> found[TIMES];
#pragma unroll
    for (int k = 0; k < TIMES; k++) found[k] = apply_many<W>(f, load_many<W>(x, i + k * stride)...);
#pragma unroll
    for (int k = 0; k < TIMES; k++) store_many<W>(y, i + k * stride, found[k]);
}

template <class Y, class F, class... X>
__device__ inline void map(int64 n, Y* y, F f, const X*... x) {
    constexpr int W = WIDTH<Y, X...>, TIMES = MAPPED / W;
    int64 i = first();
    for (; i + (TIMES - 1) * step() < n / W; i += TIMES * step()) map_many<W, TIMES>(i, step(), y, f, x...);
    for (; i < n / W; i += step()) map_many<W, 1>(i, 0, y, f, x...);
    for (i = n / W * W + first(); i < n; i += step()) store(y, i, f(load(x, i)...));
}

// ---- arithmetic

// Quotient and remainder of numbers that are not negative. Below 2^32 they are taken in 32 bits, several times faster.
__device__ inline int64 quotient(int64 a, uint32 b) {
    return a >> 32 ? (int64)((uint64)a / b) : (int64)((uint32)a / b);
}
__device__ inline uint32 remainder(int64 a, uint32 b, int64 q) { return (uint32)(a - q * b); }

// The same for a size in elements, which may have more than 32 bits.
__device__ inline int64 over(int64 a, int64 b) { return b >> 32 ? a / b : quotient(a, (uint32)b); }

// A divisor that the host has prepared (recipe.divisor). A quotient of a number below 2^31 is a multiplication
// and a shift.
struct Divisor {
    uint32 by, factor, shift;
};
__device__ inline uint32 quotient(uint32 a, Divisor d) { return (__umulhi(a, d.factor) + a) >> d.shift; }

__device__ inline float infinity() { return __uint_as_float(0x7F800000u); }  // INFINITY would need a header
__device__ inline bool is_nan(float x) { return x != x; }

// Whether x replaces the largest value so far. The first of equal values stays. NaN counts as the largest, and a later
// NaN replaces an earlier one.
__device__ inline bool beats(float x, float best) { return x > best || is_nan(x); }

// The sum of the block's values, added as a tree, on every GPU in the same order. Callers use only thread 0's result.
// blockDim.x must be a power of two, and `shared` has blockDim.x values.
template <class V>
__device__ inline V block_sum(V* shared, V value) {
    unsigned t = threadIdx.x;
    shared[t] = value;
    __syncthreads();
    for (unsigned half = blockDim.x / 2; half; half /= 2) {
        if (t < half) shared[t] += shared[t + half];
        __syncthreads();
    }
    V sum = shared[0];
    __syncthreads();  // before the next use of `shared`
    return sum;
}
