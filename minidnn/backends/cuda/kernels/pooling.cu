// Pooling of NHWC images with Caffe's windows, which may reach over the edges. A thread computes V channels of one
// place; V is 4 if the number of channels is a multiple of 4, else 1. Backward gathers, in the order in which the
// reference adds, so it needs no atomic additions.
//
// An index is a maximum's position in its window, counted row by row in the whole window even if it is clipped.

#include "common.cuh"

struct Geometry {
    int h, w, oh, ow, c, kh, kw, sh, sw, ph, pw;
    Divisor groups, wide, high;  // of what the kernel writes: groups of V channels, places of a row, rows of an image
    Divisor down, along;         // the strides
};

// The place of item i in what the kernel writes. An item is V channels.
struct Place {
    int64 image;
    int row, column, channel;
};
template <int V>
__device__ inline Place place(int64 i, const Geometry& g) {
    if (i >> 31) {  // slow, and seldom
        int64 pixel = quotient(i, g.groups.by), line = quotient(pixel, g.wide.by), image = quotient(line, g.high.by);
        return {image, (int)remainder(line, g.high.by, image), (int)remainder(pixel, g.wide.by, line),
                (int)remainder(i, g.groups.by, pixel) * V};
    }
    uint32 pixel = quotient((uint32)i, g.groups), line = quotient(pixel, g.wide), image = quotient(line, g.high);
    return {image, (int)(line - image * g.high.by), (int)(pixel - line * g.wide.by),
            (int)((uint32)i - pixel * g.groups.by) * V};
}

// V values that are neighbours in memory
template <int V>
struct Some {
    float v[V];
};
template <int V>
__device__ inline Some<V> load_some(const T* p, int64 at) {
    if constexpr (V == 4) {
        float4 f = load4(p, at / 4);
        return {f.x, f.y, f.z, f.w};
    } else {
        return {load(p, at)};
    }
}
template <int V>
__device__ inline void store_some(T* p, int64 at, Some<V> s) {
    if constexpr (V == 4) store4(p, at / 4, make_float4(s.v[0], s.v[1], s.v[2], s.v[3]));
    else store(p, at, s.v[0]);
}
template <int V, class I>
__device__ inline void load_index(const I* p, int64 at, int* to) {
    if constexpr (V == 1) {
        to[0] = p[at];
    } else if constexpr (sizeof(I) == 1) {
        uchar4 f = reinterpret_cast<const uchar4*>(p)[at / 4];
        to[0] = f.x, to[1] = f.y, to[2] = f.z, to[3] = f.w;
    } else {
        int4 f = reinterpret_cast<const int4*>(p)[at / 4];
        to[0] = f.x, to[1] = f.y, to[2] = f.z, to[3] = f.w;
    }
}
template <int V, class I>
__device__ inline void store_index(I* p, int64 at, const int* from) {
    if constexpr (V == 1) p[at] = from[0];
    else if constexpr (sizeof(I) == 1)
        reinterpret_cast<uchar4*>(p)[at / 4] = make_uchar4(from[0], from[1], from[2], from[3]);
    else reinterpret_cast<int4*>(p)[at / 4] = make_int4(from[0], from[1], from[2], from[3]);
}

// Each window's maximum to y (if VALUE), and its index (if INDEX). `items`: of y.
template <int V, bool VALUE, bool INDEX, class I>
__device__ inline void max_forward(const T* x, T* y, I* index, int64 items, Geometry g) {
    for (int64 i = first(); i < items; i += step()) {
        Place o = place<V>(i, g);
        int top = o.row * g.sh - g.ph, left = o.column * g.sw - g.pw;
        int bottom = min(top + g.kh, g.h), right = min(left + g.kw, g.w);
        Some<V> best;
        int where[V];
#pragma unroll
        for (int k = 0; k < V; k++) best.v[k] = -infinity(), where[k] = 0;
        for (int r = max(top, 0); r < bottom; r++) {
            for (int q = max(left, 0); q < right; q++) {
                Some<V> s = load_some<V>(x, ((o.image * g.h + r) * g.w + q) * g.c + o.channel);
                int at = (r - top) * g.kw + q - left;
#pragma unroll
                for (int k = 0; k < V; k++)
                    if (beats(s.v[k], best.v[k])) best.v[k] = s.v[k], where[k] = at;
            }
        }
        if constexpr (VALUE) store_some<V>(y, i * V, best);
        if constexpr (INDEX) store_index<V>(index, i * V, where);
    }
}

// The windows, along one axis, that contain position `at`: from `from` down to `to`. In `from` the position is nearest
// to the window's beginning.
struct Range {
    int from, to;  // from >= to
};
__device__ inline Range windows(int at, int pad, int kernel, Divisor stride, int out) {
    int over = at + pad - kernel;  // a window that begins here, in padded positions, just misses `at`
    return {min((int)quotient((uint32)(at + pad), stride), out - 1), over < 0 ? 0 : (int)quotient((uint32)over, stride) + 1};
}

