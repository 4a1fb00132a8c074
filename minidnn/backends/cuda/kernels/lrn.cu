// LRN: y = x s^-beta with s = k + alpha (the sum of x^2 over a window). alpha is already divided by the window's size.
//
// A window is a product of two ranges, each along one axis and clipped at the edges. An axis has a stride in elements,
// a length, and half the range. A window across channels has one range and a trivial one. A window of n x n in an image
// has two; they are taken together, or one after the other (sums, then sums of sums).

#include "columns.cuh"

struct Axis {
    int64 stride;
    int length, half;
};

#define AXIS(a) int64 a##_stride, int a##_length, int a##_half
#define AXIS_GIVEN(a) Axis{a##_stride, a##_length, a##_half}

// The reach of element i's window along an axis: from `before` elements before it to `after` elements after it.
__device__ inline void reach(const Axis& a, int64 i, int& before, int& after) {
    before = after = 0;
    if (a.half == 0) return;
    int64 line = over(i, a.stride);
    int at = (int)remainder(line, a.length, quotient(line, a.length)), beyond = a.length - 1 - at;
    before = a.half < at ? a.half : at;
    after = a.half < beyond ? a.half : beyond;
}

template <class Value>
__device__ inline float window_sum(const Axis& a, const Axis& b, int64 i, Value value) {
    int before_a, after_a, before_b, after_b;
    reach(a, i, before_a, after_a);
    reach(b, i, before_b, after_b);
    float sum = 0;
    for (int k = -before_b; k <= after_b; k++)
        for (int j = -before_a; j <= after_a; j++) sum += value(i + k * b.stride + j * a.stride);
    return sum;
}

template <class S>
struct Square {
    const S* p;
    __device__ float operator()(int64 i) const {
        float v = load(p, i);
        return v * v;
    }
};
template <class S>
struct Plain {
    const S* p;
    __device__ float operator()(int64 i) const { return load(p, i); }
};

// s^-beta. beta is nearly always 0.75; powf is many times as slow.
__device__ inline float power(float s, float beta) {
    if (beta != 0.75f) return powf(s, -beta);
    float r = rsqrtf(s);
    return r * sqrtf(r);
}

// n: the number of elements; k: the constant in s; alpha: already divided by the window's size; beta.
#define NUMBERS int64 n, float k, float alpha, float beta

// Sums of squares along one axis.
extern "C" __global__ void squares(const T* x, float* t, int64 n, AXIS(a)) {
    for (int64 i = first(); i < n; i += step())
        t[i] = window_sum(AXIS_GIVEN(a), Axis{1, 1, 0}, i, Square<T>{x});
}

// Sums of floats along one axis.
extern "C" __global__ void sums(const float* u, float* t, int64 n, AXIS(a)) {
    for (int64 i = first(); i < n; i += step())
        t[i] = window_sum(AXIS_GIVEN(a), Axis{1, 1, 0}, i, Plain<float>{u});
}

extern "C" __global__ void forward(const T* x, T* y, NUMBERS, AXIS(a), AXIS(b)) {
    for (int64 i = first(); i < n; i += step()) {
        float s = k + alpha * window_sum(AXIS_GIVEN(a), AXIS_GIVEN(b), i, Square<T>{x});
        store(y, i, load(x, i) * power(s, beta));
    }
}

// Forward from t, the sums of squares along the other axis.
extern "C" __global__ void forward_of_sums(const T* x, const float* t, T* y, NUMBERS, AXIS(a)) {
    for (int64 i = first(); i < n; i += step()) {
        float s = k + alpha * window_sum(AXIS_GIVEN(a), Axis{1, 1, 0}, i, Plain<float>{t});
        store(y, i, load(x, i) * power(s, beta));
    }
}

// ---- backward: dx = dy s^-beta - 2 alpha beta x (the sum over the window of u), u = dy x s^(-beta - 1)

__device__ inline void terms(const T* x, const T* dy, T* dx, float* u, int64 i, float s, float beta) {
    float direct = load(dy, i) * power(s, beta);
    store(dx, i, direct);
    u[i] = direct * load(x, i) / s;
}

// Writes u, and to dx the first term only.
extern "C" __global__ void backward_terms(const T* x, const T* dy, T* dx, float* u, NUMBERS, AXIS(a), AXIS(b)) {
    for (int64 i = first(); i < n; i += step())
        terms(x, dy, dx, u, i, k + alpha * window_sum(AXIS_GIVEN(a), AXIS_GIVEN(b), i, Square<T>{x}), beta);
}

extern "C" __global__ void backward_terms_of_sums(const T* x, const float* t, const T* dy, T* dx, float* u, NUMBERS,
                                                  AXIS(a)) {
    for (int64 i = first(); i < n; i += step())
        terms(x, dy, dx, u, i, k + alpha * window_sum(AXIS_GIVEN(a), Axis{1, 1, 0}, i, Plain<float>{t}), beta);
}

extern "C" __global__ void backward_rest(const T* x, const float* u, T* dx, int64 n, float factor, AXIS(a), AXIS(b)) {
    for (int64 i = first(); i < n; i += step()) {
        float sum = window_sum(AXIS_GIVEN(a), AXIS_GIVEN(b), i, Plain<float>{u});
        store(dx, i, load(dx, i) - factor * load(x, i) * sum);
    }
}

// Backward across channels, if these are innermost, in one pass. A block computes TILE neighbouring elements. They need
// u of `half` more elements on either side, and these need x of as many more again. Shared memory has x (TILE + 4 half)
// and then the first term and u (TILE + 2 half each). A row of channels may end in a tile; windows are clipped there.
constexpr int TILE = 1024;

