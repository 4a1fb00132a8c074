// Products of pairs of matrices on tensor cores: y (+)= scale * A B (+ bias), as matmul.cu does them without.
//
// A block of 2 x 4 warps computes tiles of y, SIDE x SIDE each. STEP numbers of each row of A and column of B at a time
// lie in shared memory, STAGES times: while one is multiplied, the next ones are on their way. The sum of an element
// goes from the first STEP to the last, K at a time, whatever the side of the tile.

#include "mma.cuh"

constexpr int THREADS = 256, STAGES = 3, STEP = 64 / sizeof(T);
constexpr int GROUPED = 8;  // tiles below each other that follow each other: so B is read from memory once for all

// A part of A (or of B'): SIDE rows of STEP numbers. TURNED: a row of the tile has SIDE numbers, of one k.
template <int SIDE, bool TURNED>
struct Part {
    static constexpr int PITCH = TURNED ? SIDE + 8 : STEP + UNITS;
    static constexpr int SIZE = SIDE * (STEP + UNITS);  // is enough for both
    static_assert(STEP * (SIDE + 8) <= SIZE || !TURNED);

    const T* p;
    int64 pitch;
    int rows, unit;  // that are there from the tile's first one on

    __device__ Part(const T* matrix, int row, int rows, int depth, int unit)
        : p(matrix + (TURNED ? row : (int64)row * depth)), pitch(TURNED ? rows : depth), rows(rows - row), unit(unit) {}

    __device__ void fill(T* tile, int k, int left) const {
        if constexpr (TURNED) fetch<STEP, SIDE, PITCH, THREADS>(tile, p + k * pitch, pitch, left, rows, unit);
        else fetch<SIDE, STEP, PITCH, THREADS>(tile, p + k, pitch, rows, left, unit);
    }
    __device__ static Factor factor(const T* tile, int row, int k) {
        if constexpr (TURNED) return in_columns<PITCH>(tile, row, k);
        else return in_rows<PITCH>(tile, row, k);
    }
};

template <int SIDE, bool TURNED_A, bool TURNED_B>
__device__ inline void multiply(const T* a, const T* b, const T* bias, T* y, int64 batch, int rows, int depth, int columns,
                                int unit_a, int unit_b, int biased, int adds, float scale) {
    using Left = Part<SIDE, TURNED_A>;
    using Right = Part<SIDE, !TURNED_B>;
    constexpr int DOWN = SIDE / 2, ACROSS = SIDE / 4, STAGE = Left::SIZE + Right::SIZE;  // of a warp
    extern __shared__ __align__(16) T tiles[];
    Lane l;
    int down = (rows + SIDE - 1) / SIDE, across = (columns + SIDE - 1) / SIDE, steps = (depth + STEP - 1) / STEP;
    int own_row = l.warp / 4 * DOWN, own_column = l.warp % 4 * ACROSS;
    for (int64 t = blockIdx.x; t < batch * down * across; t += gridDim.x) {
        int64 pair = quotient(t, down * across);
        int of_pair = (int)remainder(t, down * across, pair), group = of_pair / (GROUPED * across);
        int left = down - group * GROUPED, high = left < GROUPED ? left : GROUPED, of_group = of_pair % (GROUPED * across);
        int row = (group * GROUPED + of_group % high) * SIDE, column = of_group / high * SIDE;
        Left of_a(a + pair * rows * depth, row, rows, depth, unit_a);
        Right of_b(b + pair * depth * columns, column, columns, depth, unit_b);
        float sums[DOWN / 16][ACROSS / 8][4];
#pragma unroll
        for (int i = 0; i < DOWN / 16; i++) clear(sums[i]);
        auto fill = [&](int step) {
            T* stage = tiles + step % STAGES * STAGE;
            if (step < steps) {
                of_a.fill(stage, step * STEP, depth - step * STEP);
                of_b.fill(stage + Left::SIZE, step * STEP, depth - step * STEP);
            }
            commit_group();
        };
#pragma unroll 1
        for (int s = 1 - STAGES; s < steps; s++) {
            if (s >= 0) {
                wait_group<STAGES - 2>();
                __syncthreads();  // also behind the last use of the stage that is filled now
            }
            fill(s + STAGES - 1);
            if (s < 0) continue;
            const T* stage = tiles + s % STAGES * STAGE;
#pragma unroll
            for (int k = 0; k < STEP; k += K) {
                Factor of_rows[DOWN / 16];
#pragma unroll
                for (int i = 0; i < DOWN / 16; i++) of_rows[i] = Left::factor(stage, own_row + i * 16, k);
#pragma unroll
                for (int j = 0; j < ACROSS / 16; j++) {
                    Factor of_columns = Right::factor(stage + Left::SIZE, own_column + j * 16, k);
#pragma unroll
                    for (int i = 0; i < DOWN / 16; i++) two(sums[i][2 * j], sums[i][2 * j + 1], of_rows[i], of_columns);
                }
            }
        }
        __syncthreads();  // before the next tile's stages
#pragma unroll
        for (int j = 0; j < ACROSS / 8; j++)
#pragma unroll
            for (int h = 0; h < 2; h++) {
                int to_column = column + own_column + j * 8 + l.t * 2 + h;
                if (to_column >= columns) continue;
                float plus = biased ? load(bias, to_column) : 0.0f;
#pragma unroll
                for (int i = 0; i < DOWN / 8; i++) {
                    int to_row = row + own_row + i * 8 + l.g;
                    if (to_row >= rows) continue;
                    int64 at = (pair * rows + to_row) * columns + to_column;
                    float v = sums[i / 2][j][i % 2 * 2 + h] * scale + plus;
                    if (adds) v += load(y, at);
                    store(y, at, v);
                }
            }
    }
}

// `bias` is read only if there is one. `adds`: whether the products are added to what y is.
#define KERNEL(SIDE, A, B)                                                                                             \
    extern "C" __global__ void __launch_bounds__(256) tensor_matmul_##SIDE##_##A##B(                                   \
        const T* a, const T* b, const T* bias, T* y, int64 batch, int rows, int depth, int columns, int unit_a,        \
        int unit_b, int biased, int adds, float scale) {                                                               \
        multiply<SIDE, A, B>(a, b, bias, y, batch, rows, depth, columns, unit_a, unit_b, biased, adds, scale);         \
    }
#define KERNELS(SIDE) KERNEL(SIDE, 0, 0) KERNEL(SIDE, 0, 1) KERNEL(SIDE, 1, 0) KERNEL(SIDE, 1, 1)
KERNELS(64)
KERNELS(128)
