// Moves of elements: rows into a wider tensor and out of it, and from channels innermost to the logical order and back.

#include "each.cuh"

constexpr int PARTS = 100;  // most tensors of a launch
struct Parts {
    T* part[PARTS];
    int64 width[PARTS], start[PARTS];  // values of a row, and where it begins in a row of the whole
    int64 n[PARTS];
    int first[PARTS];
};

// Moves all rows of the parts into the whole, whose rows have `wide` values, or (OUT) out of it, V values at a time.
template <int V, bool OUT>
__device__ inline void move(const Parts& of, int count, int pieces, const T* from, T* to, int64 wide) {
    each_piece(of, count, pieces, [&](int k, int64 begin, int64 end) {
        int64 width = of.width[k] / V;
        bool narrow = width >> 32 == 0;
        for (int64 i = begin / V + threadIdx.x; i < end / V; i += EACH_BLOCK) {
            int64 row = narrow ? quotient(i, (uint32)width) : i / width, column = (i - row * width) * V;
            int64 at = row * wide + of.start[k] + column;
            if constexpr (V == 4) {
                if (OUT) store4(of.part[k], i, load4(from, at / 4));
                else store4(to, at / 4, load4(of.part[k], i));
            } else {
                if (OUT) store(of.part[k], i, load(from, at));
                else store(to, at, load(of.part[k], i));
            }
        }
    });
}
#define MOVES(V)                                                                                               \
    extern "C" __global__ void into_##V(Parts of, int count, int pieces, T* y, int64 wide) {                   \
        move<V, false>(of, count, pieces, nullptr, y, wide);                                                   \
    }                                                                                                          \
    extern "C" __global__ void out_of_##V(Parts of, int count, int pieces, const T* x, int64 wide) {           \
        move<V, true>(of, count, pieces, x, nullptr, wide);                                                    \
    }
MOVES(1)
MOVES(4)

// y(image, column, row) = x(image, row, column), with 256 threads. Tiles of 32 x 32 go through shared memory, 8 rows of
// a tile at a time, so that both x and y are touched in runs of 32 values.
constexpr int TILE = 32;
extern "C" __global__ void __launch_bounds__(256) transpose(const T* x, T* y, int64 images, int rows, int columns) {
    __shared__ float tile[TILE][TILE + 1];  // one more than a row: no bank conflicts
    int right = threadIdx.x % TILE, down = threadIdx.x / TILE;
    int high = (rows + TILE - 1) / TILE, wide = (columns + TILE - 1) / TILE;
    for (int64 t = blockIdx.x; t < images * high * wide; t += gridDim.x) {
        int64 line = quotient(t, wide), image = quotient(line, high);
        int row = (int)remainder(line, high, image) * TILE, column = (int)remainder(t, wide, line) * TILE;
        int64 start = image * rows * columns;
        for (int r = down; r < TILE; r += 8)
            if (row + r < rows && column + right < columns)
                tile[r][right] = load(x, start + (int64)(row + r) * columns + column + right);
        __syncthreads();
        for (int c = down; c < TILE; c += 8)
            if (column + c < columns && row + right < rows)
                store(y, start + (int64)(column + c) * rows + row + right, tile[right][c]);
        __syncthreads();
    }
}

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
