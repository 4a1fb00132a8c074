// Images in another size. Along an axis, place i of y lies i * step / over pixels behind pixel `begin` of x: at a pixel,
// or between two, which then count by their nearness. With `nearest` the pixel at or before it is taken. Backward
// gathers: a pixel of dx is the sum over the places that took from it, in their order.

#include "common.cuh"

struct Geometry {
    int h, w, oh, ow, c;  // of x, and of y
    int step_h, step_w, over_h, over_w, begin_h, begin_w, nearest;
};

struct Axis {
    int64 step, over, begin, out;
    bool nearest;
};
__device__ inline Axis axis_h(const Geometry& g) { return {g.step_h, g.over_h, g.begin_h, g.oh, g.nearest != 0}; }
__device__ inline Axis axis_w(const Geometry& g) { return {g.step_w, g.over_w, g.begin_w, g.ow, g.nearest != 0}; }

// The pixel at or before a place, and how much of the next pixel counts: none if `behind` is 0.
struct Where {
    int64 pixel;
    float behind;
};
__device__ inline Where where(const Axis& a, int64 i) {
    int64 at = i * a.step, q = quotient(at, (uint32)a.over), rest = at - q * a.over;
    return {a.begin + q, a.nearest ? 0 : (float)rest / (float)a.over};
}

__device__ inline float blend(const T* p, int64 at, int64 apart, float behind) {
    float here = load(p, at);
    return behind > 0 ? (1 - behind) * here + behind * load(p, at + apart) : here;
}

// `items`: values of y.
extern "C" __global__ void forward(const T* x, T* y, int64 items, Geometry g) {
    for (int64 i = first(); i < items; i += step()) {
        int64 pixel = quotient(i, g.c), line = quotient(pixel, g.ow), image = quotient(line, g.oh);
        Where r = where(axis_h(g), line - image * g.oh), q = where(axis_w(g), pixel - line * g.ow);
        int64 at = ((image * g.h + r.pixel) * g.w + q.pixel) * g.c + i - pixel * g.c;
        float found = blend(x, at, g.c, q.behind);
        if (r.behind > 0)
            found = (1 - r.behind) * found + r.behind * blend(x, at + (int64)g.w * g.c, g.c, q.behind);
        store(y, i, found);
    }
}

// The first place at or behind a pixel.
__device__ inline int64 first_at(const Axis& a, int64 pixel) {
    int64 before = pixel - a.begin;
    if (before <= 0) return 0;
    int64 i = a.step ? (before * a.over + a.step - 1) / a.step : a.out;
    return i < a.out ? i : a.out;
}

// The places [from, to) that may take from a pixel: those behind the pixel before, or with `nearest` from the pixel on.
struct Range {
    int64 from, to;
};
__device__ inline Range takers(const Axis& a, int64 pixel) {
    return {first_at(a, a.nearest ? pixel : pixel - 1), first_at(a, pixel + 1)};
}

__device__ inline float share(const Axis& a, int64 i, int64 pixel) {
    Where w = where(a, i);
    return w.pixel == pixel ? 1 - w.behind : w.pixel + 1 == pixel ? w.behind : 0;
}

// `items`: values of dx.
extern "C" __global__ void backward(const T* dy, T* dx, int64 items, Geometry g) {
    for (int64 i = first(); i < items; i += step()) {
        int64 pixel = quotient(i, g.c), line = quotient(pixel, g.w), image = quotient(line, g.h);
        int64 row = line - image * g.h, column = pixel - line * g.w, channel = i - pixel * g.c;
        Axis down = axis_h(g), along = axis_w(g);
        Range rows = takers(down, row), columns = takers(along, column);
        float sum = 0;
        for (int64 r = rows.from; r < rows.to; r++) {
            float part = share(down, r, row);
            if (part == 0) continue;
            for (int64 q = columns.from; q < columns.to; q++) {
                float both = part * share(along, q, column);
                if (both != 0) sum += both * load(dy, ((image * g.oh + r) * g.ow + q) * g.c + channel);
            }
        }
        store(dx, i, sum);
    }
}
