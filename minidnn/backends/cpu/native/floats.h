/* exp and its kin of vectors of floats, right to a few units in the last place: several times as quick as those of
 * transcendental.h. NaN stays NaN. */
#pragma once
#include "vector.h"

ALWAYS vec each(float v) { return v - (vec){0}; }
ALWAYS vec size_of(vec v) { return (vec)((bits)v & INT32_MAX); }
ALWAYS vec up_to(vec v, float most) { return choose(v > most, each(most), choose(v < -most, each(-most), v)); }

/* e^v for v <= 0, to two units, after Cody and Waite: 2^n e^r with |r| <= ln(2) / 2. It is zero for v < -87.3, before
 * the result would be subnormal. */
ALWAYS vec falling_exponential(vec v) {
    const vec shift = each(12582912.0f); /* 1.5 * 2^23: adding a number to this rounds it to a whole number */
    const vec shifted = fused(v, each(1.44269504f), shift), n = shifted - shift;
    const vec r = fused(n, each(2.12194440e-4f), fused(n, each(-0.693359375f), v));
    vec p = each(1.0f / 5040);
    p = fused(p, r, each(1.0f / 720));
    p = fused(p, r, each(1.0f / 120));
    p = fused(p, r, each(1.0f / 24));
    p = fused(p, r, each(1.0f / 6));
    p = fused(p, r, each(0.5f));
    p = fused(p * r, r, r) + 1;
    const bits power = ((bits)shifted - (bits)shift + 127) << 23;
    return choose(v < -87.3f, (vec){0}, p * (vec)power);
}

/* 1 / (1 + e^-v), without overflow; `rest`: 1 less that, without cancellation. */
ALWAYS vec logistic_of(vec v, vec *rest) {
    const vec e = falling_exponential(-size_of(v)), large = 1 / (1 + e), small = e * large;
    *rest = choose(v >= 0, small, large);
    return choose(v >= 0, large, small);
}

/* The density of the normal distribution, and its integral from -inf to v. With u = |v|, the integral of the tail
 * beyond u is e^(-u^2 / 2) / (1 + u) times a polynomial in (u - 4) / (u + 4), which was fitted for u up to 14 and is
 * right to 2e-9. u^2 is taken in two parts, since the exponential multiplies its error. */
ALWAYS void normal_of(vec v, vec *density, vec *integral) {
    static const float c[] = {
        0.4720532068936569f,   -0.09670346757091533f,  0.013999591640496137f,   0.028599996109160752f,
        -0.032197182153225944f, 0.017940157031158963f, -0.005004898371464016f,  -0.0003040923776849951f,
        0.0006936753433977022f, -5.937186004501694e-05f, -7.117282873095548e-05f,
    };
    const vec u = size_of(up_to(v, 40)), square = u * u, rest = fused(u, u, -square);
    vec e = falling_exponential(-square / 2);
    e = fused(e, rest * -0.5f, e);
    const vec by = 1 / ((u + 4) * (1 + u)), s = (u - 4) * (1 + u) * by;
    vec p = each(c[10]);
    _Pragma("GCC unroll 10") for (int k = 9; k >= 0; k--) p = fused(p, s, each(c[k]));
    const vec tail = e * p * (u + 4) * by;
    *density = e * 0.39894228040143268f;
    *integral = choose(v < 0, tail, 1 - tail);
}
