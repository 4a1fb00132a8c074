// Softmax along any axis, its loss, accuracy, and the objective. Rows are those of rows.cuh.

#include "rows.cuh"

constexpr float TINY = 1.17549435e-38f;  // Caffe's least probability, before its logarithm is taken
constexpr float LEAST = 1e-20f;  // the same where a matrix says what a mistake costs

struct Exponentials {  // a row's softmax is exp(x - largest) / sum
    float largest, sum;
};

// If a score is NaN or +inf, or all are -inf, the sum becomes NaN, and so does the whole row.
__device__ inline Exponentials exponentials(const Rows& g, const Thread& me, float (&shared)[ROW_BLOCK], const T* x,
                                            int64 begin, bool there) {
    float largest = minus_infinity(), sum = 0;
    if (there)
        for (int k = me.lane; k < g.length; k += g.lanes) largest = fmaxf(largest, load(x, begin + k * g.inner));
    largest = of_row(g, me, shared, largest, Largest());
    if (there)
        for (int k = me.lane; k < g.length; k += g.lanes) sum += expf(load(x, begin + k * g.inner) - largest);
    return {largest, of_row(g, me, shared, sum, Plus())};
}

// y may have the bytes of x: each thread reads a value for the last time just before it overwrites it.
extern "C" __global__ void softmax_forward(const T* x, T* y, ROWS) {
    __shared__ float shared[ROW_BLOCK];
    Rows g = ROWS_GIVEN;
    Thread me(g);
    for_rows(g, me, [&](int64, int64 begin, bool there) {
        Exponentials e = exponentials(g, me, shared, x, begin, there);
        if (there)
            for (int k = me.lane; k < length; k += lanes) {
                int64 i = begin + k * inner;
                store(y, i, expf(load(x, i) - e.largest) / e.sum);
            }
    });
}

// dx = y (dy - sum(y dy)); dx may have the bytes of dy.
extern "C" __global__ void softmax_backward(const T* y, const T* dy, T* dx, ROWS) {
    __shared__ float shared[ROW_BLOCK];
    Rows g = ROWS_GIVEN;
    Thread me(g);
    for_rows(g, me, [&](int64, int64 begin, bool there) {
        float sum = 0;
        if (there)
            for (int k = me.lane; k < length; k += lanes) sum += load(y, begin + k * inner) * load(dy, begin + k * inner);
        sum = of_row(g, me, shared, sum, Plus());
        if (there)
            for (int k = me.lane; k < length; k += lanes) {
                int64 i = begin + k * inner;
                store(dx, i, load(y, i) * (load(dy, i) - sum));
            }
    });
}

// ---- labels

// Labels are numbered in logical order (N, C, H, W), but in memory scores and labels of four axes are N, H, W, C. Two
// transpositions lead from a row to its label: one from the row's place to the label's number, one from that number to
// the label's place. Each transposes planes of rows x columns; a plane of one column stays as it is.
struct Turn {
    int64 rows, columns;
};
__device__ inline int64 turned(const Turn& t, int64 i) {
    if (t.columns == 1) return i;
    int64 plane = i / (t.rows * t.columns), within = i % (t.rows * t.columns);
    return plane * (t.rows * t.columns) + within % t.columns * t.rows + within / t.columns;
}

struct Labels {
    const int* label;
    Turn of_row, of_label;
    int ignore, ignores, classes;

    // Whether the row's label counts. `which` becomes the label, or -1 if it counts and names no class.
    __device__ bool counts(int64 row, int& which) const {
        which = label[turned(of_label, turned(of_row, row))];
        if (ignores && which == ignore) return false;
        if (which < 0 || which >= classes) which = -1;
        return true;
    }
};
#define LABELS int64 row_rows, int64 row_columns, int64 label_rows, int64 label_columns, int ignore, int ignores
#define LABELS_GIVEN(label) \
    Labels{label, Turn{row_rows, row_columns}, Turn{label_rows, label_columns}, ignore, ignores, length}

// ---- softmax_loss

