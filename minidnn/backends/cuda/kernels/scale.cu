// A factor, and perhaps a summand, by channel. y may lie on x.

#include "common.cuh"

// Channels innermost, their number a multiple of four; four: how many fours of them
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

// Any layout: `inner` elements of a channel lie together
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