extern "C" __global__ void backward_across(const T* x, const T* dy, T* dx, NUMBERS, int channels, int half) {
    extern __shared__ float memory[];
    int length = TILE + 2 * half;  // of the first term, and of u
    float *around = memory, *direct = memory + length + 2 * half, *u = direct + length;
    for (int64 start = (int64)blockIdx.x * TILE; start < n; start += (int64)gridDim.x * TILE) {
        for (int j = threadIdx.x; j < length + 2 * half; j += blockDim.x) {
            int64 i = start - 2 * half + j;
            around[j] = i >= 0 && i < n ? load(x, i) : 0;
        }
        __syncthreads();
        for (int j = threadIdx.x; j < length; j += blockDim.x) {
            int64 i = start - half + j;
            if (i < 0 || i >= n) continue;
            int before, after;
            reach(Axis{1, channels, half}, i, before, after);
            float sum = 0;
            for (int m = j + half - before; m <= j + half + after; m++) sum += around[m] * around[m];
            float s = k + alpha * sum;
            direct[j] = load(dy, i) * power(s, beta);
            u[j] = direct[j] * around[j + half] / s;
        }
        __syncthreads();
        for (int j = threadIdx.x; j < TILE && start + j < n; j += blockDim.x) {
            int before, after;
            reach(Axis{1, channels, half}, start + j, before, after);
            float sum = 0;
            for (int m = j + half - before; m <= j + half + after; m++) sum += u[m];
            store(dx, start + j, direct[j + half] - 2 * alpha * beta * around[j + 2 * half] * sum);
        }
        __syncthreads();
    }
}

// ---- across channels, for windows of up to nine, and a number of channels that is a multiple of four. A thread takes
// four neighbouring channels, position by position (columns.cuh). It loads the channels around them, as whole fours,
// into registers.

// Loads fours of channels, from AROUND fours before to as many after; zeros beyond the ends.
template <int AROUND>
__device__ inline void neighbours(const T* p, int64 four, int channel, int channels, float (&v)[4 * (2 * AROUND + 1)]) {
#pragma unroll
    for (int a = -AROUND; a <= AROUND; a++) {
        bool there = channel + 4 * a >= 0 && channel + 4 * a < channels;
        float4 f = there ? load4(p, four + a) : make_float4(0, 0, 0, 0);
        float* at = v + 4 * (a + AROUND);
        at[0] = f.x, at[1] = f.y, at[2] = f.z, at[3] = f.w;
    }
}

template <int HALF>
__device__ inline void forward_rows(const T* x, T* y, const Columns& g, float k, float alpha, float beta) {
    Place<4> here(g);
    if (!here.any) return;
    for (int64 i = here.begin; i < here.end; i += here.stride) {
        int64 four = place_of<4>(g, i, here.channel);
        float v[12], out[4];
        neighbours<1>(x, four, here.channel, g.channels, v);
#pragma unroll
        for (int c = 0; c < 4; c++) {
            float sum = 0;
#pragma unroll
            for (int j = -HALF; j <= HALF; j++) sum += v[4 + c + j] * v[4 + c + j];
            out[c] = v[4 + c] * power(k + alpha * sum, beta);
        }
        store4(y, four, make_float4(out[0], out[1], out[2], out[3]));
    }
}

template <int HALF>
__device__ inline void backward_rows(const T* x, const T* dy, T* dx, const Columns& g, float k, float alpha, float beta) {
    constexpr int AROUND = HALF <= 2 ? 1 : 2, MIDDLE = 4 * AROUND;
    Place<4> here(g);
    if (!here.any) return;
    for (int64 i = here.begin; i < here.end; i += here.stride) {
        int64 four = place_of<4>(g, i, here.channel);
        float v[4 * (2 * AROUND + 1)], d[12], u[4 + 2 * HALF], direct[4], out[4];
        neighbours<AROUND>(x, four, here.channel, g.channels, v);
        neighbours<1>(dy, four, here.channel, g.channels, d);
#pragma unroll
        for (int c = -HALF; c < 4 + HALF; c++) {
            float sum = 0;
#pragma unroll
            for (int j = -HALF; j <= HALF; j++) sum += v[MIDDLE + c + j] * v[MIDDLE + c + j];
            float s = k + alpha * sum, first_term = d[4 + c] * power(s, beta);
            bool there = here.channel + c >= 0 && here.channel + c < g.channels;  // else s may be 0, and u NaN
            u[c + HALF] = there ? first_term * v[MIDDLE + c] / s : 0;
            if (c >= 0 && c < 4) direct[c] = first_term;
        }
#pragma unroll
        for (int c = 0; c < 4; c++) {
            float sum = 0;
#pragma unroll
            for (int j = 0; j <= 2 * HALF; j++) sum += u[c + j];
            out[c] = direct[c] - 2 * alpha * beta * v[MIDDLE + c] * sum;
        }
        store4(dx, four, make_float4(out[0], out[1], out[2], out[3]));
    }
}

#define ACROSS(HALF)                                                                                              \
    extern "C" __global__ void forward_rows_##HALF(const T* x, T* y, float k, float alpha, float beta, COLUMNS) { \
        forward_rows<HALF>(x, y, COLUMNS_GIVEN, k, alpha, beta);                                                  \
    }                                                                                                             \
    extern "C" __global__ void backward_rows_##HALF(const T* x, const T* dy, T* dx, float k, float alpha,         \
                                                    float beta, COLUMNS) {                                        \
        backward_rows<HALF>(x, dy, dx, COLUMNS_GIVEN, k, alpha, beta);                                            \
    }
ACROSS(0)
ACROSS(1)
ACROSS(2)
ACROSS(3)
ACROSS(4)
