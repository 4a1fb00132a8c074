// GroupNorm and InstanceNorm: each group of channels of a sample is shifted by its mean and divided by its deviation.
//
// A row is a group of a sample. The mean is the first element plus the mean of the distances from it, and the variance
// is taken from the distances to the mean. So both are right however far from 0 a row is. Means, inverses of deviations,
// sums, gamma and beta are float in every storage.

#include "rows.cuh"

// Images have their channels innermost: then `run` is 1. Of other tensors a channel is a run of neighbours.
struct Groups {
    int64 sample;                 // elements of a sample
    int groups, width, run;       // groups of a sample; channels of a group; neighbours that are of one channel

    __device__ int64 begin(int64 row) const { return row / groups * sample + row % groups * (int64)width * run; }
    __device__ int64 element(int k) const { return run > 1 ? k : k / width * ((int64)groups * width) + k % width; }
    __device__ int channel(int k) const { return run > 1 ? k / run : k % width; }  // of the group
};
#define GROUPS int64 sample, int groups, int width, int run
#define GROUPS_GIVEN Groups{sample, groups, width, run}

// y may have the bytes of x: each thread reads a value for the last time just before it overwrites it.
__device__ inline void normalize(const T* x, const float* gamma, const float* beta, T* y, float* inverse, float* mean,
                                 float eps, Groups of, Rows g, float (&shared)[ROW_BLOCK]) {
    Thread me(g);
    for_rows(g, me, [&](int64 row, int64, bool there) {
        int64 begin = there ? of.begin(row) : 0;
        float first = there ? load(x, begin) : 0.0f, sum = 0, squares = 0;
        if (there)
            for (int k = me.lane; k < g.length; k += g.lanes) sum += load(x, begin + of.element(k)) - first;
        float middle = of_row(g, me, shared, sum, Plus()) / g.length;
        if (there)
            for (int k = me.lane; k < g.length; k += g.lanes) {
                float away = load(x, begin + of.element(k)) - first - middle;
                squares += away * away;
            }
        float scale = 1 / sqrtf(of_row(g, me, shared, squares, Plus()) / g.length + eps);
        if (!there) return;
        for (int k = me.lane; k < g.length; k += g.lanes) {
            int64 i = begin + of.element(k), c = row % of.groups * of.width + of.channel(k);
            float v = (load(x, i) - first - middle) * scale;
            store(y, i, gamma ? v * gamma[c] + beta[c] : v);
        }
        if (me.lane == 0) mean[row] = first + middle, inverse[row] = scale;
    });
}

extern "C" __global__ void forward(const T* x, T* y, float* inverse, float* mean, float eps, GROUPS, ROWS) {
    __shared__ float shared[ROW_BLOCK];
    normalize(x, nullptr, nullptr, y, inverse, mean, eps, GROUPS_GIVEN, ROWS_GIVEN, shared);
}
extern "C" __global__ void forward_scaled(const T* x, const float* gamma, const float* beta, T* y, float* inverse,
                                          float* mean, float eps, GROUPS, ROWS) {
    __shared__ float shared[ROW_BLOCK];
    normalize(x, gamma, beta, y, inverse, mean, eps, GROUPS_GIVEN, ROWS_GIVEN, shared);
}

// Of each sample and channel, which here is a row, the sums of dy times the normalized x, and of dy.
extern "C" __global__ void channel_sums(const T* x, const T* dy, const float* inverse, const float* mean,
                                        float* products, float* sums, int width, ROWS) {
    __shared__ float shared[ROW_BLOCK];
    Rows g = ROWS_GIVEN;
    Thread me(g);
    for_rows(g, me, [&](int64 row, int64 begin, bool there) {
        float middle = there ? mean[row / width] : 0.0f, scale = there ? inverse[row / width] : 0.0f;
        float sum = 0, product = 0;
        if (there)
            for (int k = me.lane; k < g.length; k += g.lanes) {
                float d = load(dy, begin + k * g.inner);
                sum += d;
                product += d * ((load(x, begin + k * g.inner) - middle) * scale);
            }
        sum = of_row(g, me, shared, sum, Plus());
        product = of_row(g, me, shared, product, Plus());
        if (there && me.lane == 0) sums[row] = sum, products[row] = product;
    });
}

// dx = inverse (g - mean(g) - n mean(g n)), where g is dy (* gamma) and n the normalized x. dx may have the bytes of x or
// dy.
__device__ inline void differentiate(const T* x, const T* dy, const float* inverse, const float* mean,
                                     const float* gamma, const float* products, const float* sums, T* dx, Groups of,
                                     Rows g, float (&shared)[ROW_BLOCK]) {
    Thread me(g);
    for_rows(g, me, [&](int64 row, int64, bool there) {
        int64 channel = row * of.width, own = row % of.groups * of.width;  // the first of the row: of all samples, of one
        float level = 0, along = 0;
        if (there)
            for (int k = me.lane; k < of.width; k += g.lanes) {
                float factor = gamma ? gamma[own + k] : 1.0f;
                level += factor * sums[channel + k];
                along += factor * products[channel + k];
            }
        level = of_row(g, me, shared, level, Plus()) / g.length;
        along = of_row(g, me, shared, along, Plus()) / g.length;
        if (!there) return;
        int64 begin = of.begin(row);
        float middle = mean[row], scale = inverse[row];
        for (int k = me.lane; k < g.length; k += g.lanes) {
            int64 i = begin + of.element(k);
            float d = load(dy, i) * (gamma ? gamma[own + of.channel(k)] : 1.0f);
            store(dx, i, scale * (d - level - (load(x, i) - middle) * scale * along));
        }
    });
}

extern "C" __global__ void backward(const T* x, const T* dy, const float* inverse, const float* mean,
                                    const float* products, const float* sums, T* dx, GROUPS, ROWS) {
    __shared__ float shared[ROW_BLOCK];
    differentiate(x, dy, inverse, mean, nullptr, products, sums, dx, GROUPS_GIVEN, ROWS_GIVEN, shared);
}
extern "C" __global__ void backward_scaled(const T* x, const T* dy, const float* inverse, const float* mean,
                                           const float* gamma, const float* products, const float* sums, T* dx, GROUPS,
                                           ROWS) {
    __shared__ float shared[ROW_BLOCK];
    differentiate(x, dy, inverse, mean, gamma, products, sums, dx, GROUPS_GIVEN, ROWS_GIVEN, shared);
}
