/* Convolution with one filter per channel ("depthwise") of NHWC images: its geometry, and which taps meet which places.
 * Vectors are over channels, so each element of a result is a sum over taps in one order, in every tile and on any
 * number of threads.
 */
#pragma once
#include "channels.h"
#include "mirrored.h"
#include "pieces.h"

/* The images that are read and written. In backward-filter: x, and dy in place of what is written. */
typedef struct {
    int64_t n, c, h, w, to_h, to_w;
    int64_t kernel_h, kernel_w, stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w;
    int64_t relu;
    int64_t pieces; /* backward-filter: partial sums, which are added up at the end */
    int64_t threads;
} Geometry;

ALWAYS int64_t pitch(const Geometry *g) { return up(g->c, LANES); }
ALWAYS int64_t taps(const Geometry *g) { return g->kernel_h * g->kernel_w; }
ALWAYS int large(const Geometry *g) { return g->n * (g->h * g->w + g->to_h * g->to_w) * g->c > ALONE; }

/* Along one axis, the places `begin + i * apart` of the result, and their taps: for k < count, tap `first + k * step`
 * of the filter, which meets place `at + i * stride + k * along` of the image. */
typedef struct {
    int64_t begin, apart, places, count, first, step, at, stride, along;
} Axis;

enum {
    TILE = 4, /* places that are computed together */
    FEW = 3,  /* most taps, along each axis, of a filter whose tiles load each pixel once */
    PIXELS = 2 * (TILE - 1) + FEW,
    NEAR = 2, /* a line before they are needed, pixels are prefetched: to the second cache, since they are many */
};

ALWAYS Axis forward_axis(int64_t to, int64_t kernel, int64_t stride, int64_t pad, int64_t dilation) {
    return (Axis){0, 1, to, kernel, 0, 1, -pad, stride, dilation};
}

/* The taps [from, to) of place i that lie on an image of this size. */
typedef struct {
    int64_t from, to;
} Part;

ALWAYS int64_t up_quotient(int64_t a, int64_t b) { return a > 0 ? (a + b - 1) / b : -(-a / b); }

ALWAYS Part on_image(Axis a, int64_t i, int64_t size) {
    const int64_t at = a.at + i * a.stride;
    if (a.count < 2) return (Part){0, a.count && at >= 0 && at < size};
    const int64_t from = up_quotient(-at, a.along), to = up_quotient(size - at, a.along);
    return (Part){from < 0 ? 0 : from, to < 0 ? 0 : at_most(a.count, to)};
}
