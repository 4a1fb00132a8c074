// Dropout, the same forward and backward. Philox4x32-10 (defined in backends/philox.py) decides which elements are
// kept, as a function of seed, iteration, layer and the element's logical index. No mask is stored. y may have the
// bytes of x.

#include "philox.cuh"

// begin: the block of the stream with which x begins
#define STREAM int64 begin, uint32 key, uint32 seed_low, uint32 seed_high, uint32 limit, float scale

// For memory in logical order: a thread takes the four elements of a block.
extern "C" __global__ void dropout_flat(const T* x, const int64* iteration, T* y, int64 n, STREAM) {
    uint32 now = (uint32)*iteration;
    for (int64 i = first(); i < (n + 3) / 4; i += step()) {
        Words w = philox(begin + i, now, key, seed_low, seed_high);
        auto f = [=](float v, uint32 word) { return word >= limit ? v * scale : 0.0f; };
        if (i < n / 4) {
            float4 v = load4(x, i);
            store4(y, i, make_float4(f(v.x, w.v[0]), f(v.y, w.v[1]), f(v.z, w.v[2]), f(v.w, w.v[3])));
        } else {
#pragma unroll
            for (int k = 0; k < 3; k++)
                if (i * 4 + k < n) store(y, i * 4 + k, f(load(x, i * 4 + k), w.v[k]));
        }
    }
}

// For channels innermost. A thread takes those of a block's four logical neighbours that are in one plane (image,
// channel), so that neighbouring threads touch neighbouring channels. A block that spans two planes is computed for
// each of them.
extern "C" __global__ void dropout_channels(
    const T* x, const int64* iteration, T* y, int64 images, int channels, int plane, STREAM) {
    uint32 now = (uint32)*iteration;
    int blocks = (plane + 3) / 4 + 1;  // most blocks that a plane may touch
    for (int64 i = first(); i < images * blocks * channels; i += step()) {
        int64 line = quotient(i, channels), image = quotient(line, blocks);
        uint32 c = remainder(i, channels, line);
        int64 start = (image * channels + c) * plane, end = start + plane;  // logical indices
        int64 block = start / 4 + remainder(line, blocks, image);
        if (block * 4 >= end) continue;
        Words w = philox(begin + block, now, key, seed_low, seed_high);
#pragma unroll
        for (int k = 0; k < 4; k++) {
            int64 logical = block * 4 + k;
            if (logical < start || logical >= end) continue;
            int64 at = (image * plane + logical - start) * channels + c;
            store(y, at, w.v[k] >= limit ? load(x, at) * scale : 0.0f);
        }
    }
}

// What dropout makes of ones. They are float in every storage.
extern "C" __global__ void dropout_factors(const int64* iteration, float* y, int64 n, STREAM) {
    uint32 now = (uint32)*iteration;
    for (int64 i = first(); i < (n + 3) / 4; i += step()) {
        Words w = philox(begin + i, now, key, seed_low, seed_high);
        auto f = [=](uint32 word) { return word >= limit ? scale : 0.0f; };
        if (i < n / 4)
            reinterpret_cast<float4*>(y)[i] = make_float4(f(w.v[0]), f(w.v[1]), f(w.v[2]), f(w.v[3]));
        else
            for (int k = 0; k < n % 4; k++) y[i * 4 + k] = f(w.v[k]);
    }
}
