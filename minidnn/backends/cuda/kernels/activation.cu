// ReLU and its gradient, in the order of memory. y may have the bytes of x, and dx those of dy.

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
