/* Vectors of floats, as wide as the CPU's, by the compiler's vector extension. Loads and stores need no alignment. */
#pragma once
#include <stdint.h>
#include <string.h>

#if defined(__AVX__)
#include <immintrin.h>
#endif

#if defined(__AVX512F__)
enum { LANES = 16 };
#elif defined(__AVX__)
enum { LANES = 8 };
#else
enum { LANES = 4 };
#endif

typedef float vec __attribute__((vector_size(LANES * 4)));
typedef float loose __attribute__((vector_size(LANES * 4), aligned(4), may_alias));
typedef int32_t bits __attribute__((vector_size(LANES * 4)));
#define ALWAYS static inline __attribute__((always_inline))

ALWAYS int64_t up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

ALWAYS vec load(const float *p) { return *(const loose *)p; }
ALWAYS void store(float *p, vec v) { *(loose *)p = v; }

/* Stores past the caches, which saves reading the memory first. p is a multiple of the vector's size. After
 * `stored_past`, other threads see all that was stored so. */
ALWAYS void store_past(float *p, vec v) {
#if defined(__AVX512F__)
    _mm512_stream_ps(p, (__m512)v);
#elif defined(__AVX__)
    _mm256_stream_ps(p, (__m256)v);
#else
    store(p, v);
#endif
}
ALWAYS void stored_past(void) {
#if defined(__AVX__)
    _mm_sfence();
#endif
}

/* a * b + c, rounded once if the CPU can. Nothing else is fused: a compiler that may do it chooses by the code around,
 * copy by copy (sources.py). */
ALWAYS vec fused(vec a, vec b, vec c) {
#if defined(__AVX512F__)
    return (vec)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif defined(__AVX__) && defined(__FMA__)
    return (vec)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#elif defined(__FP_FAST_FMAF)
    for (int j = 0; j < LANES; j++) c[j] = __builtin_fmaf(a[j], b[j], c[j]);
    return c;
#else
    return a * b + c;
#endif
}

/* Lane by lane: a where all bits of `where` are set, b where none are. */
ALWAYS vec choose(bits where, vec a, vec b) { return (vec)(((bits)a & where) | ((bits)b & ~where)); }

/* The n floats at p in the first lanes, zero in the others; all lanes if n >= LANES. */
ALWAYS vec load_some(const float *p, int64_t n) {
    if (n >= LANES) return load(p);
    float lanes[LANES] = {0};
    for (int64_t j = 0; j < n; j++) lanes[j] = p[j];
    return load(lanes);
}

ALWAYS void store_some(float *p, vec v, int64_t n) {
    if (n >= LANES) {
        store(p, v);
        return;
    }
    float lanes[LANES];
    store(lanes, v);
    for (int64_t j = 0; j < n; j++) p[j] = lanes[j];
}

/* Stores the n floats, past the caches if `past`: then they are a whole, aligned vector. */
ALWAYS void put(float *p, vec v, int64_t n, int past) {
    if (past)
        store_past(p, v);
    else
        store_some(p, v, n);
}

/* Lane by lane: a where y > 0, else a - a, which is 0, or NaN if a is not finite. So a ReLU and its backward keep NaN
 * as the reference's do. a - a is +0, whose bits are all zero, as a compression of activations needs it. */
ALWAYS vec where_positive(vec y, vec a) { return choose(y > 0, a, a - a); }

/* Lane by lane: of the lanes of a, then those of b, the one whose number `where` has. */
ALWAYS vec chosen(vec a, vec b, bits where) {
#if defined(__clang__)
    vec c;
    for (int j = 0; j < LANES; j++) c[j] = where[j] < LANES ? a[where[j]] : b[where[j] - LANES];
    return c;
#else
    return __builtin_shuffle(a, b, where);
#endif
}

/* Transposes a square of LANES x LANES floats. */
#if defined(__AVX__) && !defined(__AVX512F__)
/* Left alone, GCC makes two permutations and a blend of what is one shuffle here. */
ALWAYS void transpose(vec rows[LANES]) {
    __m256 pairs[LANES], fours[LANES];
    _Pragma("GCC unroll 4") for (int i = 0; i < LANES; i += 2) {
        pairs[i] = _mm256_unpacklo_ps((__m256)rows[i], (__m256)rows[i + 1]);
        pairs[i + 1] = _mm256_unpackhi_ps((__m256)rows[i], (__m256)rows[i + 1]);
    }
    _Pragma("GCC unroll 4") for (int i = 0; i < LANES; i++) {
        const int from = i / 4 * 4 + i % 4 / 2;
        fours[i] = i % 2 ? _mm256_shuffle_ps(pairs[from], pairs[from + 2], 0xEE)
                         : _mm256_shuffle_ps(pairs[from], pairs[from + 2], 0x44);
    }
    _Pragma("GCC unroll 4") for (int i = 0; i < LANES / 2; i++) {
        rows[i] = (vec)_mm256_permute2f128_ps(fours[i], fours[i + 4], 0x20);
        rows[i + 4] = (vec)_mm256_permute2f128_ps(fours[i], fours[i + 4], 0x31);
    }
}
#else
/* In each step, squares beside the diagonal change places. */
ALWAYS void transpose(vec rows[LANES]) {
    _Pragma("GCC unroll 4") for (int side = LANES / 2; side; side /= 2) {
        bits first, second;
        for (int j = 0; j < LANES; j++) {
            first[j] = j & side ? LANES + j - side : j;
            second[j] = j & side ? LANES + j : j + side;
        }
        _Pragma("GCC unroll 16") for (int i = 0; i < LANES; i++) {
            if (i & side) continue;
            const vec a = rows[i], b = rows[i + side];
            rows[i] = chosen(a, b, first);
            rows[i + side] = chosen(a, b, second);
        }
    }
}
#endif
