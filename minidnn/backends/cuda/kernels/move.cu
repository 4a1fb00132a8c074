// Moves of elements: boxes, axes in another order, tiles, a circle, other shapes. backends/moves.py describes a move as loops
// over the target, whose elements follow each other in memory.

#include "common.cuh"

constexpr int MOST = 33;  // loops: an axis each, and the tiles

// A loop's places, the way from one to the next in the source, and the places that the source has.
struct Loops {
    int64 places[MOST], step[MOST], low[MOST], high[MOST];
};

// V values at a time, by which the innermost loop, `start` and the steps are counted. n: of all values, so counted.
template <int V>
__device__ inline void by_rows(const T* x, T* y, const Loops& of, int loops, int64 start, int64 n) {
    for (int64 i = first(); i < n; i += step()) {
        int64 rest = i, at = start;
        bool inside = true;
        for (int k = loops - 1; k >= 0; k--) {
            int64 above = k ? over(rest, of.places[k]) : 0, place = rest - above * of.places[k];
            at += place * of.step[k];
            inside = inside && place >= of.low[k] && place < of.high[k];
            rest = above;
        }
        if constexpr (V == 4) store4(y, i, inside ? load4(x, at) : make_float4(0, 0, 0, 0));
        else store(y, i, inside ? load(x, at) : 0.0f);
    }
}
extern "C" __global__ void rows_1(const T* x, T* y, Loops of, int loops, int64 start, int64 n) {
    by_rows<1>(x, y, of, loops, start, n);
}
extern "C" __global__ void rows_4(const T* x, T* y, Loops of, int loops, int64 start, int64 n) {
    by_rows<4>(x, y, of, loops, start, n);
}

// A loop around a transposition: its places, and the ways from one to the next in the source and in the target.
struct Around {
    int64 places[MOST], from[MOST], to[MOST];
};

// y(column, row) = x(row, column), with 256 threads, `images` times. Columns follow each other in x, rows in y. Tiles
// of 32 x 32 go through shared memory, 8 rows of a tile at a time. So x and y are both touched in runs of 32 values.
constexpr int TILE = 32;
extern "C" __global__ void __launch_bounds__(256) turned(
    const T* x, T* y, Around of, int loops, int64 images, int64 rows, int64 columns, int64 row_step, int64 pitch) {
    __shared__ float tile[TILE][TILE + 1];  // one more than a row: no bank conflicts
    int right = threadIdx.x % TILE, down = threadIdx.x / TILE;
    int64 high = (rows + TILE - 1) / TILE, wide = (columns + TILE - 1) / TILE;
    for (int64 t = blockIdx.x; t < images * high * wide; t += gridDim.x) {
        int64 line = over(t, wide), image = over(line, high);
        int64 row = (line - image * high) * TILE, column = (t - line * wide) * TILE;
        int64 from = row * row_step + column, to = column * pitch + row;
        for (int k = loops - 1; k >= 0; k--) {
            int64 above = over(image, of.places[k]), place = image - above * of.places[k];
            from += place * of.from[k], to += place * of.to[k];
            image = above;
        }
        for (int r = down; r < TILE; r += 8)
            if (row + r < rows && column + right < columns) tile[r][right] = load(x, from + r * row_step + right);
        __syncthreads();
        for (int c = down; c < TILE; c += 8)
            if (column + c < columns && row + right < rows) store(y, to + c * pitch + right, tile[right][c]);
        __syncthreads();
    }
}

// Each row of dx, of `width` values, is the sum of a row's tiles in dy, from the first to the last.
extern "C" __global__ void tiles(const T* dy, T* dx, int64 n, int64 width, int64 count) {
    for (int64 i = first(); i < n; i += step()) {
        int64 row = over(i, width), at = row * width * count + (i - row * width);
        float sum = load(dy, at);
        for (int64 t = 1; t < count; t++) sum += load(dy, at + t * width);
        store(dx, i, sum);
    }
}

// Each row, of `width` values, moved by `by` places in a circle.
extern "C" __global__ void roll(const T* x, T* y, int64 n, int64 width, int64 by) {
    for (int64 i = first(); i < n; i += step()) {
        int64 row = over(i, width), at = i - row * width;
        store(y, i, load(x, i + (at < by ? width - by : -by)));
    }
}
