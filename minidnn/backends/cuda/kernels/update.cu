// From gradients to weights: Caffe's SGD.

#include "multi_tensor.cuh"

// The order of operations is Caffe's, as in the cpu backend.
struct Sgd {
    float scale, step, decay, momentum;
    int lasso;

    __device__ float gradient(float w, float dw) const {
        float g = dw * scale;
        if (decay != 0) {
            float sign = w > 0 ? 1.0f : w < 0 ? -1.0f : w;  // 0 and NaN stay as they are
            g += (lasso ? sign : w) * decay;
        }
        return g * step;
    }
    template <bool MOMENTUM>
    __device__ void step_of(float& w, float dw, float& h) const {
        h = MOMENTUM ? h * momentum + gradient(w, dw) : gradient(w, dw);
        w -= h;
    }
};

constexpr int UPDATES = 80;  // most weights of a launch
struct Updates {
    float* w[UPDATES];
    const void* dw[UPDATES];  // of floats if `wide`, else of T
    float* h[UPDATES];        // not used without momentum
    int64 n[UPDATES];
    int first[UPDATES];
    float lr_mult[UPDATES], decay[UPDATES];
    uint8 wide[UPDATES];
};

// A piece of a weight, four values at a time. All of a thread's loads come before its stores.
template <bool MOMENTUM, class G>
__device__ inline void update(const Sgd& sgd, float* w, const G* dw, float* h, int64 begin, int64 end) {
    float4 a[FOURS], g[FOURS], b[FOURS];
#pragma unroll
    for (int k = 0; k < FOURS; k++) {
        int64 i = four_of(begin, k);
        if (i >= end / 4) continue;
        a[k] = load4(w, i), g[k] = load4(dw, i);
        if (MOMENTUM) b[k] = load4(h, i);
    }
#pragma unroll
    for (int k = 0; k < FOURS; k++) {
        int64 i = four_of(begin, k);
        if (i >= end / 4) continue;
        sgd.step_of<MOMENTUM>(a[k].x, g[k].x, b[k].x), sgd.step_of<MOMENTUM>(a[k].y, g[k].y, b[k].y);
        sgd.step_of<MOMENTUM>(a[k].z, g[k].z, b[k].z), sgd.step_of<MOMENTUM>(a[k].w, g[k].w, b[k].w);
        if (MOMENTUM) store4(h, i, b[k]);
        store4(w, i, a[k]);
    }
    if (int64 i = rest_of(end); i < end) {
        float u = load(w, i), v = MOMENTUM ? load(h, i) : 0;
        sgd.step_of<MOMENTUM>(u, load(dw, i), v);
        if (MOMENTUM) store(h, i, v);
        store(w, i, u);
    }
}

// The rate, the objective and the factor of gradients are in device memory. If the objective or the factor is not
// finite, nothing changes.
template <bool MOMENTUM>
__device__ inline void update_multi_tensor(const Updates& of, int count, int pieces, const float* rate, const float* objective,
                                   const float* clip, int clipped, float scale, float momentum, int lasso) {
    if (!isfinite(objective[0]) || (clipped && !isfinite(clip[0]))) return;
    float factor = clipped ? clip[0] * scale : scale;
    each_piece(of, count, pieces, [&](int k, int64 begin, int64 end) {
        Sgd sgd{factor, rate[0] * of.lr_mult[k], of.decay[k], momentum, lasso};
        if (of.wide[k]) update<MOMENTUM>(sgd, of.w[k], (const float*)of.dw[k], of.h[k], begin, end);
        else update<MOMENTUM>(sgd, of.w[k], (const T*)of.dw[k], of.h[k], begin, end);
    });
}

#define SGD(name, MOMENTUM)                                                                                           \
    extern "C" __global__ void name(Updates of, int count, int pieces, const float* rate, const float* objective,     \
                                    const float* clip, int clipped, float scale, float momentum, int lasso) {         \
        update_multi_tensor<MOMENTUM>(of, count, pieces, rate, objective, clip, clipped, scale, momentum, lasso);             \
    }
SGD(sgd, false)
SGD(sgd_momentum, true)
