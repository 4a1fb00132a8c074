// RotaryEmbedding: pairs of each head's numbers turned by angles that grow with the token's place. A thread takes a
// pair, and then those at the same place of all other samples. log_base: the base's binary logarithm. y may have the bytes of x.
// told: whether `places` has the tokens' places; else they count from `from`.

#include "common.cuh"

extern "C" __global__ void rotary(const T* x, T* y, const void* places, int told, int64 from, int64 samples, int tokens, int width, int heads, int depth,
                                  int interleaved, double log_base, float sign) {
    int half = depth / 2;
    int64 sample = (int64)tokens * width;
    for (int64 i = first(); i < (int64)tokens * heads * half; i += step()) {
        int64 line = quotient(i, half), token = quotient(line, heads);
        int pair = (int)remainder(i, half, line), head = (int)remainder(line, heads, token);
        int64 place = told ? ((const int*)places)[token] : from + token;
        double turns = place * exp2(-2.0 * pair / depth * log_base) / 6.283185307179586;
        float half_turns = 2 * (float)(turns - floor(turns)), s = sign * sinpif(half_turns), c = cospif(half_turns);
        int64 begin = token * width + head * depth;
        int64 at = begin + (interleaved ? 2 * pair : pair), other = at + (interleaved ? 1 : half);
        for (int64 n = 0; n < samples; n++, at += sample, other += sample) {
            float u = load(x, at), v = load(x, other);
            store(y, at, u * c - v * s);
            store(y, other, v * c + u * s);
        }
    }
    int rest = width - heads * depth;
    if (x == y || !rest) return;
    for (int64 i = first(); i < samples * tokens * rest; i += step()) {
        int64 token = quotient(i, rest), at = token * width + heads * depth + remainder(i, rest, token);
        store(y, at, load(x, at));
    }
}
