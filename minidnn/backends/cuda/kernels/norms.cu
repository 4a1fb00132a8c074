// Sums of squares by blocks, clipping, the loss's scale, and the ratios of LARS and LAMB.

#include "squares.cuh"

constexpr int GRADIENTS = 160;  // most gradients of a launch
struct Gradients {
    const void* x[GRADIENTS];  // of floats if `wide`, else of T
    int64 n[GRADIENTS];
    int first[GRADIENTS];
    uint8 wide[GRADIENTS];
};

// Sums the squares of each piece of many gradients.
extern "C" __global__ void squares(Gradients of, int count, int pieces, double* sums) {
    __shared__ double shared[MULTI_TENSOR_BLOCK];
    each_piece(of, count, pieces, [&](int k, int64 begin, int64 end) {
        double sum = of.wide[k] ? squares_of(shared, (const float*)of.x[k], begin, end)
                                : squares_of(shared, (const T*)of.x[k], begin, end);
        if (threadIdx.x == 0) sums[of.first[k] + begin / PIECE] = sum;
    });
}

constexpr int TOTALS = 480;  // most tensors of a launch
struct Totals {
    int first[TOTALS], count[TOTALS];
};

// The sum of the squares of each tensor, of whose blocks all ranks' sums are there. Each block makes one.
extern "C" __global__ void tensor_squares(Totals of, const double* sums, int ranks, int row, double* totals) {
    __shared__ double shared[MULTI_TENSOR_BLOCK];
    double sum = total_squares(shared, sums, ranks, row, of.first[blockIdx.x], of.count[blockIdx.x]);
    if (threadIdx.x == 0) totals[blockIdx.x] = sum;
}

// The factor is threshold / norm if the norm is larger than the threshold, else 1. For one block.
extern "C" __global__ void clip_factor(const double* totals, float* factor, int n, double threshold) {
    __shared__ double shared[MULTI_TENSOR_BLOCK];
    double sum = 0;
    for (int i = threadIdx.x; i < n; i += blockDim.x) sum += totals[i];
    double norm = sqrt(block_sum(shared, sum));
    if (threadIdx.x == 0) factor[0] = norm > threshold ? (float)(threshold / norm) : 1.0f;
}

// The same for gradients that are scaled by state[0]: the factor also undoes the scale. If the gradients are not finite
// and the scale can be halved, it is halved, and the factor is NaN. state[1] is the number of good steps. After
// `period` of them the scale is doubled, but not above `most`. If the objective is not finite, the state stays as it
// is. For one block.
extern "C" __global__ void unscale_factor(const double* totals, const float* objective, float* state, float* factor,
                                          int n, double threshold, int period, float most, float least) {
    __shared__ double shared[MULTI_TENSOR_BLOCK];
    double sum = 0;
    for (int i = threadIdx.x; i < n; i += blockDim.x) sum += totals[i];
    sum = block_sum(shared, sum);
    if (threadIdx.x != 0) return;
    float scale = state[0], good = state[1] + 1;
    double norm = sqrt(sum) / scale;
    factor[0] = (float)((threshold >= 0 && norm > threshold ? threshold / norm : 1.0) / scale);
    if (!isfinite(objective[0])) return;
    if (isfinite(norm)) {
        bool due = good >= period;
        state[0] = due && scale * 2 <= most ? scale * 2 : scale;
        state[1] = due ? 0 : good;
    } else if (scale / 2 >= least) {
        state[0] = scale / 2, state[1] = 0;
        factor[0] = __int_as_float(0x7FFFFFFF);
    }
}

// ---- ratios

// The norms of a weight and of its step: a rank's row has the sums of the weight's blocks, then of the step's. For one
// block, whose thread 0 gets them.
__device__ inline void norms(double* shared, const void* sums, int ranks, int blocks, double& weight, double& step) {
    weight = sqrt(total_squares(shared, (const double*)sums, ranks, 2 * blocks, 0, blocks));
    step = sqrt(total_squares(shared, (const double*)sums, ranks, 2 * blocks, blocks, blocks));
}

// The ratio is 0 in a step that does not count, and 1 if a norm is 0. Without blocks `sums`, of double, is not read, and
// the norms are 0. For one block.
extern "C" __global__ void lars_ratio(const void* sums, int ranks, int blocks, const float* objective,
                                      const float* clip, float* ratio, double trust, float decay, float scale,
                                      int clipped) {
    __shared__ double shared[MULTI_TENSOR_BLOCK];
    double weight, step;
    norms(shared, sums, ranks, blocks, weight, step);
    if (threadIdx.x != 0) return;
    step *= clipped ? clip[0] * scale : scale;
    bool counts = isfinite(objective[0]) && (!clipped || isfinite(clip[0]));
    bool computed = weight > 0 && step > 0;
    ratio[0] = !counts ? 0.0f : computed ? (float)(trust * weight / (step + decay * weight)) : 1.0f;
}

// As lars_ratio, without a trust coefficient.
extern "C" __global__ void lamb_ratio(const void* sums, int ranks, int blocks, const float* objective,
                                      const float* clip, float* ratio, int clipped) {
    __shared__ double shared[MULTI_TENSOR_BLOCK];
    double weight, step;
    norms(shared, sums, ranks, blocks, weight, step);
    if (threadIdx.x != 0) return;
    bool counts = isfinite(objective[0]) && (!clipped || isfinite(clip[0]));
    ratio[0] = !counts ? 0.0f : weight > 0 && step > 0 ? (float)(weight / step) : 1.0f;
}