// Writes prob, each block's part of the loss, and the number of its labels that count. A row's first thread adds the
// term of its label. A label that names no class makes the loss NaN, because a kernel cannot raise an error.
// `costs`: whether the label's row of the matrix says what each class costs. `smoothing`: the share of the label that
// is the mean of -log(p) over all classes.
extern "C" __global__ void softmax_loss_forward(const T* x, const int* label, const void* matrix, T* prob,
                                                double* losses, int64* counted, ROWS, LABELS, int costs,
                                                float smoothing) {
    __shared__ float shared[ROW_BLOCK];
    __shared__ double loss_shared[ROW_BLOCK];
    __shared__ int64 count_shared[ROW_BLOCK];
    Rows g = ROWS_GIVEN;
    Thread me(g);
    Labels labels = LABELS_GIVEN(label);
    const float* cost = (const float*)matrix;
    double loss = 0;
    int64 count = 0;
    for_rows(g, me, [&](int64 row, int64 begin, bool there) {
        Exponentials e = exponentials(g, me, shared, x, begin, there);
        int which = -1;
        bool counts = there && labels.counts(row, which);
        float sum = 0;
        if (there)
            for (int k = me.lane; k < length; k += lanes) {
                int64 i = begin + k * inner;
                float v = load(x, i), p = expf(v - e.largest) / e.sum;
                store(prob, i, p);
                if (!costs) sum += v;
                else if (which >= 0) sum -= cost[(int64)which * length + k] * logf(p < LEAST ? LEAST : p);
            }
        if (costs || smoothing != 0) sum = of_row(g, me, shared, sum, Plus());
        if (!counts || me.lane) return;
        float p = which < 0 ? not_a_number() : expf(load(x, begin + which * inner) - e.largest) / e.sum;
        float own = -logf(p < TINY ? TINY : p);  // NaN stays NaN
        if (costs) loss += which < 0 ? not_a_number() : sum;
        else if (smoothing == 0) loss += own;
        else loss += (1 - smoothing) * own + smoothing * (e.largest + logf(e.sum) - sum / length);
        count++;
    });
    loss = block_sum(loss_shared, loss);
    count = block_sum(count_shared, count);
    if (threadIdx.x == 0) losses[blockIdx.x] = loss, counted[blockIdx.x] = count;
}

// Adds up the blocks' parts and divides. A divisor of 0 means the number of labels that count. For one block.
extern "C" __global__ void loss_finish(const double* losses, const int64* counted, float* loss, int n,
                                       double divisor) {
    __shared__ double loss_shared[ROW_BLOCK];
    __shared__ int64 count_shared[ROW_BLOCK];
    double total = 0;
    int64 count = 0;
    for (int i = threadIdx.x; i < n; i += blockDim.x) total += losses[i], count += counted[i];
    total = block_sum(loss_shared, total);
    count = block_sum(count_shared, count);
    if (threadIdx.x == 0) loss[0] = (float)(total / (divisor != 0 ? divisor : count > 1 ? (double)count : 1.0));
}

// Counts those of n labels that are not `ignore`: one number for each block.
extern "C" __global__ void count_labels(const int* label, int* counted, int64 n, int ignore) {
    __shared__ int shared[ROW_BLOCK];
    int count = 0;
    for (int64 i = first(); i < n; i += step()) count += label[i] != ignore;
    count = block_sum(shared, count);
    if (threadIdx.x == 0) counted[blockIdx.x] = count;
}

// dx = (prob - 1 at the label) weight / divisor; 0 if the label does not count, and NaN if it names no class. A divisor
// of 0 means the number of labels that count, which is the sum of the n numbers in `counted`. dx may have prob's bytes.
// With smoothing, 1 is 1 - smoothing, and each class has its share. If `costs`, the label's row of the matrix is in the
// place of 1, and prob counts times the sum of that.
extern "C" __global__ void softmax_loss_backward(const T* prob, const int* label, const void* matrix,
                                                 const void* counted, T* dx, ROWS, LABELS, int costs, float smoothing,
                                                 int n, double weight, double divisor) {
    __shared__ float shared[ROW_BLOCK];
    __shared__ int64 count_shared[ROW_BLOCK];
    Rows g = ROWS_GIVEN;
    Thread me(g);
    Labels labels = LABELS_GIVEN(label);
    float factor = (float)(weight / divided_by(divisor, (const int*)counted, n, count_shared));
    float each = smoothing / length;
    for_rows(g, me, [&](int64 row, int64 begin, bool there) {
        int which = -1;
        bool counts = there && labels.counts(row, which);
        const float* own = (const float*)matrix + (int64)(which < 0 ? 0 : which) * length;
        float sum = 0;
        if (costs) {
            if (which >= 0)
                for (int k = me.lane; k < length; k += lanes) sum += own[k];
            sum = of_row(g, me, shared, sum, Plus());
        }
        if (!there) return;
        for (int k = me.lane; k < length; k += lanes) {
            int64 i = begin + k * inner;
            float p = load(prob, i);
            if (!counts) p = 0;
            else if (which < 0) p = not_a_number();
            else if (costs) p = (p * sum - own[k]) * factor;
            else p = (p - each - (k == which ? 1 - smoothing : 0.0f)) * factor;
            store(dx, i, p);
        }
    });
}

// ---- accuracy: a label is right if fewer than top_k other scores reach its own. A NaN counts as reaching any score,
// and any score as reaching a NaN.

