// Samples as they are, made into the input that layers read: cropped, less the mean, scaled, mirrored, with channels
// innermost. The bytes are the host's (data/transform.py): no product is added to, so nothing is fused.

#include "common.cuh"

// raw: images of `channels` planes of height x width. window: for each image the row and the column where its crop of
// rows x columns begins, and whether it is mirrored. Channels beyond the fourth have the fourth's mean.
template <class R>
__device__ inline void transform(
    const R* raw, const int* window, T* y, int64 pixels, int channels, int height, int width, int rows, int columns,
    float mean0, float mean1, float mean2, float mean3, float scale) {
    for (int64 i = first(); i < pixels; i += step()) {
        int64 line = quotient(i, columns), image = quotient(line, rows);
        int column = remainder(i, columns, line), row = remainder(line, rows, image);
        const int* at = window + 3 * image;
        if (at[2]) column = columns - 1 - column;
        const R* from = raw + (image * channels * height + at[0] + row) * width + at[1] + column;
        for (int c = 0; c < channels; c++) {
            float mean = c == 0 ? mean0 : c == 1 ? mean1 : c == 2 ? mean2 : mean3;
            store(y, i * channels + c, (widen(from[(int64)c * height * width]) - mean) * scale);
        }
    }
}

#define KERNEL(name, R)                                                                                            \
    extern "C" __global__ void name(                                                                               \
        const R* raw, const int* window, T* y, int64 pixels, int channels, int height, int width, int rows,        \
        int columns, float mean0, float mean1, float mean2, float mean3, float scale) {                            \
        transform(raw, window, y, pixels, channels, height, width, rows, columns, mean0, mean1, mean2, mean3, scale); \
    }
KERNEL(transform_bytes, uint8)
KERNEL(transform_floats, float)
