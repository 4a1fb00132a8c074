/* exp, log and their kin, of vectors. A float is widened to a double, and the result is rounded once. In between each
 * function here is right to some 2^-35, so that the float is off by at most 0.51 units in the last place. NaN stays
 * NaN. Each function is meant for numbers that a float can hold.
 */
#pragma once
#include <math.h>

#include "vector.h"

enum { WIDE = LANES / 2 }; /* doubles of a vector */
typedef float narrow __attribute__((vector_size(WIDE * 4)));
typedef float loose_narrow __attribute__((vector_size(WIDE * 4), aligned(4), may_alias));
typedef double wide __attribute__((vector_size(WIDE * 8)));
typedef int64_t words __attribute__((vector_size(WIDE * 8)));

/* The n floats at p in the first lanes, zero in the others; all lanes if n >= WIDE. */
ALWAYS wide load_wide(const float *p, int64_t n) {
    if (n >= WIDE) return __builtin_convertvector(*(const loose_narrow *)p, wide);
    float lanes[WIDE] = {0};
    for (int64_t j = 0; j < n; j++) lanes[j] = p[j];
    return __builtin_convertvector(*(const loose_narrow *)lanes, wide);
}

ALWAYS void store_wide(float *p, wide v, int64_t n) {
    const loose_narrow rounded = __builtin_convertvector(v, narrow);
    if (n >= WIDE) {
        *(loose_narrow *)p = rounded;
        return;
    }
    for (int64_t j = 0; j < n; j++) p[j] = rounded[j];
}

ALWAYS wide all(double v) { return (wide){0} + v; }

/* a * b + c, rounded once if the CPU can (vector.h). */
ALWAYS wide fused_wide(wide a, wide b, wide c) {
#if defined(__AVX512F__)
    return (wide)_mm512_fmadd_pd((__m512d)a, (__m512d)b, (__m512d)c);
#elif defined(__AVX__) && defined(__FMA__)
    return (wide)_mm256_fmadd_pd((__m256d)a, (__m256d)b, (__m256d)c);
#else
    return a * b + c;
#endif
}

/* Lane by lane: a where all bits of `where` are set, b where none are. */
ALWAYS wide pick(words where, wide a, wide b) { return (wide)(((words)a & where) | ((words)b & ~where)); }

ALWAYS wide absolute(wide v) { return (wide)((words)v & INT64_MAX); }
ALWAYS wide signed_as(wide v, wide sign) { return (wide)((words)v | ((words)sign & INT64_MIN)); } /* v >= 0 */
ALWAYS wide bounded(wide v, double most) { return pick(v > most, all(most), pick(v < -most, all(-most), v)); }

/* c[0] + c[1] v + ... + c[n - 1] v^(n - 1) */
ALWAYS wide polynomial(const int n, const double c[], wide v) {
    wide sum = all(c[n - 1]);
    for (int k = n - 2; k >= 0; k--) sum = fused_wide(sum, v, all(c[k]));
    return sum;
}

/* e^v - 1 = scale * part + (scale - 1), where scale is a power of two. After Cody and Waite, v = n ln(2) + part of
 * ln(2) / 2 at most. Beyond 700, e^v counts as e^700: both are beyond all floats. */
ALWAYS void exponent(wide v, wide *scale, wide *part) {
    static const double c[] = {1, 1. / 2, 1. / 6, 1. / 24, 1. / 120, 1. / 720, 1. / 5040, 1. / 40320, 1. / 362880,
                               1. / 3628800}; /* of (e^r - 1) / r */
    const wide to_whole = all(6755399441055744.0); /* 1.5 * 2^52: adding a number to this rounds it to a whole one */
    v = bounded(v, 700);
    const wide shifted = fused_wide(v, all(1.4426950408889634), to_whole), n = shifted - to_whole;
    const wide r = fused_wide(n, all(-1.9082149292705877e-10), fused_wide(n, all(-0.69314718036912382), v));
    *part = r * polynomial(10, c, r);
    *scale = (wide)(((words)shifted + 1023) << 52);
}

/* e^v; 0 below -700, where it is below all floats. */
ALWAYS wide exponential(wide v) {
    wide scale, part;
    exponent(v, &scale, &part);
    return pick(v < -700, all(0), fused_wide(scale, part, scale));
}

