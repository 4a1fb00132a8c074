// Images in another size. Along an axis, place i of y lies i * step / over pixels behind pixel `begin` of x: at a pixel,
// or between two. Both count by their nearness, even if that is 0; the pixel `last` is its own neighbour. With `whole`
// the pixel at or before the place is taken. Backward gathers: a pixel of dx is the sum over the places that took from
// it, in their order.

#include "common.cuh"

struct Geometry {
    int h, w, oh, ow, c;  // of x, and of y
    int step_h, step_w, over_h, over_w, begin_h, begin_w, last_h, last_w, whole;
};

struct Axis {
    int64 step, over, begin, last, out;
    bool whole;
};
__device__ inline Axis axis_h(const Geometry& g) {
    return {g.step_h, g.over_h, g.begin_h, g.last_h, g.oh, g.whole != 0};
}
__device__ inline Axis axis_w(const Geometry& g) {
    return {g.step_w, g.over_w, g.begin_w, g.last_w, g.ow, g.whole != 0};
}

// The pixel at or before a place, how many pixels its neighbour is further on, and how much that counts: below 0 if it
// is not taken at all.
struct Where {
    int64 pixel, next;
    float behind;
};
__device__ inline Where where(const Axis& a, int64 i) {
    int64 at = i * a.step, q = quotient(at, (uint32)a.over), rest = at - q * a.over, pixel = a.begin + q;
    return {pixel, pixel < a.last, a.whole ? -1 : (float)rest / (float)a.over};
}

__device__ inline float blend(const T* p, int64 at, int64 apart, float behind) {
    float here = load(p, at);
    return behind >= 0 ? (1 - behind) * here + behind * load(p, at + apart) : here;
}

// `items`: values of y.
extern "C" __global__ void forward(const T* x, T* y, int64 items, Geometry g) {
    for (int64 i = first(); i < items; i += step()) {
        int64 pixel = quotient(i, g.c), line = quotient(pixel, g.ow), image = quotient(line, g.oh);
        Where r = where(axis_h(g), line - image * g.oh), q = where(axis_w(g), pixel - line * g.ow);
        int64 at = ((image * g.h + r.pixel) * g.w + q.pixel) * g.c + i - pixel * g.c;
        float found = blend(x, at, q.next * g.c, q.behind);
        if (r.behind >= 0)
            found = (1 - r.behind) * found + r.behind * blend(x, at + r.next * g.w * g.c, q.next * g.c, q.behind);
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

// The places [from, to) that may take from a pixel: those at or behind the pixel before, or with `whole` from the pixel
// on.
struct Range {
    int64 from, to;
};
__device__ inline Range takers(const Axis& a, int64 pixel) {
    return {first_at(a, a.whole ? pixel : pixel - 1), first_at(a, pixel + 1)};
}

// How much place i took from a pixel: below 0 if it did not. `twice`: also as its own neighbour, which counts 0.
struct Share {
    float part;
    bool twice;
};
__device__ inline Share share(const Axis& a, int64 i, int64 pixel) {
    Where w = where(a, i);
    if (w.pixel == pixel) return {w.behind < 0 ? 1 : 1 - w.behind, w.behind >= 0 && !w.next};
    return {w.next && w.pixel + 1 == pixel ? w.behind : -1, false};
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
            Share vertical = share(down, r, row);
            if (vertical.part < 0) continue;
            for (int64 q = columns.from; q < columns.to; q++) {
                Share horizontal = share(along, q, column);
                if (horizontal.part < 0) continue;
                float from = load(dy, ((image * g.oh + r) * g.ow + q) * g.c + channel);
                sum += vertical.part * horizontal.part * from;
                if (vertical.twice || horizontal.twice) sum += 0 * from;
            }
        }
        store(dx, i, sum);
    }
}
