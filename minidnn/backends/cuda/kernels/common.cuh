// What all kernels share. Values are stored as T (float unless compiled with -DSTORAGE=...) and computed as float.
//
// A kernel gives the same bytes whatever its grid: each thread strides over items that no other touches, and a sum's
// order depends on shapes alone. All tensors begin at multiples of 256 bytes, so that four values may move at once
// wherever a count is a multiple of four.

#pragma once

#ifndef STORAGE
#define STORAGE float
#endif

using T = STORAGE;
using int64 = long long;
using uint8 = unsigned char;
using uint32 = unsigned int;
using uint64 = unsigned long long;

// ---- loops over items of the whole grid: for (int64 i = first(); i < n; i += step())

__device__ inline int64 first() { return (int64)blockIdx.x * blockDim.x + threadIdx.x; }
__device__ inline int64 step() { return (int64)gridDim.x * blockDim.x; }

// ---- memory: load and store the i-th value, load4 and store4 the i-th four

__device__ inline float load(const float* p, int64 i) { return p[i]; }
__device__ inline void store(float* p, int64 i, float v) { p[i] = v; }
__device__ inline float4 load4(const float* p, int64 i) { return reinterpret_cast<const float4*>(p)[i]; }
__device__ inline void store4(float* p, int64 i, float4 v) { reinterpret_cast<float4*>(p)[i] = v; }

// Bytes (masks, indices) as numbers.
__device__ inline float load(const uint8* p, int64 i) { return p[i]; }
__device__ inline float4 load4(const uint8* p, int64 i) {
    uchar4 v = reinterpret_cast<const uchar4*>(p)[i];
    return make_float4(v.x, v.y, v.z, v.w);
}

// ---- a function of every element: y[i] = f(x[i] ...), four at a time. y may be any x.

template <class F, class... V>
__device__ inline float4 apply4(F f, V... v) {
    return make_float4(f(v.x...), f(v.y...), f(v.z...), f(v.w...));
}

template <class F, class... X>
__device__ inline void map(int64 n, T* y, F f, const X*... x) {
    for (int64 i = first(); i < n / 4; i += step()) store4(y, i, apply4(f, load4(x, i)...));
    for (int64 i = n / 4 * 4 + first(); i < n; i += step()) store(y, i, f(load(x, i)...));
}

// ---- arithmetic

// Quotient and remainder of what is not negative; of numbers below 2^32 in 32 bits, which is several times faster.
__device__ inline int64 quotient(int64 a, uint32 b) {
    return a >> 32 ? (int64)((uint64)a / b) : (int64)((uint32)a / b);
}
__device__ inline uint32 remainder(int64 a, uint32 b, int64 q) { return (uint32)(a - q * b); }

__device__ inline float infinity() { return __uint_as_float(0x7F800000u); }  // INFINITY is a header's
__device__ inline bool is_nan(float x) { return x != x; }

// Does x take the place of the largest so far? The first of equals stays; NaN is the largest, the last NaN stays.
__device__ inline bool beats(float x, float best) { return x > best || is_nan(x); }

// The sum of the block's values, in the order of a tree whatever the GPU; only thread 0's is used by callers.
// blockDim.x must be a power of two; `shared` holds blockDim.x values.
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
