// ReLU and PReLU. y may have the bytes of x, and dx those of dy. Most nets need no other function, and those of
// activation.cu take long to compile.

#include "common.cuh"

// Adding 0 turns the -0 that a slope of 0 makes into +0, which the packing of activations leaves out.
__device__ float rectified(float v, float slope) { return v > 0 ? v : slope * v + 0; }

extern "C" __global__ void relu(const T* x, T* y, float slope, int64 n) {
    map(n, y, [=](float v) { return rectified(v, slope); }, x);
}

// The mask is 1 where x > 0.
extern "C" __global__ void relu_mask(const T* x, T* y, uint8* mask, float slope, int64 n) {
    auto f = [=](float v) { return rectified(v, slope); };
    for (int64 i = first(); i < n / 4; i += step()) {
        float4 v = load4(x, i);
        store4(y, i, apply4(f, v));
        reinterpret_cast<uchar4*>(mask)[i] = make_uchar4(v.x > 0, v.y > 0, v.z > 0, v.w > 0);
    }
    for (int64 i = n / 4 * 4 + first(); i < n; i += step()) {
        float v = load(x, i);
        store(y, i, f(v));
        mask[i] = v > 0;
    }
}

// `saved` is x, or the mask, or y if the slope keeps signs.
template <class S>
__device__ void relu_gradient(const S* saved, const T* dy, T* dx, float slope, int64 n) {
    map(n, dx, [=](float s, float g) { return s > 0 ? g : slope * g; }, saved, dy);
}
extern "C" __global__ void relu_backward(const T* saved, const T* dy, T* dx, float slope, int64 n) {
    relu_gradient(saved, dy, dx, slope, n);
}
extern "C" __global__ void relu_backward_mask(const uint8* saved, const T* dy, T* dx, float slope, int64 n) {
    relu_gradient(saved, dy, dx, slope, n);
}

// ---- PReLU: `from` where x > 0, elsewhere times the slope. Forward if `from` is x, and backward if it is dy.

__device__ inline float sloped(float x, float from, float slope) { return x > 0 ? from : slope * from; }

// For channels that are innermost, in a number that is a multiple of four; `four` is that number / 4.
extern "C" __global__ void prelu_4(const T* x, const T* from, const float* slope, T* to, int64 n4, int four) {
    for (int64 i = first(); i < n4; i += step()) {
        uint32 c = remainder(i, four, quotient(i, four));
        auto f = [](float v, float u, float s) { return sloped(v, u, s); };
        store4(to, i, apply4(f, load4(x, i), load4(from, i), load4(slope, c)));
    }
}

// For any layout: `inner` elements of a channel are neighbours in memory.
extern "C" __global__ void prelu_1(
    const T* x, const T* from, const float* slope, T* to, int64 n, int inner, int channels) {
    for (int64 i = first(); i < n; i += step()) {
        int64 row = quotient(i, inner);
        uint32 c = remainder(row, channels, quotient(row, channels));
        store(to, i, sloped(load(x, i), load(from, i), slope[c]));
    }
}

extern "C" __global__ void prelu_shared(const T* x, const T* from, const float* slope, T* to, int64 n) {
    float s = *slope;
    map(n, to, [=](float v, float u) { return sloped(v, u, s); }, x, from);
}
