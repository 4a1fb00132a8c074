// Softmax along any axis, its loss, accuracy, and the objective.
//
// A row is what one softmax goes over: `length` values, `inner` elements apart. Row r begins at
// r / inner * length * inner + r % inner. A block takes blockDim.x / lanes rows at a time, each by `lanes` threads (a
// power of two). Where a row's values are neighbours in memory (inner 1), so are its threads; else the rows' threads.

#include "common.cuh"

constexpr int ROW_BLOCK = 256;
constexpr float TINY = 1.17549435e-38f;  // Caffe's floor under a probability before its logarithm

__device__ inline float not_a_number() { return __int_as_float(0x7FFFFFFF); }
__device__ inline float minus_infinity() { return __int_as_float(0xFF800000); }

struct Rows {
    int64 count, inner;
    int length, lanes;
};
#define ROWS int64 rows, int64 inner, int length, int lanes
#define ROWS_GIVEN Rows{rows, inner, length, lanes}

struct Thread {
    int slot, lane, apart, slots;  // which of the block's rows; which of its threads; how far apart these are

    __device__ explicit Thread(const Rows& g) {
        int t = threadIdx.x;
        slots = (int)blockDim.x / g.lanes;
        if (g.inner == 1) slot = t / g.lanes, lane = t % g.lanes, apart = 1;
        else slot = t % slots, lane = t / slots, apart = slots;
    }
};

__device__ inline int64 begin_of(const Rows& g, int64 row) {
    return g.inner == 1 ? row * g.length : (row / g.inner * g.length) * g.inner + row % g.inner;
}

struct Largest {
    __device__ float operator()(float a, float b) const { return fmaxf(a, b); }
};
struct Plus {
    template <class V>
    __device__ V operator()(V a, V b) const { return a + b; }
};

// A value of each row, known to all its threads, from one of each thread's; as a tree. All of a block call it.
template <class V, class Op>
__device__ inline V of_row(const Rows& g, const Thread& me, V (&shared)[ROW_BLOCK], V value, Op op) {
    if (g.lanes == 1) return value;
    int t = threadIdx.x;
    shared[t] = value;
    for (int half = g.lanes / 2; half; half /= 2) {
        __syncthreads();
        if (me.lane < half) shared[t] = op(shared[t], shared[t + half * me.apart]);
    }
    __syncthreads();
    V all = shared[t - me.lane * me.apart];
    __syncthreads();  // before the next use of `shared`
    return all;
}

// The block's rows, one after another: `each(row, begin, there)`, called by all threads, those without a row too.
template <class Each>
__device__ inline void for_rows(const Rows& g, const Thread& me, Each each) {
    for (int64 start = (int64)blockIdx.x * me.slots; start < g.count; start += (int64)gridDim.x * me.slots) {
        int64 row = start + me.slot;
        bool there = row < g.count;
        each(row, there ? begin_of(g, row) : 0, there);
    }
}

struct Exponentials {  // of a row: exp(x - largest) / sum
    float largest, sum;
};

// Where a score is NaN or +inf, or all are -inf, the sum and so the whole row becomes NaN.
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

// y may lie on x: each thread reads last what it then writes.
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

// dx = y (dy - sum(y dy)); dx may lie on dy.
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

// Labels are counted in logical order (N, C, H, W), while scores and labels of four axes lie as N, H, W, C. From a row's
// place to the label's number, and from that to the label's place, planes of rows x columns are turned; a matrix of one
// column stays as it is.
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

    // Whether the row's label counts; `which` is -1 where it names no class.
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

