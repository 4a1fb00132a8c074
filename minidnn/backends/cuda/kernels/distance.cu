// Losses of elements with targets or labels, and of pairs of vectors (the rows of rows.cuh). loss.cu's `loss_finish`
// adds up what the blocks have found.

#include "rows.cuh"

enum Function { SIGMOID_CROSS_ENTROPY, SQUARE, SMOOTH_L1, HINGE_L1, HINGE_L2, LOGISTIC };

constexpr float LEAST = 1e-20f;  // Caffe's least probability, before its logarithm is taken
constexpr float NEAR = 1e-4f;    // Caffe adds this to a distance before it divides by it

__device__ inline float positive(float v) { return v <= 0 ? 0 : v; }  // NaN stays
__device__ inline float sign(float v) { return v > 0 ? 1 : v < 0 ? -1 : v; }

// The function of an element x and its target t.
__device__ inline float value(int function, float sigma, float x, float t) {
    float d = x - t, far = 1 / (sigma * sigma), short_of = positive(1 - (2 * t - 1) * x);
    switch (function) {
        case SIGMOID_CROSS_ENTROPY: return log1pf(expf(-fabsf(x))) - x * (t - (x >= 0 ? 1.0f : 0.0f));
        case SQUARE: return d * d / 2;
        case SMOOTH_L1: return fabsf(d) < far ? sigma * d * (sigma * d) / 2 : fabsf(d) - far / 2;
        case HINGE_L1: return short_of;
        case HINGE_L2: return short_of * short_of;
        default: return t == 0 ? 0 : -logf(x < LEAST ? LEAST : x);
    }
}

// Its derivative by x.
__device__ inline float slope(int function, float sigma, float x, float t) {
    float d = x - t, side = 1 - 2 * t, short_of = positive(1 + side * x), e = expf(-fabsf(x));
    switch (function) {
        case SIGMOID_CROSS_ENTROPY: return (x >= 0 ? 1 : e) / (1 + e) - t;
        case SQUARE: return d;
        case SMOOTH_L1: return fabsf(d) < 1 / (sigma * sigma) ? sigma * sigma * d : sign(d);
        case HINGE_L1: return side * sign(short_of);
        case HINGE_L2: return 2 * side * short_of;
        default: return t == 0 ? 0 : -1 / (x < LEAST ? LEAST : x);
    }
}

// What the kernels read: x; targets, or labels, one for each `length` elements; none, one or two weights. Targets whose
// whole part is `ignored` do not count, if `ignores`.
struct Elements {
    const float* x;
    const void* target;
    const float *inside, *outside;
    int64 length;
    int labelled, weights, ignores, ignored;

    // Sets the arguments of `value` and `slope` for element i. Returns whether it counts.
    __device__ bool at(int64 i, float& v, float& t) const {
        v = x[i];
        if (labelled) {
            int64 row = i / length;
            int label = ((const int*)target)[row];
            t = label < 0 || label >= length ? not_a_number() : i - row * length == label ? 1.0f : 0.0f;
            if (t != t) v = t;
        } else {
            t = ((const float*)target)[i];
        }
        bool counts = !(ignores && truncf(t) == (float)ignored);
        if (weights > 0) v = inside[i] * (v - t), t = 0;
        return counts;
    }
};
#define ELEMENTS                                                                                             \
    const float *x, const void *target, const float *inside, const float *outside, int64 n, int64 length,    \
        int labelled, int weights, int ignores, int ignored, int function, float sigma
#define ELEMENTS_GIVEN Elements{x, target, inside, outside, length, labelled, weights, ignores, ignored}

// Each block's part of the sum, and the number of its elements that count. A label that names no class makes its row
// NaN.
extern "C" __global__ void pointwise(ELEMENTS, double* losses, int64* counted) {
    __shared__ double loss_shared[ROW_BLOCK];
    __shared__ int64 count_shared[ROW_BLOCK];
    Elements e = ELEMENTS_GIVEN;
    double loss = 0;
    int64 count = 0;
    for (int64 i = first(); i < n; i += step()) {
        float v, t;
        if (!e.at(i, v, t)) continue;
        float found = value(function, sigma, v, t);
        loss += weights > 1 ? outside[i] * found : found;
        count++;
    }
    loss = block_sum(loss_shared, loss);
    count = block_sum(count_shared, count);
    if (threadIdx.x == 0) losses[blockIdx.x] = loss, counted[blockIdx.x] = count;
}