// dx = the sum of dy over the windows whose index names this position. With RELU the maximum is that of a ReLU's top: dx
// is 0 (0 * the sum, so that NaN stays) unless y, the maximum, is positive. `items`: of dx.
template <int V, bool RELU, class I>
__device__ inline void max_backward(const I* index, const T* y, const T* dy, T* dx, int64 items, Geometry g) {
    for (int64 i = first(); i < items; i += step()) {
        Place p = place<V>(i, g);
        Range rows = windows(p.row, g.ph, g.kh, g.down, g.oh), columns = windows(p.column, g.pw, g.kw, g.along, g.ow);
        int64 from = p.image * g.oh * g.ow * g.c + p.channel;
        Some<V> sum;
        bool positive[V];
#pragma unroll
        for (int k = 0; k < V; k++) sum.v[k] = 0, positive[k] = !RELU;
        for (int r = rows.from; r >= rows.to; r--) {
            for (int q = columns.from; q >= columns.to; q--) {
                int here = (p.row + g.ph - r * g.sh) * g.kw + p.column + g.pw - q * g.sw, where[V];
                int64 at = from + ((int64)r * g.ow + q) * g.c;
                load_index<V>(index, at, where);
                Some<V> s = load_some<V>(dy, at);
                if constexpr (RELU) {
                    Some<V> top = load_some<V>(y, at);
#pragma unroll
                    for (int k = 0; k < V; k++) positive[k] |= where[k] == here && top.v[k] > 0;
                }
#pragma unroll
                for (int k = 0; k < V; k++)
                    if (where[k] == here) sum.v[k] += s.v[k];
            }
        }
#pragma unroll
        for (int k = 0; k < V; k++)
            if (!positive[k]) sum.v[k] *= 0;
        store_some<V>(dx, i * V, sum);
    }
}

// The divisor of an average: the places of the window clipped to the image with its padding, not to the image.
__device__ inline float divisor(int row, int column, Geometry g) {
    int top = row * g.sh - g.ph, left = column * g.sw - g.pw;
    return (float)((int64)(min(top + g.kh, g.h + g.ph) - top) * (min(left + g.kw, g.w + g.pw) - left));
}

template <int V>
__device__ inline void ave_forward(const T* x, T* y, int64 items, Geometry g) {
    for (int64 i = first(); i < items; i += step()) {
        Place o = place<V>(i, g);
        int top = o.row * g.sh - g.ph, left = o.column * g.sw - g.pw;
        int bottom = min(top + g.kh, g.h), right = min(left + g.kw, g.w);
        Some<V> sum;
#pragma unroll
        for (int k = 0; k < V; k++) sum.v[k] = 0;
        for (int r = max(top, 0); r < bottom; r++) {
            for (int q = max(left, 0); q < right; q++) {
                Some<V> s = load_some<V>(x, ((o.image * g.h + r) * g.w + q) * g.c + o.channel);
#pragma unroll
                for (int k = 0; k < V; k++) sum.v[k] += s.v[k];
            }
        }
        float count = divisor(o.row, o.column, g);
#pragma unroll
        for (int k = 0; k < V; k++) sum.v[k] /= count;
        store_some<V>(y, i * V, sum);
    }
}

template <int V>
__device__ inline void ave_backward(const T* dy, T* dx, int64 items, Geometry g) {
    for (int64 i = first(); i < items; i += step()) {
        Place p = place<V>(i, g);
        Range rows = windows(p.row, g.ph, g.kh, g.down, g.oh), columns = windows(p.column, g.pw, g.kw, g.along, g.ow);
        Some<V> sum;
#pragma unroll
        for (int k = 0; k < V; k++) sum.v[k] = 0;
        for (int r = rows.from; r >= rows.to; r--) {
            for (int q = columns.from; q >= columns.to; q--) {
                Some<V> s = load_some<V>(dy, ((p.image * g.oh + r) * g.ow + q) * g.c + p.channel);
                float count = divisor(r, q, g);
#pragma unroll
                for (int k = 0; k < V; k++) sum.v[k] += s.v[k] / count;
            }
        }
        store_some<V>(dx, i * V, sum);
    }
}

#define INDEXED(V, I, name)                                                                                             \
    extern "C" __global__ void max_forward_##name##_##V(const T* x, T* y, I* index, int64 items, Geometry g) {          \
        max_forward<V, true, true>(x, y, index, items, g);                                                              \
    }                                                                                                                   \
    extern "C" __global__ void max_index_##name##_##V(const T* x, I* index, int64 items, Geometry g) {                  \
        max_forward<V, false, true>(x, nullptr, index, items, g);                                                       \
    }                                                                                                                   \
    extern "C" __global__ void max_backward_##name##_##V(const I* index, const T* dy, T* dx, int64 items, Geometry g) { \
        max_backward<V, false>(index, nullptr, dy, dx, items, g);                                                       \
    }                                                                                                                   \
    extern "C" __global__ void max_backward_relu_##name##_##V(const I* index, const T* y, const T* dy, T* dx,           \
                                                              int64 items, Geometry g) {                                \
        max_backward<V, true>(index, y, dy, dx, items, g);                                                              \
    }
#define EACH(V)                                                                                \
    INDEXED(V, uint8, uint8)                                                                   \
    INDEXED(V, int, int32)                                                                     \
    extern "C" __global__ void max_forward_##V(const T* x, T* y, int64 items, Geometry g) {    \
        max_forward<V, true, false>(x, y, (uint8*)nullptr, items, g);                          \
    }                                                                                          \
    extern "C" __global__ void ave_forward_##V(const T* x, T* y, int64 items, Geometry g) {    \
        ave_forward<V>(x, y, items, g);                                                        \
    }                                                                                          \
    extern "C" __global__ void ave_backward_##V(const T* dy, T* dx, int64 items, Geometry g) { \
        ave_backward<V>(dy, dx, items, g);                                                     \
    }
EACH(1)
EACH(4)
