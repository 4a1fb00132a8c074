// The same to every element: ReLU, sums, products, copies. They run over the bytes as they lie; y may lie on any x.

#include "common.cuh"

// + 0: a slope of 0 makes -0, which packing would not find
__device__ float rectified(float v, float slope) { return v > 0 ? v : slope * v + 0; }

extern "C" __global__ void relu(const T* x, T* y, float slope, int64 n) {
    map(n, y, [=](float v) { return rectified(v, slope); }, x);
}

// mask: 1 where x > 0
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

// saved: x, y (where slopes keep signs), or the mask
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

extern "C" __global__ void add(const T* a, const T* b, T* y, int64 n) {
    map(n, y, [](float u, float v) { return u + v; }, a, b);
}

extern "C" __global__ void copy(const T* x, T* y, int64 n) {
    map(n, y, [](float v) { return v; }, x);
}

// From float to the storage's format, and back.
extern "C" __global__ void cast_to(const float* x, T* y, int64 n) {
    map(n, y, [](float v) { return v; }, x);
}
extern "C" __global__ void cast_scaled(const float* x, const float* scale, T* y, int64 n) {
    float factor = scale[0];
    map(n, y, [=](float v) { return v * factor; }, x);
}
extern "C" __global__ void cast_from(const T* x, float* y, int64 n) {
    map(n, y, [](float v) { return v; }, x);
}

// y = total + x; y is the total's bytes
extern "C" __global__ void accumulate(const float* total, const T* x, float* y, int64 n) {
    map(n, y, [](float u, float v) { return u + v; }, total, x);
}

extern "C" __global__ void clear(T* y, int64 n) {
    map(n, y, [] { return 0.0f; });
}

extern "C" __global__ void multiply(const T* x, T* y, float factor, int64 n) {
    map(n, y, [=](float v) { return factor * v; }, x);
}

// dx = dy where `which` is `index`
extern "C" __global__ void choose(const uint8* which, const T* dy, T* dx, int index, int64 n) {
    map(n, dx, [=](float w, float g) { return w == (float)index ? g : 0.0f; }, which, dy);
}
