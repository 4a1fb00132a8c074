// The functions of one element: y = f(x), and the slope f'(x) by what backward reads. That is x or y, as READS in
// layers/unary.py says; `linear` reads neither. a, b and c are the function's numbers.

#pragma once

#include "common.cuh"

__device__ inline float logistic(float v) {  // 1 / (1 + e^-v), without overflow
    float e = expf(-fabsf(v));
    return (v >= 0 ? 1 : e) / (1 + e);
}
__device__ inline float bounded(float v, float most) { return v > most ? most : v < -most ? -most : v; }
__device__ inline float normal_integral(float v) { return 0.5f * erfcf(-0.70710678f * v); }

// GELU's approximation 0.5 x (1 + tanh(v / 2)) is x / (1 + e^-v).
__device__ inline float bent(float x) { return 1.59576912f * (x + 0.044715f * x * x * x); }

// The derivative by x of x / (1 + e^-v), where `slope` is that of v times x.
__device__ inline float sigmoid_like(float v, float slope) {
    float s = logistic(v);
    return s + slope * s * (1 - s);
}
__device__ inline float swish_slope(float v) { return sigmoid_like(v, v); }
__device__ inline float gelu_slope(float x) { return normal_integral(x) + x * 0.39894228f * expf(-0.5f * x * x); }
__device__ inline float gelu_tanh_slope(float x) {
    return sigmoid_like(bent(x), 1.59576912f * (x + 0.134145f * x * x * x));
}

__device__ inline float mish_slope(float v, float t) { return t + v * (1 - t * t) * logistic(v); }
__device__ inline float softened(float v) { return tanhf((v > 0 ? v : 0) + log1pf(expf(-fabsf(v)))); }

__device__ inline float within_one(float v) { return v < 0 ? 0 : v > 1 ? 1 : v; }
__device__ inline float hard_swish_slope(float x) { return x <= -3 ? 0 : x >= 3 ? 1 : x / 3 + 0.5f; }

// DO(name, the value, the slope). v is x in a value. In a slope it is what backward reads, x or y.
#define FUNCTIONS(DO)                                                             \
    DO(sigmoid, logistic(v), v * (1 - v))                                         \
    DO(tanh, tanhf(v), 1 - v * v)                                                 \
    DO(elu, v > 0 ? v : a * expm1f(v), v > 0 ? 1 : v + a)                         \
    DO(elu_falling, v > 0 ? v : a * expm1f(v), v > 0 ? 1 : a * expf(v))           \
    DO(abs, fabsf(v), v > 0 ? 1 : v < 0 ? -1 : v)                                 \
    DO(linear, a * v + b, a)                                                      \
    DO(square, (a * v + b) * (a * v + b), 2 * a * (a * v + b))                    \
    DO(power, powf(a * v + b, c), a * c * powf(a * v + b, c - 1))                 \
    DO(exp, expf(a * v + b), a * v)                                               \
    DO(log, c * logf(a * v + b), c * a / (a * v + b))                             \
    DO(bnll, (v > 0 ? v : 0) + log1pf(expf(-fabsf(v))), -expm1f(-v))              \
    DO(clip, v < a ? a : v > b ? b : v, v >= a && v <= b ? 1 : 0)                 \
    DO(swish, v * logistic(a * v), swish_slope(bounded(a * v, 100)))              \
    DO(mish, v * softened(v), mish_slope(bounded(v, 100), softened(v)))           \
    DO(gelu, v * normal_integral(v), gelu_slope(bounded(v, 40)))                  \
    DO(gelu_tanh, v * logistic(bent(v)), gelu_tanh_slope(bounded(v, 40)))         \
    DO(erf, erff(v), 1.12837917f * expf(-v * v))                                  \
    DO(hard_sigmoid, within_one(a * v + b), a * v + b > 0 && a * v + b < 1 ? a : 0) \
    DO(hard_swish, v * within_one(v / 6 + 0.5f), hard_swish_slope(v))
