// Windows as columns (Im2col), rows by their numbers (BatchReindex), and by how far two places are apart
// (RelativePositionBias).

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
        int64 place = over(i, width);
        int row = index[place];
        bool there = row >= 0 && row < count;
        store(y, i, there ? load(x, row * width + (i - place * width)) : __uint_as_float(0x7FC00000u));
    }
}

// dx[i] = the sum of those dy[k], in their order, where index[k] is i; rows of no number stay as they are. A block
// takes 256 values of one row of dy after another, `n` pieces in all. If no row before has the same number, the block
// adds all that have it. So each piece of a row of dx has one block, and one order. A number that names no row is left
// out.
constexpr int GATHER_BLOCK = 256;
extern "C" __global__ void __launch_bounds__(256) sums(const int* index, const T* dy, T* dx, int64 n, int count,
                                                       int64 width, int pieces, int rows) {
    __shared__ int found[GATHER_BLOCK];
    int t = threadIdx.x;
    for (int64 item = blockIdx.x; item < n; item += gridDim.x) {
        int row = (int)quotient(item, pieces), number = index[row], earlier = number < 0 || number >= rows;
        for (int k = t; k < row && !earlier; k += GATHER_BLOCK) earlier = index[k] == number;
        found[t] = earlier;
        for (int half = GATHER_BLOCK / 2; half; half /= 2) {
            __syncthreads();
            if (t < half) found[t] |= found[t + half];
        }
        __syncthreads();
        bool none = found[0] != 0;
        __syncthreads();
        if (none) continue;
        int64 column = remainder(item, pieces, row) * (int64)GATHER_BLOCK + t;
        float sum = 0;
        for (int from = row; from < count; from += GATHER_BLOCK) {
            found[t] = from + t < count && index[from + t] == number;
            __syncthreads();
            for (int k = 0; k < GATHER_BLOCK && column < width; k++)
                if (found[k]) sum += load(dy, (from + k) * width + column);
            __syncthreads();
        }
        if (column < width) store(dx, number * width + column, sum);
    }
}

// A bias for pairs of places of windows: y is window, head, query, key; of w, a row is for each way down and across.
extern "C" __global__ void relative_bias(const T* w, T* y, int64 n, int side, int heads, int down, int across, int shift,
                                         float hidden) {
    int places = side * side;
    for (int64 i = first(); i < n; i += step()) {
        int64 line = quotient(i, places), plane = quotient(line, places), window = quotient(plane, heads);
        int key = (int)remainder(i, places, line), query = (int)remainder(line, places, plane);
        int q_down = query / side, q_across = query % side, k_down = key / side, k_across = key % side;
        int row = (q_down - k_down + side - 1) * (2 * side - 1) + q_across - k_across + side - 1, edge = side - shift;
        bool low = shift && window / across == down - 1, right = shift && window % across == across - 1;
        bool hides = (low && (q_down >= edge) != (k_down >= edge)) || (right && (q_across >= edge) != (k_across >= edge));
        store(y, i, load(w, row * heads + remainder(plane, heads, window)) + (hides ? hidden : 0.0f));
    }
}

// dw: a block adds up all pairs, of all windows, that are as far apart as its row says.
extern "C" __global__ void __launch_bounds__(256) relative_sums(const T* dy, T* dw, int64 n, int side,
                                                                int heads, int windows) {
    __shared__ float part[GATHER_BLOCK];
    int t = threadIdx.x, places = side * side;
    for (int64 i = blockIdx.x; i < n; i += gridDim.x) {
        int row = (int)quotient(i, heads), head = (int)remainder(i, heads, row);
        int away = row / (2 * side - 1) - side + 1, aside = row % (2 * side - 1) - side + 1;
        int high = side - (away < 0 ? -away : away), wide = side - (aside < 0 ? -aside : aside);
        float sum = 0;
        for (int64 k = t; k < (int64)windows * high * wide; k += GATHER_BLOCK) {
            int64 line = quotient(k, wide), window = quotient(line, high);
            int q_down = (int)remainder(line, high, window) + (away > 0 ? away : 0);
            int q_across = (int)remainder(k, wide, line) + (aside > 0 ? aside : 0);
            int query = q_down * side + q_across, key = (q_down - away) * side + q_across - aside;
            sum += load(dy, ((window * heads + head) * places + query) * places + key);
        }
        part[t] = sum;
        for (int half = GATHER_BLOCK / 2; half; half /= 2) {
            __syncthreads();
            if (t < half) part[t] += part[t + half];
        }
        if (t == 0) store(dw, i, part[0]);
        __syncthreads();
    }
}
