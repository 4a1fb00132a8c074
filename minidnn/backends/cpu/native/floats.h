/* Functions of vectors of floats, right to two units in the last place: twice as quick as those of transcendental.h. */
#pragma once
#include <math.h>

#include "vector.h"

ALWAYS vec each(float v) { return v - (vec){0}; }
ALWAYS vec larger(vec a, vec b) { return choose(a > b, a, b); } /* b if one is NaN */

/* e^v: 0 below -86.5, where it is hardly a normal number; NaN stays NaN. After Cody and Waite, v = n ln(2) + r, with r
 * of ln(2) / 2 at most. The Taylor series of e^r to r^7 is right to 6e-9. */
ALWAYS vec exponential_of(vec v) {
    const vec to_whole = each(12582912.0f); /* 1.5 * 2^23: adding a number to this rounds it to a whole one */
    const vec held = choose(v > 89.0f, each(89.0f), v);
    const vec shifted = fused(held, each(1.44269504f), to_whole), n = shifted - to_whole;
    vec r = fused(n, each(-0.693359375f), held);
    r = fused(n, each(2.12194440e-4f), r);
    vec sum = each(1.f / 5040);
    sum = fused(sum, r, each(1.f / 720));
    sum = fused(sum, r, each(1.f / 120));
    sum = fused(sum, r, each(1.f / 24));
    sum = fused(sum, r, each(1.f / 6));
    sum = fused(sum, r, each(0.5f));
    sum = fused(sum * r, r, r) + 1;
    const vec half = (vec)(((bits)shifted << 23) + (bits)each(0.5f)); /* of 2^n, which may be too large */
    return choose(v < -86.5f, (vec){0}, sum * half * 2);
}