// prob, each block's part of the loss, and how many of its labels count. A row's first thread has its label's term. A
// label that names no class makes the loss NaN: a kernel cannot raise an error.
extern "C" __global__ void softmax_loss_forward(const T* x, const int* label, T* prob, double* losses, int64* counted,
                                                ROWS, LABELS) {
    __shared__ float shared[ROW_BLOCK];
    __shared__ double loss_shared[ROW_BLOCK];
    __shared__ int64 count_shared[ROW_BLOCK];
    Rows g = ROWS_GIVEN;
    Thread me(g);
    Labels labels = LABELS_GIVEN(label);
    double loss = 0;
    int64 count = 0;
    for_rows(g, me, [&](int64 row, int64 begin, bool there) {
        Exponentials e = exponentials(g, me, shared, x, begin, there);
        if (!there) return;
        for (int k = me.lane; k < length; k += lanes) {
            int64 i = begin + k * inner;
            store(prob, i, expf(load(x, i) - e.largest) / e.sum);
        }
        int which;
        if (me.lane == 0 && labels.counts(row, which)) {
            float p = which < 0 ? not_a_number() : expf(load(x, begin + which * inner) - e.largest) / e.sum;
            loss -= logf(p < TINY ? TINY : p);  // NaN passes
            count++;
        }
    });
    loss = block_sum(loss_shared, loss);
    count = block_sum(count_shared, count);
    if (threadIdx.x == 0) losses[blockIdx.x] = loss, counted[blockIdx.x] = count;
}

// One block. divisor 0: the number of labels that count.
extern "C" __global__ void softmax_loss_finish(const double* losses, const int64* counted, float* loss, int n,
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

// How many of n labels are not `ignore`, by blocks.
extern "C" __global__ void count_labels(const int* label, int* counted, int64 n, int ignore) {
    __shared__ int shared[ROW_BLOCK];
    int count = 0;
    for (int64 i = first(); i < n; i += step()) count += label[i] != ignore;
    count = block_sum(shared, count);
    if (threadIdx.x == 0) counted[blockIdx.x] = count;
}

// dx = (prob - 1 at the label) weight / divisor, 0 where the label does not count, NaN where it names no class. With
// divisor 0 the labels that count are the sum of `counted`'s n numbers. dx may lie on prob.
extern "C" __global__ void softmax_loss_backward(const T* prob, const int* label, const int* counted, T* dx, ROWS,
                                                 LABELS, int n, double weight, double divisor) {
    __shared__ int64 shared[ROW_BLOCK];
    Rows g = ROWS_GIVEN;
    Thread me(g);
    Labels labels = LABELS_GIVEN(label);
    if (divisor == 0) {
        int64 count = 0;
        for (int i = threadIdx.x; i < n; i += blockDim.x) count += counted[i];
        count = block_sum(shared, count);
        divisor = count > 1 ? (double)count : 1.0;
    }
    float factor = (float)(weight / divisor);
    for_rows(g, me, [&](int64 row, int64 begin, bool there) {
        if (!there) return;
        int which;
        bool counts = labels.counts(row, which);
        for (int k = me.lane; k < length; k += lanes) {
            int64 i = begin + k * inner;
            float p = load(prob, i) - (k == which ? 1.0f : 0.0f);
            store(dx, i, !counts ? 0.0f : which < 0 ? not_a_number() : p * factor);
        }
    });
}

// ---- accuracy: a label is right where fewer than top_k other scores are not below its own (so NaN makes it wrong)

// By blocks: right, counted, and labels that name no class, `gridDim.x` numbers each.
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
        above = of_row(g, me, shared, above, Plus());  // its own score among them
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

// One block. NaN where a label names no class.
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

// ---- the weighted sum of up to four losses, added to `out` where `goes_on`

extern "C" __global__ void objective(const float* a, const float* b, const float* c, const float* d, float* out, int n,
                                     int goes_on, float wa, float wb, float wc, float wd) {
    if (first() != 0) return;
    float total = goes_on ? out[0] : 0;
    total = __fadd_rn(total, __fmul_rn(wa, a[0]));
    if (n > 1) total = __fadd_rn(total, __fmul_rn(wb, b[0]));
    if (n > 2) total = __fadd_rn(total, __fmul_rn(wc, c[0]));
    if (n > 3) total = __fadd_rn(total, __fmul_rn(wd, d[0]));
    out[0] = total;
}
