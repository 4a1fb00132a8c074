// Windows as columns (Im2col), and rows by their numbers (BatchReindex).

#include "common.cuh"

// Images are n, h, w, c; columns are n, oh, ow, c * kh * kw, the kernel's elements innermost.
#define WINDOWS \
    int c, int h, int w, int oh, int ow, int kh, int kw, int sh, int sw, int ph, int pw, int dh, int dw

extern "C" __global__ void columns(const T* x, T* y, int64 n, WINDOWS) {
    for (int64 i = first(); i < n; i += step()) {
        int64 taps = quotient(i, kw), channels = quotient(taps, kh), pixel = quotient(channels, c);
        int64 line = quotient(pixel, ow), image = quotient(line, oh);
        int64 row = (int64)remainder(line, oh, image) * sh - ph + (int64)remainder(taps, kh, channels) * dh;
        int64 column = (int64)remainder(pixel, ow, line) * sw - pw + (int64)remainder(i, kw, taps) * dw;
        bool inside = row >= 0 && row < h && column >= 0 && column < w;
        store(y, i, inside ? load(x, ((image * h + row) * w + column) * c + remainder(channels, c, pixel)) : 0.0f);
    }
}

// The number of the window whose element k lies at `at`; -1 if there is none.
__device__ inline int64 window(int64 at, int64 k, int stride, int pad, int dilation, int windows) {
    int64 begin = at + pad - k * dilation;
    if (begin < 0) return -1;
    int64 found = quotient(begin, stride);
    return found * stride == begin && found < windows ? found : -1;
}

// Each element's sum over the windows that have it, by the kernel's elements in their order.
extern "C" __global__ void pixels(const T* dy, T* dx, int64 n, WINDOWS) {
    for (int64 i = first(); i < n; i += step()) {
        int64 pixel = quotient(i, c), line = quotient(pixel, w), image = quotient(line, h);
        int64 channel = remainder(i, c, pixel), row = remainder(line, h, image), column = remainder(pixel, w, line);
        float sum = 0;
        for (int k = 0; k < kh; k++) {
            int64 down = window(row, k, sh, ph, dh, oh);
            for (int l = 0; down >= 0 && l < kw; l++) {
                int64 right = window(column, l, sw, pw, dw, ow);
                if (right < 0) continue;
                sum += load(dy, ((((image * oh + down) * ow + right) * c + channel) * kh + k) * kw + l);
            }
        }
        store(dx, i, sum);
    }
}

// y[k] = x[index[k]], or NaN if x has no such row. n: values of y; width: values of a row.
extern "C" __global__ void rows(const T* x, const int* index, T* y, int64 n, int64 width, int count) {
    for (int64 i = first(); i < n; i += step()) {
        int64 place = width >> 32 ? i / width : quotient(i, (uint32)width);
        int row = index[place];
        bool there = row >= 0 && row < count;
        store(y, i, there ? load(x, row * width + (i - place * width)) : __uint_as_float(0x7FC00000u));
    }
}

// dx[i] = the sum of those dy[k], in their order, where index[k] is i. n: values of dx; count: rows of dy.
extern "C" __global__ void sums(const int* index, const T* dy, T* dx, int64 n, int64 width, int count) {
    for (int64 i = first(); i < n; i += step()) {
        int64 row = width >> 32 ? i / width : quotient(i, (uint32)width), column = i - row * width;
        float sum = 0;
        for (int k = 0; k < count; k++)
            if (index[k] == row) sum += load(dy, k * width + column);
        store(dx, i, sum);
    }
}
