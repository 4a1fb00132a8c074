// Moves of elements: rows into a wider tensor and out of it, and from channels innermost to the logical order and back.

#include "common.cuh"

// Moves `rows` rows of `width` values, from rows that are `from` values apart to rows that are `to` apart.
template <int V>
__device__ inline void move(const T* x, T* y, int64 rows, int64 width, int64 from, int64 to) {
    int64 wide = width / V;
    bool narrow = wide >> 32 == 0;
    for (int64 i = first(); i < rows * wide; i += step()) {
        int64 row = narrow ? quotient(i, (uint32)wide) : i / wide, column = (i - row * wide) * V;
        int64 source = row * from + column, target = row * to + column;
        if constexpr (V == 4) store4(y, target / 4, load4(x, source / 4));
        else store(y, target, load(x, source));
    }
}
extern "C" __global__ void rows_1(const T* x, T* y, int64 rows, int64 width, int64 from, int64 to) {
    move<1>(x, y, rows, width, from, to);
}
extern "C" __global__ void rows_4(const T* x, T* y, int64 rows, int64 width, int64 from, int64 to) {
    move<4>(x, y, rows, width, from, to);
}

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
