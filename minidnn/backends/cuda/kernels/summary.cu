// A few numbers for each row: its sum, or its largest elements.

#include "rows.cuh"

enum { SUM, ASUM, SUMSQ };

// y[row] = coeff * the sum of the row
extern "C" __global__ void sum(const T* x, T* y, int operation, float coeff, ROWS) {
    __shared__ float shared[ROW_BLOCK];
    Rows g = ROWS_GIVEN;
    Thread me(g);
    for_rows(g, me, [&](int64 row, int64 begin, bool there) {
        float total = 0;
        if (there)
            for (int k = me.lane; k < length; k += lanes) {
                float v = load(x, begin + k * inner);
                total += operation == SUMSQ ? v * v : operation == ASUM ? fabsf(v) : v;
            }
        total = of_row(g, me, shared, total, Plus());
        if (there && me.lane == 0) store(y, row, coeff * total);
    });
}

// dx = coeff dy, times sign(x) or 2 x, for n values; dx may have the bytes of x. Without a use for it, x is not read.
extern "C" __global__ void sum_gradient(const T* x, const T* dy, T* dx, int operation, float coeff, int64 n,
                                        int64 inner, int length) {
    for (int64 i = first(); i < n; i += step()) {
        int64 line = inner == 1 ? i / length : i / inner;
        int64 row = inner == 1 ? line : line / length * inner + i % inner;
        float d = coeff * load(dy, row);
        if (operation != SUM) {
            float v = load(x, i);
            d *= operation == SUMSQ ? 2 * v : is_nan(v) ? v : (float)(v > 0) - (float)(v < 0);
        }
        store(dx, i, d);
    }
}

struct Element {
    float value;
    int place;
};

// Of two elements the one that comes first: the larger, or of equal ones that of the higher place. NaN is the largest.
// An element of a place below 0 is none.
struct First {
    __device__ static bool before(Element a, Element b) {
        if (is_nan(a.value) || is_nan(b.value)) return is_nan(a.value) && (!is_nan(b.value) || a.place > b.place);
        return a.value > b.value || (a.value == b.value && a.place > b.place);
    }
    __device__ Element operator()(Element a, Element b) const {
        return b.place < 0 || (a.place >= 0 && before(a, b)) ? a : b;
    }
};

// The `top` largest of each row, the first of all, and then of all that come behind the one before: their places if
// `place`, their values if `value`. One of them is `along` from the next, and its value `apart` from its place.
extern "C" __global__ void largest(const T* x, float* y, int top, int place, int value, int64 along, int64 apart,
                                   ROWS) {
    __shared__ Element shared[ROW_BLOCK];
    Rows g = ROWS_GIVEN;
    Thread me(g);
    for_rows(g, me, [&](int64 row, int64 begin, bool there) {
        float* to = y + row / inner * top * (place + value) * inner + row % inner;
        Element last{not_a_number(), length};
        for (int j = 0; j < top; j++) {
            Element best{0, -1};
            if (there)
                for (int k = me.lane; k < length; k += lanes) {
                    Element e{load(x, begin + k * inner), k};
                    if (First::before(last, e)) best = First()(best, e);
                }
            last = of_row(g, me, shared, best, First());
            if (!there || me.lane != 0) continue;
            if (place) to[j * along] = (float)last.place;
            if (value) to[j * along + (place ? apart : 0)] = last.value;
        }
    });
}