// Counts those of n targets whose whole part is not `ignored`: one number for each block.
extern "C" __global__ void count_targets(const float* target, int* counted, int64 n, int ignored) {
    __shared__ int shared[ROW_BLOCK];
    int count = 0;
    for (int64 i = first(); i < n; i += step()) count += truncf(target[i]) != (float)ignored;
    count = block_sum(shared, count);
    if (threadIdx.x == 0) counted[blockIdx.x] = count;
}

// dx = weight / divisor times the derivative, and dt = -dx: the first if `into` has bit 0, the second if it has bit 1.
// Each may have the bytes of what is read in its place. A divisor of 0 means the sum of the `parts` numbers in
// `counted`.
extern "C" __global__ void pointwise_backward(ELEMENTS, const void* counted, float* dx, float* dt, int into, int parts,
                                              double weight, double divisor) {
    __shared__ int64 shared[ROW_BLOCK];
    Elements e = ELEMENTS_GIVEN;
    float factor = (float)(weight / divided_by(divisor, (const int*)counted, parts, shared));
    for (int64 i = first(); i < n; i += step()) {
        float v, t, found = 0;
        if (e.at(i, v, t)) {
            found = slope(function, sigma, v, t) * factor;
            if (weights > 0) found *= inside[i];
            if (weights > 1) found *= outside[i];
        }
        if (into & 1) dx[i] = found;
        if (into & 2) dt[i] = -found;
    }
}

// ---- pairs of vectors

// The square of the distance of row a to row b. All threads of the block call this.
__device__ inline float square(const Rows& g, const Thread& me, float (&shared)[ROW_BLOCK], const float* a,
                               const float* b, bool there) {
    float sum = 0;
    if (there)
        for (int k = me.lane; k < g.length; k += g.lanes) sum += (a[k] - b[k]) * (a[k] - b[k]);
    return of_row(g, me, shared, sum, Plus());
}

// Each block's part of the sum over pairs: the square of the distance if they are similar, else by how much it falls
// short of the margin.
extern "C" __global__ void contrastive(const float* a, const float* b, const int* similar, double* losses,
                                       int64* counted, ROWS, float margin, int legacy) {
    __shared__ float shared[ROW_BLOCK];
    __shared__ double loss_shared[ROW_BLOCK];
    Rows g = ROWS_GIVEN;
    Thread me(g);
    double loss = 0;
    for_rows(g, me, [&](int64 row, int64 begin, bool there) {
        float far = square(g, me, shared, a + begin, b + begin, there);
        if (!there || me.lane) return;
        float left = positive(margin - (legacy ? far : sqrtf(far)));
        loss += similar[row] ? far : legacy ? left : left * left;
    });
    loss = block_sum(loss_shared, loss);
    if (threadIdx.x == 0) losses[blockIdx.x] = loss, counted[blockIdx.x] = 0;
}

// da if `into` has bit 0, and db = -da if it has bit 1. Each may have the bytes of what is read in its place.
extern "C" __global__ void contrastive_backward(const float* a, const float* b, const int* similar, float* da,
                                                float* db, ROWS, float margin, int legacy, int into, float factor) {
    __shared__ float shared[ROW_BLOCK];
    Rows g = ROWS_GIVEN;
    Thread me(g);
    for_rows(g, me, [&](int64 row, int64 begin, bool there) {
        float far = square(g, me, shared, a + begin, b + begin, there), size = sqrtf(far);
        if (!there) return;
        float left = margin - (legacy ? far : size);
        float by = similar[row] ? factor : legacy ? -factor : -factor * (left / (size + NEAR));
        bool none = !similar[row] && left <= 0;
        for (int k = me.lane; k < length; k += lanes) {
            float found = none ? 0 : by * (a[begin + k] - b[begin + k]);
            if (into & 1) da[begin + k] = found;
            if (into & 2) db[begin + k] = -found;
        }
    });
}
