// LSTM and GRU: what a step does to each number of the state. The products with the weights of the hidden state are
// matmul's, before a step of forward and behind one of backward. A thread takes a number of a sequence with its gates,
// and no other thread reads what it writes in the same launch.
//
// A pointer that is null stands for zeros if it is read, for a factor of one if it is `cont`, and for nothing if it is
// written.

#include "functions.cuh"

template <class S>
__device__ inline float some(const S* p, int64 i) {
    return p ? load(p, i) : 0.0f;
}
__device__ inline float factor_of(const T* cont, int64 n) { return cont ? load(cont, n) : 1.0f; }
__device__ inline void put(T* p, int64 i, float v) {
    if (p) store(p, i, v);
}

// The place of a number of the state, and of its first gate.
struct Place {
    int64 sequence, gate;
    __device__ Place(int64 i, int width, int gates) : sequence(quotient(i, width)) {
        gate = sequence * gates * width + remainder(i, width, sequence);
    }
};

// ---- LSTM, whose gates are i, f, o, g

struct Lstm {
    const T* z;
    const float* sums;
    const T* cont;
    const float* before;  // c of the step before; of the first step it is `first`
    const T* first;
    float* cell;  // may be `before`
    T *y, *gates, *h_last, *c_last;
};

extern "C" __global__ void lstm_step(Lstm s, int64 batch, int width) {
    for (int64 i = first(); i < batch * width; i += step()) {
        Place at(i, width, 4);
        float factor = factor_of(s.cont, at.sequence), v[4];
#pragma unroll
        for (int k = 0; k < 4; k++) {
            v[k] = load(s.z, at.gate + k * width);
            if (s.sums) v[k] += factor * s.sums[at.gate + k * width];
            v[k] = k < 3 ? logistic(v[k]) : tanhf(v[k]);
        }
        float cell = v[0] * v[3];
        if (s.before || s.first) cell += factor * v[1] * (s.before ? s.before[i] : load(s.first, i));
        s.cell[i] = cell;
        float h = v[2] * tanhf(cell);
        store(s.y, i, h);
        put(s.h_last, i, h);
        put(s.c_last, i, cell);
#pragma unroll
        for (int k = 0; k < 4; k++) put(s.gates, at.gate + k * width, v[k]);
    }
}

// What arrives of behind a step, before its own dy: factor (product + rest), or the gradient of the last state.
struct Arriving {
    const float* product;
    const T* cont;
    const float* rest;
    const T *last, *dy;
};
__device__ inline float arriving(const Arriving& a, int64 i, int64 sequence) {
    float sum = some(a.last, i);
    if (a.product) sum = factor_of(a.cont, sequence) * (a.product[i] + some(a.rest, i));
    return sum + some(a.dy, i);
}

struct LstmBack {
    Arriving arriving;
    const T *gates, *cont;
    const float *cell, *before;
    const T *first, *dc_last;
    float* dc;  // read unless the step is the last one
    int64 is_last;
    T *dz, *dc_first;
};

extern "C" __global__ void lstm_step_back(LstmBack s, int64 batch, int width) {
    for (int64 i = first(); i < batch * width; i += step()) {
        Place at(i, width, 4);
        float factor = factor_of(s.cont, at.sequence), v[4];
#pragma unroll
        for (int k = 0; k < 4; k++) v[k] = load(s.gates, at.gate + k * width);
        float dh = arriving(s.arriving, i, at.sequence), tangent = tanhf(s.cell[i]);
        float dc = (s.is_last ? some(s.dc_last, i) : s.dc[i]) + dh * v[2] * (1 - tangent * tangent);
        float df = 0;
        if (s.before || s.first)
            df = dc * factor * (s.before ? s.before[i] : load(s.first, i)) * v[1] * (1 - v[1]);
        store(s.dz, at.gate, dc * v[3] * v[0] * (1 - v[0]));
        store(s.dz, at.gate + width, df);
        store(s.dz, at.gate + 2 * width, dh * tangent * v[2] * (1 - v[2]));
        store(s.dz, at.gate + 3 * width, dc * v[0] * (1 - v[3] * v[3]));
        s.dc[i] = factor * dc * v[1];
        put(s.dc_first, i, s.dc[i]);
    }
}

// ---- GRU, whose gates are z (here u), r, n

struct Gru {
    const T* z;
    const float* sums;
    const T *bias, *cont, *before;  // `before`: h of the step before
    T *y, *gates, *hidden, *h_last;
};

extern "C" __global__ void gru_step(Gru s, int64 batch, int width) {
    for (int64 i = first(); i < batch * width; i += step()) {
        Place at(i, width, 3);
        float factor = factor_of(s.cont, at.sequence), x[3], h[3];
#pragma unroll
        for (int k = 0; k < 3; k++) {
            x[k] = load(s.z, at.gate + k * width);
            h[k] = load(s.bias, i - at.sequence * width + k * width);
            if (s.sums) h[k] += factor * s.sums[at.gate + k * width];
        }
        float u = logistic(x[0] + h[0]), r = logistic(x[1] + h[1]), n = tanhf(x[2] + r * h[2]);
        float y = (1 - u) * n;
        if (s.before) y += u * factor * load(s.before, i);
        store(s.y, i, y);
        put(s.h_last, i, y);
        put(s.gates, at.gate, u);
        put(s.gates, at.gate + width, r);
        put(s.gates, at.gate + 2 * width, n);
        put(s.hidden, i, h[2]);
    }
}

struct GruBack {
    Arriving arriving;
    const T *gates, *hidden, *cont, *before;
    float* rest;  // the part of the gradient of the state before that takes no product
    T *dz, *dhidden;
};

extern "C" __global__ void gru_step_back(GruBack s, int64 batch, int width) {
    for (int64 i = first(); i < batch * width; i += step()) {
        Place at(i, width, 3);
        float u = load(s.gates, at.gate), r = load(s.gates, at.gate + width), n = load(s.gates, at.gate + 2 * width);
        float dh = arriving(s.arriving, i, at.sequence), dn = dh * (1 - u) * (1 - n * n);
        float h = s.before ? factor_of(s.cont, at.sequence) * load(s.before, i) : 0.0f;
        float du = dh * (h - n) * u * (1 - u), dr = dn * load(s.hidden, i) * r * (1 - r);
        store(s.dz, at.gate, du);
        store(s.dz, at.gate + width, dr);
        store(s.dz, at.gate + 2 * width, dn);
        store(s.dhidden, at.gate, du);
        store(s.dhidden, at.gate + width, dr);
        store(s.dhidden, at.gate + 2 * width, dn * r);
        s.rest[i] = dh * u;
    }
}

// ---- both

// The gradient of the state before the first step.
extern "C" __global__ void recurrent_first(Arriving a, T* dh, int64 batch, int width) {
    for (int64 i = first(); i < batch * width; i += step()) store(dh, i, arriving(a, i, quotient(i, width)));
}

struct Previous {
    const T *y, *cont, *first;
};

// The state before each step, times its factor.
extern "C" __global__ void recurrent_previous(Previous s, T* to, int64 rows, int64 batch, int width) {
    for (int64 i = first(); i < rows * width; i += step()) {
        int64 row = quotient(i, width), within = i - batch * width;
        const T* h = within >= 0 ? s.y : s.first;
        store(to, i, h ? factor_of(s.cont, row) * load(h, within >= 0 ? within : i) : 0.0f);
    }
}
