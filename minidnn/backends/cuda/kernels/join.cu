// Rows into a wider tensor and out of it, and images to images of another shape.

#include "multi_tensor.cuh"

constexpr int PARTS = 100;  // most tensors of a launch
struct Parts {
    T* part[PARTS];
    int64 width[PARTS], start[PARTS];  // values of a row, and where it begins in a row of the whole
    int64 n[PARTS];
    int first[PARTS];
};

// INTO: all rows of the parts move into the whole, whose rows have `wide` values. OUT_OF: they move out of it. CLEAR:
// their places in it become 0. V values at a time.
enum What { INTO, OUT_OF, CLEAR };
template <int V, What WHAT>
__device__ inline void move(const Parts& of, int count, int pieces, const T* from, T* to, int64 wide) {
    each_piece(of, count, pieces, [&](int k, int64 begin, int64 end) {
        int64 width = of.width[k] / V;
        for (int64 i = begin / V + threadIdx.x; i < end / V; i += MULTI_TENSOR_BLOCK) {
            int64 row = over(i, width), column = (i - row * width) * V;
            int64 at = row * wide + of.start[k] + column;
            if constexpr (V == 4) {
                if (WHAT == OUT_OF) store4(of.part[k], i, load4(from, at / 4));
                else store4(to, at / 4, WHAT == INTO ? load4(of.part[k], i) : make_float4(0, 0, 0, 0));
            } else {
                if (WHAT == OUT_OF) store(of.part[k], i, load(from, at));
                else store(to, at, WHAT == INTO ? load(of.part[k], i) : 0.0f);
            }
        }
    });
}
#define MOVES(V)                                                                                               \
    extern "C" __global__ void into_##V(Parts of, int count, int pieces, T* y, int64 wide) {                   \
        move<V, INTO>(of, count, pieces, nullptr, y, wide);                                                     \
    }                                                                                                          \
    extern "C" __global__ void out_of_##V(Parts of, int count, int pieces, const T* x, int64 wide) {           \
        move<V, OUT_OF>(of, count, pieces, x, nullptr, wide);                                                  \
    }                                                                                                          \
    extern "C" __global__ void clear_##V(Parts of, int count, int pieces, T* y, int64 wide) {                  \
        move<V, CLEAR>(of, count, pieces, nullptr, y, wide);                                                   \
    }
MOVES(1)
MOVES(4)

// Copies x to y in logical order, where both are images and have different shapes. Rare, and as slow as it looks.
extern "C" __global__ void reshape(
    const T* x, T* y, int64 n, int xc, int xh, int xw, int yc, int yh, int yw) {
    for (int64 i = first(); i < n; i += step()) {
        int64 pixel = quotient(i, yc), line = quotient(pixel, yw), image = quotient(line, yh);
        int64 c = remainder(i, yc, pixel), column = remainder(pixel, yw, line), row = remainder(line, yh, image);
        int64 logical = ((image * yc + c) * yh + row) * yw + column;
        int64 above = quotient(logical, xw), plane = quotient(above, xh), from = quotient(plane, xc);
        column = remainder(logical, xw, above), row = remainder(above, xh, plane), c = remainder(plane, xc, from);
        store(y, i, load(x, ((from * xh + row) * xw + column) * xc + c));
    }
}
