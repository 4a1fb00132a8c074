// From gradients to weights: sums of gradients, their norm, and Caffe's SGD.

#include "common.cuh"

constexpr int UPDATE_BLOCK = 256;

// ---- accumulation

// y = total + x, where y has the bytes of the total, which is float.
extern "C" __global__ void accumulate(const float* total, const T* x, float* y, int64 n) {
    map(n, y, [](float u, float v) { return u + v; }, total, x);
}

extern "C" __global__ void clear(T* y, int64 n) {
    map(n, y, [] { return 0.0f; });
}

// ---- SGD

// The order of operations is Caffe's, as in the cpu backend. Each operation is rounded: a fused multiply-add would
// round only once.
struct Sgd {
    float scale, step, decay, momentum;
    int lasso;

    __device__ float gradient(float w, float dw) const {
        float g = __fmul_rn(dw, scale);
        if (decay != 0) {
            float sign = w > 0 ? 1.0f : w < 0 ? -1.0f : w;  // 0 and NaN stay as they are
            g = __fadd_rn(g, __fmul_rn(lasso ? sign : w, decay));
        }
        return __fmul_rn(g, step);
    }
    __device__ void plain(float& w, float dw) const { w = __fsub_rn(w, gradient(w, dw)); }
    __device__ void with_momentum(float& w, float dw, float& h) const {
        h = __fadd_rn(__fmul_rn(h, momentum), gradient(w, dw));
        w = __fsub_rn(w, h);
    }
};

// Both kernels read the rate, the objective and the factor of gradients from device memory. If the objective or the
// factor is not finite, nothing changes.
#define SGD_NUMBERS                                                                                               \
    const float *rate, const float *objective, const float *clip, int clipped, int64 n, float scale, float lr_mult, \
        float decay, float momentum, int lasso
#define SGD_GIVEN                                                                                          \
    Sgd {                                                                                                  \
        clipped ? __fmul_rn(clip[0], scale) : scale, __fmul_rn(rate[0], lr_mult), decay, momentum, lasso \
    }

extern "C" __global__ void sgd(float* w, const T* dw, SGD_NUMBERS) {
    if (!isfinite(objective[0]) || (clipped && !isfinite(clip[0]))) return;
    Sgd sgd = SGD_GIVEN;
    for (int64 i = first(); i < n / 4; i += step()) {
        float4 a = load4(w, i), g = load4(dw, i);
        sgd.plain(a.x, g.x), sgd.plain(a.y, g.y), sgd.plain(a.z, g.z), sgd.plain(a.w, g.w);
        store4(w, i, a);
    }
    for (int64 i = n / 4 * 4 + first(); i < n; i += step()) {
        float a = load(w, i);
        sgd.plain(a, load(dw, i));
        store(w, i, a);
    }
}

extern "C" __global__ void sgd_momentum(float* w, const T* dw, float* h, SGD_NUMBERS) {
    if (!isfinite(objective[0]) || (clipped && !isfinite(clip[0]))) return;
    Sgd sgd = SGD_GIVEN;
    for (int64 i = first(); i < n / 4; i += step()) {
        float4 a = load4(w, i), g = load4(dw, i), b = load4(h, i);
        sgd.with_momentum(a.x, g.x, b.x), sgd.with_momentum(a.y, g.y, b.y);
        sgd.with_momentum(a.z, g.z, b.z), sgd.with_momentum(a.w, g.w, b.w);
        store4(h, i, b);
        store4(w, i, a);
    }
    for (int64 i = n / 4 * 4 + first(); i < n; i += step()) {
        float a = load(w, i), b = load(h, i);
        sgd.with_momentum(a, load(dw, i), b);
        store(h, i, b);
        store(w, i, a);
    }
}

// ---- clipping: squares are exact in double and added in double, so that the sums are good for any sizes

#define OF_EIGHT(type, name) \
    type name##0, type name##1, type name##2, type name##3, type name##4, type name##5, type name##6, type name##7

#define EIGHT(name) name##0, name##1, name##2, name##3, name##4, name##5, name##6, name##7

// Sums the squares of up to eight gradients, the k-th by blocks_k blocks. Each block writes one sum to `partial`.
template <class S>
__device__ inline void sum_squares(OF_EIGHT(const S*, dw), OF_EIGHT(int64, n), OF_EIGHT(int, blocks), double* partial,
                                   double (&shared)[UPDATE_BLOCK]) {
    const S* all[8] = {dw0, dw1, dw2, dw3, dw4, dw5, dw6, dw7};
    int64 sizes[8] = {n0, n1, n2, n3, n4, n5, n6, n7};
    int blocks[8] = {blocks0, blocks1, blocks2, blocks3, blocks4, blocks5, blocks6, blocks7};
    int block = blockIdx.x;
    const S* dw = dw0;
    int64 n = 0, among = 1;
    for (int k = 0; k < 8; k++) {
        if (block >= 0 && block < blocks[k]) {
            dw = all[k], n = sizes[k], among = blocks[k];
            break;
        }
        block -= blocks[k];
    }
    double sum = 0;
    for (int64 i = (int64)block * blockDim.x + threadIdx.x; i < n / 4; i += among * blockDim.x) {
        float4 v = load4(dw, i);
        sum += ((double)v.x * v.x + (double)v.y * v.y) + ((double)v.z * v.z + (double)v.w * v.w);
    }
    int64 rest = n / 4 * 4 + threadIdx.x;
    if (block == 0 && rest < n) sum += (double)load(dw, rest) * load(dw, rest);
    sum = block_sum(shared, sum);
    if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

#define SQUARES(S, name)                                                                            \
    extern "C" __global__ void name(OF_EIGHT(const S*, dw), OF_EIGHT(int64, n), OF_EIGHT(int, blocks), \
                                    double* partial) {                                              \
        __shared__ double shared[UPDATE_BLOCK];                                                     \
        sum_squares<S>(EIGHT(dw), EIGHT(n), EIGHT(blocks), partial, shared);                        \
    }
SQUARES(T, squares)
SQUARES(float, squares_float)

// The factor is threshold / norm if the norm is larger than the threshold, else 1. For one block.
extern "C" __global__ void clip_factor(const double* partial, float* factor, int n, double threshold) {
    __shared__ double shared[UPDATE_BLOCK];
    double sum = 0;
    for (int i = threadIdx.x; i < n; i += blockDim.x) sum += partial[i];
    double norm = sqrt(block_sum(shared, sum));
    if (threadIdx.x == 0) factor[0] = norm > threshold ? (float)(threshold / norm) : 1.0f;
}

// The same for gradients that are scaled by state[0]: the factor also undoes the scale. If the gradients are not finite
// and the scale can be halved, it is halved, and the factor is NaN. state[1] is the number of good steps. After
// `period` of them the scale is doubled, but not above `most`. If the objective is not finite, the state stays as it
// is. For one block.
extern "C" __global__ void unscale_factor(const double* partial, const float* objective, float* state, float* factor,
                                          int n, double threshold, int period, float most, float least) {
    __shared__ double shared[UPDATE_BLOCK];
    double sum = 0;
    for (int i = threadIdx.x; i < n; i += blockDim.x) sum += partial[i];
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