/* e^v - 1, with few units of relative error near 0, too. */
ALWAYS wide exponential_less_one(wide v) {
    wide scale, part;
    exponent(v, &scale, &part);
    return fused_wide(scale, part, scale - 1);
}

/* The natural logarithm: NaN below 0, -inf at 0. With v = 2^k m and m around 1, log m = 2 artanh((m - 1) / (m + 1)). */
ALWAYS wide logarithm(wide v) {
    static const double c[] = {2, 2. / 3, 2. / 5, 2. / 7, 2. / 9, 2. / 11, 2. / 13, 2. / 15};
    const words root = (words)all(0.70710678118654752);
    const words k = ((words)v - root) >> 52;
    const wide m = (wide)((words)v - (k << 52)), s = (m - 1) / (m + 1);
    const wide whole = (wide)(k + (words)all(6755399441055744.0)) - 6755399441055744.0; /* k as doubles */
    const wide found = fused_wide(whole, all(0.69314718055994531), s * polynomial(8, c, s * s));
    const wide special = pick(v == 0, all(-INFINITY), pick(v < 0, all(NAN), v)); /* also inf, and NaN */
    return pick((v > 0) & (v < INFINITY), found, special);
}

/* log(1 + v) for v from 0 to 1, with few units of relative error near 0, too. */
ALWAYS wide logarithm_of_one_plus(wide v) { return pick(v < 0x1p-20, v - v * v / 2, logarithm(1 + v)); }

/* 1 / (1 + e^-v), without overflow. */
ALWAYS wide logistic(wide v) {
    const wide e = exponential(-absolute(v));
    return pick(v >= 0, all(1), e) / (1 + e);
}

ALWAYS wide hyperbolic_tangent(wide v) {
    const wide e = exponential_less_one(-2 * absolute(v)); /* from -1 to 0 */
    return signed_as(-e / (2 + e), v);
}

/* The density of the normal distribution, and its integral from -inf to v. With u = |v|, the integral of the tail
 * beyond u is e^(-u^2 / 2) / (1 + u) times a polynomial in (u - 4) / (u + 4). It was fitted for u up to 40, and is right
 * to 5e-12. As a float the tail is 0 from u = 14.2 on. */
ALWAYS void normal(wide v, wide *density, wide *integral) {
    static const double c[] = {
        0.4720532065090721,      -0.09670347729603809,    0.013999634836325015,   0.028600362458509569,
        -0.03219784029800739,    0.017936121567591,       -0.0050023482302833724, -0.00028578391418219507,
        0.0006947277403702317,   -9.387546501187986e-05,  -8.730927272776019e-05, 2.021372221755839e-05,
        1.2607463748878411e-05,  -2.4278859514319297e-06, -1.545563582634794e-06,
    };
    const wide u = absolute(bounded(v, 40)), e = exponential(-u * u / 2);
    const wide tail = e * polynomial(15, c, (u - 4) / (u + 4)) / (1 + u);
    *density = e * 0.39894228040143268;
    *integral = pick(v < 0, tail, 1 - tail);
}

/* 2 / sqrt(pi) times the integral of e^(-t^2) from 0 to v: by its series up to 1, where the integral above would cancel,
 * and by that integral beyond. */
ALWAYS wide error_function(wide v) {
    static const double c[] = {1., -1. / 3, 1. / 10, -1. / 42, 1. / 216, -1. / 1320, 1. / 9360, -1. / 75600,
                               1. / 685440, -1. / 6894720, 1. / 76204800, -1. / 918086400, 1. / 11975040000,
                               -1. / 168129561600};
    wide density, integral;
    normal(absolute(v) * 1.4142135623730951, &density, &integral);
    const wide series = v * 1.1283791670955126 * polynomial(14, c, v * v);
    return pick(absolute(v) <= 1, series, signed_as(2 * integral - 1, v));
}

/* v^p. A negative number has a power only if p is whole; -inf has one, as C's pow says. */
ALWAYS wide raised(wide v, double p) {
    const wide size = exponential(p * logarithm(absolute(v)));
    if (p != rint(p)) return pick((v < 0) & (v > -INFINITY), all(NAN), size);
    return fmod(p, 2) == 0 ? size : pick((words)v < 0, -size, size);
}
