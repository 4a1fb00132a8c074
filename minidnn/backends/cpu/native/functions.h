/* The functions of one element: y = f(x), and the slope f'(x) by what backward reads. That is x or y, as READS in
 * layers/unary.py says; `linear` reads neither. `k` are the function's numbers.
 */
#pragma once
#include "floats.h"
#include "transcendental.h"

#define VALUE(name) ALWAYS wide name##_value(wide x, const double *k)
#define SLOPE(name, of) ALWAYS wide name##_slope(wide of, const double *k)

#define FUNCTIONS(DO)                                                                                       \
    DO(sigmoid) DO(tanh) DO(elu) DO(elu_falling) DO(abs) DO(linear) DO(square) DO(power) DO(exp) DO(log) \
    DO(bnll) DO(clip) DO(mish) DO(erf) DO(hard_sigmoid) DO(hard_swish)

ALWAYS wide positive(wide v, wide a, wide b) { return pick(v > 0, a, b); }

VALUE(sigmoid) { return logistic(x); }
SLOPE(sigmoid, y) { return y * (1 - y); }

VALUE(tanh) { return hyperbolic_tangent(x); }
SLOPE(tanh, y) { return 1 - y * y; }

VALUE(elu) { return positive(x, x, k[0] * exponential_less_one(x)); }
SLOPE(elu, y) { return positive(y, all(1), y + k[0]); }
VALUE(elu_falling) { return elu_value(x, k); }
SLOPE(elu_falling, x) { return positive(x, all(1), k[0] * exponential(x)); }

VALUE(abs) { return absolute(x); }
SLOPE(abs, x) { return positive(x, all(1), pick(x < 0, all(-1), x)); }

/* k: scale and shift; of `power` also the power, and of `log` a factor of the result */
ALWAYS wide scaled(wide x, const double *k) { return k[0] * x + k[1]; }
VALUE(linear) { return scaled(x, k); }
SLOPE(linear, unread) { return all(k[0]); }
VALUE(square) { return scaled(x, k) * scaled(x, k); }
SLOPE(square, x) { return 2 * k[0] * scaled(x, k); }
VALUE(power) { return raised(scaled(x, k), k[2]); }
SLOPE(power, x) { return k[0] * k[2] * raised(scaled(x, k), k[2] - 1); }

VALUE(exp) { return exponential(scaled(x, k)); }
SLOPE(exp, y) { return k[0] * y; }

VALUE(log) { return k[2] * logarithm(scaled(x, k)); }
SLOPE(log, x) { return k[2] * k[0] / scaled(x, k); }

VALUE(bnll) { return positive(x, x, all(0)) + logarithm_of_one_plus(exponential(-absolute(x))); }
SLOPE(bnll, y) { return -exponential_less_one(-y); }

/* k: the least and the largest */
VALUE(clip) { return pick(x < k[0], all(k[0]), pick(x > k[1], all(k[1]), x)); }
SLOPE(clip, x) { return pick((x >= k[0]) & (x <= k[1]), all(1), all(0)); }

/* k: the threshold. No gradient flows. */
VALUE(threshold) { return pick(x > k[0], all(1), pick(x == x, all(0), x)); }

VALUE(mish) { return x * hyperbolic_tangent(bnll_value(x, k)); }
SLOPE(mish, x) {
    const wide v = bounded(x, 100), t = hyperbolic_tangent(bnll_value(v, k));
    return t + v * (1 - t * t) * logistic(v);
}

VALUE(erf) { return error_function(x); }
SLOPE(erf, x) { return 1.1283791670955126 * exponential(-x * x); }

/* k: the slope and the shift of the line */
ALWAYS wide within_one(wide v) { return pick(v < 0, all(0), pick(v > 1, all(1), v)); }
VALUE(hard_sigmoid) { return within_one(scaled(x, k)); }
SLOPE(hard_sigmoid, x) {
    const wide v = scaled(x, k);
    return pick((v > 0) & (v < 1), all(k[0]), all(0));
}

VALUE(hard_swish) { return x * within_one(x / 6 + 0.5); }
SLOPE(hard_swish, x) { return pick(x <= -3, all(0), pick(x >= 3, all(1), x / 3 + 0.5)); }

/* ---- those of today's nets, in floats: right to some units in the last place (of the largest slope), and several times
 * as quick. A slope reads x. */

#define QUICK(DO) DO(swish) DO(gelu) DO(gelu_tanh)
#define QUICK_VALUE(name) ALWAYS vec name##_value(vec x, const float *k)
#define QUICK_SLOPE(name) ALWAYS vec name##_slope(vec x, const float *k)

QUICK_VALUE(swish) {
    vec rest;
    return x * logistic_of(k[0] * x, &rest);
}
QUICK_SLOPE(swish) {
    vec rest;
    const vec v = up_to(k[0] * x, 100), s = logistic_of(v, &rest);
    return fused(v * s, rest, s);
}

QUICK_VALUE(gelu) {
    vec density, integral;
    normal_of(x, &density, &integral);
    return x * integral;
}
QUICK_SLOPE(gelu) {
    vec density, integral;
    normal_of(x, &density, &integral);
    return fused(up_to(x, 40), density, integral);
}

/* GELU's other form, 0.5 x (1 + tanh(v / 2)), which is x / (1 + e^-v). */
ALWAYS vec bent(vec x) { return 1.5957691216057308f * fused(0.044715f * x * x, x, x); }
QUICK_VALUE(gelu_tanh) {
    vec rest;
    return x * logistic_of(bent(x), &rest);
}
QUICK_SLOPE(gelu_tanh) {
    vec rest;
    const vec v = up_to(x, 40), s = logistic_of(bent(v), &rest);
    return fused(v * s * rest * 1.5957691216057308f, fused(0.134145f * v, v, each(1)), s);
}
