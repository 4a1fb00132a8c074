// Products of pairs of matrices: y (+)= scale * A B (+ bias), for each of `batch` pairs, which lie one after another.
//
// A block computes tiles of y, TILE x TILE each, with 16 x 16 threads; a thread has 4 rows and 4 columns, 16 apart, so
// that neighbouring threads store neighbouring values. DEPTH columns of A and rows of B at a time go through shared
// memory. The sum of an element goes from the first product to the last.

#include "common.cuh"

constexpr int TILE = 64, DEPTH = 16, EACH = 4, SIDE = TILE / EACH, THREADS = SIDE * SIDE;

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
__device__ inline void fill(float (&tile)[DEPTH][TILE + 1], const Matrix& m, int row, int column) {
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
    __shared__ float left[DEPTH][TILE + 1], right[DEPTH][TILE + 1];  // one more than a row: no bank conflicts
    int across = (columns + TILE - 1) / TILE, down = (rows + TILE - 1) / TILE;
    int own_row = threadIdx.x / SIDE, own_column = threadIdx.x % SIDE;
    for (int64 t = blockIdx.x; t < batch * down * across; t += gridDim.x) {
        int64 line = quotient(t, across), pair = quotient(line, down);
        int row = (int)remainder(line, down, pair) * TILE, column = (int)remainder(t, across, line) * TILE;
        Matrix of_a{a + pair * rows * depth, rows, depth, turned_a != 0};
        Matrix of_b{b + pair * depth * columns, columns, depth, turned_b == 0};  // B', whose rows are B's columns
        float sum[EACH][EACH] = {};
        for (int k = 0; k < depth; k += DEPTH) {
            fill(left, of_a, row, k);
            fill(right, of_b, column, k);
            __syncthreads();
#pragma unroll
            for (int d = 0; d < DEPTH; d++) {
                float x[EACH], w[EACH];
#pragma unroll
                for (int i = 0; i < EACH; i++) {
                    x[i] = left[d][own_row + i * SIDE];
                    w[i] = right[d][own_column + i * SIDE];
                }
#pragma unroll
                for (int i = 0; i < EACH; i++)
#pragma unroll
                    for (int j = 0; j < EACH; j++) sum[i][j] += x[i] * w[j];
            }
            __syncthreads();
        }
        for (int i = 0; i < EACH; i++)
            for (int j = 0; j < EACH; j++) {
                int to_row = row + own_row + i * SIDE, to_column = column + own_column + j * SIDE;
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
