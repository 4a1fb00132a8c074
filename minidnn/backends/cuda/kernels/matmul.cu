// Products of pairs of matrices: y (+)= scale * A B (+ bias), for each of `batch` pairs, which lie one after another.
//
// A block computes tiles of y, TILE x TILE each (tiles.cuh). The sum of an element goes from the first product to the
// last.

#include "tiles.cuh"

struct Matrix {  // of rows x columns, or if `turned` of columns x rows in memory
    const T* p;
    int rows, columns;
    bool turned;

    __device__ float at(int i, int k) const {
        if (i >= rows || k >= columns) return 0;
        return load(p, turned ? (int64)k * rows + i : (int64)i * columns + k);
    }
};

// Fills tile[k][i] with m(row + i, column + k), so that neighbouring threads read neighbouring values.
__device__ inline void fill(Slice& tile, const Matrix& m, int row, int column) {
    for (int e = threadIdx.x; e < TILE * DEPTH; e += THREADS) {
        int i = m.turned ? e % TILE : e / DEPTH, k = m.turned ? e / TILE : e % DEPTH;
        tile[k][i] = m.at(row + i, column + k);
    }
}

// `bias` is read only if there is one. `adds`: whether the products are added to what y is.
#define ARGUMENTS(Y)                                                                                               \
    const T *a, const T *b, const T *bias, Y *y, int64 batch, int rows, int depth, int columns, int turned_a,      \
        int turned_b, int biased, int adds, float scale
template <class Y>
__device__ inline void multiply(ARGUMENTS(Y)) {
    __shared__ Slice left, right;
    int across = (columns + TILE - 1) / TILE, down = (rows + TILE - 1) / TILE;
    Me me;
    for (int64 t = blockIdx.x; t < batch * down * across; t += gridDim.x) {
        int64 line = quotient(t, across), pair = quotient(line, down);
        int row = (int)remainder(line, down, pair) * TILE, column = (int)remainder(t, across, line) * TILE;
        Matrix of_a{a + pair * rows * depth, rows, depth, turned_a != 0};
        Matrix of_b{b + pair * depth * columns, columns, depth, turned_b == 0};  // B', whose rows are B's columns
        float sum[EACH][EACH];
        clear(sum);
        for (int k = 0; k < depth; k += DEPTH) {
            fill(left, of_a, row, k);
            fill(right, of_b, column, k);
            __syncthreads();
            multiply_add(left, right, sum);
            __syncthreads();
        }
        for (int i = 0; i < EACH; i++)
            for (int j = 0; j < EACH; j++) {
                int to_row = row + me.row + i * SIDE, to_column = column + me.column + j * SIDE;
                if (to_row >= rows || to_column >= columns) continue;
                int64 at = (pair * rows + to_row) * columns + to_column;
                float v = sum[i][j] * scale + (biased ? load(bias, to_column) : 0.0f);
                store(y, at, adds ? load(y, at) + v : v);
            }
    }
}

#define KERNEL(name, Y)                                                      \
    extern "C" __global__ void __launch_bounds__(256) name(ARGUMENTS(Y)) {   \
        multiply(a, b, bias, y, batch, rows, depth, columns, turned_a, turned_b, biased, adds, scale); \
    }
KERNEL(matmul, T)
KERNEL(matmul_to_float, float)  // what a kernel behind it goes on with, unrounded