// Counts labels that are right, that count, and that name no class: for each of these one number per block.
extern "C" __global__ void accuracy(const T* x, const int* label, int64* found, ROWS, LABELS, int top_k) {
    __shared__ int shared[ROW_BLOCK];
    __shared__ int64 long_shared[ROW_BLOCK];
    Rows g = ROWS_GIVEN;
    Thread me(g);
    Labels labels = LABELS_GIVEN(label);
    int64 right = 0, counted = 0, wrong = 0;
    for_rows(g, me, [&](int64 row, int64 begin, bool there) {
        int which = -1, above = 0;
        bool counts = there && labels.counts(row, which);
        if (counts && which >= 0) {
            float own = load(x, begin + which * inner);
            for (int k = me.lane; k < length; k += lanes) above += !(load(x, begin + k * inner) < own);
        }
        above = of_row(g, me, shared, above, Plus());  // this counts the label's own score, too
        if (counts && me.lane == 0) {
            counted++;
            if (which < 0) wrong++;
            else if (above <= top_k) right++;
        }
    });
    right = block_sum(long_shared, right);
    counted = block_sum(long_shared, counted);
    wrong = block_sum(long_shared, wrong);
    if (threadIdx.x == 0) {
        found[blockIdx.x] = right;
        found[gridDim.x + blockIdx.x] = counted;
        found[2 * gridDim.x + blockIdx.x] = wrong;
    }
}

// The share of labels that are right; NaN if a label names no class. For one block.
extern "C" __global__ void accuracy_finish(const int64* found, float* out, int n) {
    __shared__ int64 shared[ROW_BLOCK];
    int64 sum[3];
    for (int k = 0; k < 3; k++) {
        int64 own = 0;
        for (int i = threadIdx.x; i < n; i += blockDim.x) own += found[(int64)k * n + i];
        sum[k] = block_sum(shared, own);
    }
    if (threadIdx.x == 0)
        out[0] = sum[2] ? not_a_number() : (float)((double)sum[0] / (double)(sum[1] > 1 ? sum[1] : 1));
}

// The share for each class, for one block per class: 0 if no label names it, NaN if a label names no class.
extern "C" __global__ void accuracy_by_class(const T* x, const int* label, float* out, ROWS, LABELS, int top_k) {
    __shared__ int64 shared[ROW_BLOCK];
    Rows g = ROWS_GIVEN;
    Labels labels = LABELS_GIVEN(label);
    int64 right = 0, counted = 0, wrong = 0;
    for (int64 row = threadIdx.x; row < g.count; row += blockDim.x) {
        int which = -1;
        if (!labels.counts(row, which)) continue;
        wrong += which < 0;
        if (which != (int)blockIdx.x) continue;
        int64 begin = begin_of(g, row);
        float own = load(x, begin + which * g.inner);
        int above = 0;  // this counts the label's own score, too
        for (int k = 0; k < g.length; k++) above += !(load(x, begin + k * g.inner) < own);
        counted++;
        right += above <= top_k;
    }
    right = block_sum(shared, right);
    counted = block_sum(shared, counted);
    wrong = block_sum(shared, wrong);
    if (threadIdx.x == 0)
        out[blockIdx.x] = wrong ? not_a_number() : counted ? (float)((double)right / (double)counted) : 0;
}

// ---- the weighted sum of up to four losses, added to `out` if `goes_on`

extern "C" __global__ void objective(const float* a, const float* b, const float* c, const float* d, float* out, int n,
                                     int goes_on, float wa, float wb, float wc, float wd) {
    if (first() != 0) return;
    float total = goes_on ? out[0] : 0;
    total += wa * a[0];
    if (n > 1) total += wb * b[0];
    if (n > 2) total += wc * c[0];
    if (n > 3) total += wd * d[0];
    out[0] = total;
}

// ---- the sum of all elements: each block writes one sum to `partial`, and one block adds these up

extern "C" __global__ void sum_elements(const T* x, double* partial, int64 n) {
    __shared__ double shared[ROW_BLOCK];
    double sum = 0;
    for (int64 i = first(); i < n / 4; i += step()) {
        float4 v = load4(x, i);
        sum += ((double)v.x + v.y) + ((double)v.z + v.w);
    }
    int64 rest = n / 4 * 4 + first();
    if (rest < n) sum += load(x, rest);
    sum = block_sum(shared, sum);
    if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

extern "C" __global__ void sum_finish(const double* partial, float* out, int n) {
    __shared__ double shared[ROW_BLOCK];
    double sum = 0;
    for (int i = threadIdx.x; i < n; i += blockDim.x) sum += partial[i];
    sum = block_sum(shared, sum);
    if (threadIdx.x == 0) out[0] = (float)sum;
}
