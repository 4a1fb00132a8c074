// Functions of single elements, those of functions.cuh. y may have the bytes of x, and dx those of dy.

#include "functions.cuh"

// x -> y, and `saved` dy -> dx, of each function.
#define FORWARD(name, value)                                                                             \
    extern "C" __global__ void name##_forward(const T* x, T* y, float a, float b, float c, int64 n) {    \
        (void)a, (void)b, (void)c;                                                                       \
        map(n, y, [=](float v) -> float { return value; }, x);                                           \
    }
#define BACKWARD(name, slope)                                                                            \
    extern "C" __global__ void name##_backward(const T* saved, const T* dy, T* dx, float a, float b,     \
                                               float c, int64 n) {                                       \
        (void)a, (void)b, (void)c;                                                                       \
        auto f = [=](float v, float g) -> float { return (void)v, g * (slope); };                        \
        map(n, dx, f, saved, dy);                                                                        \
    }
#define BOTH(name, value, slope) FORWARD(name, value) BACKWARD(name, slope)
FUNCTIONS(BOTH)
FORWARD(threshold, is_nan(v) ? v : v > a ? 1 : 0)
