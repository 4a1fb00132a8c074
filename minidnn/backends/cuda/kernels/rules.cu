// Optimizers other than SGD: a rule for each element, for many weights at once; and the moments of LAMB.
// Weights and their history are float; a gradient is T or float. The rate, the objective, the iteration, the ratios and the
// factor of gradients are in device memory. Nothing changes in a step that does not count.

#include "squares.cuh"

enum Rule { NESTEROV, ADAGRAD, RMSPROP, ADADELTA, ADAM, ADAMW, LARS, LAMB };
enum { NONE, L1, L2 };

// b^t by multiplications, whose bits are the same on every device.
__device__ inline double power(double b, int64 t) {
    double p = 1;
    for (; t; t >>= 1, b *= b)
        if (t & 1) p *= b;
    return p;
}

// What an update has for all its elements.
struct Numbers {
    float scale, rate, decay;     // factors of dw, of the step, of w
    float a, b, c;                // the rule's numbers
    float rest_a, rest_b;         // 1 - a and 1 - b, which float would round before it subtracts
    float first, second, keep;    // corrections of the means; what w keeps of itself
};

// `every`: micro-batches of an update. `clip` is read if `clipped`.
template <Rule RULE>
__device__ inline Numbers numbers(double a, double b, double c, float decay, float scale, float rate, int clipped,
                                  const float* clip, const int64* iteration, int64 every) {
    Numbers k;
    k.scale = clipped ? clip[0] * scale : scale, k.rate = rate, k.decay = decay;
    k.a = (float)a, k.b = (float)b, k.c = (float)c, k.rest_a = (float)(1 - a), k.rest_b = (float)(1 - b);
    k.first = k.second = k.keep = 1;
    if (RULE == ADAM || RULE == ADAMW || RULE == LAMB) {
        int64 t = iteration[0] / every + 1;
        double first = 1 / (1 - power(a, t)), second = 1 / (1 - power(b, t));
        if (RULE == ADAM) k.rate = (float)(k.rate * first / sqrt(second));
        k.first = (float)first, k.second = (float)second;
    }
    if (RULE == ADAMW) k.keep = (float)(1 - (double)rate * decay);
    return k;
}

// What LAMB takes from w: the corrected mean over the root of the corrected squares, + decay w.
__device__ inline float lamb_step(const Numbers& k, float w, float m, float v) {
    return (m * k.first) / (sqrtf(v * k.second) + k.c) + k.decay * w;
}

template <Rule RULE>
__device__ inline void element(const Numbers& k, int regularization, float& w, float dw, float& h, float& v) {
    float g = dw * k.scale;
    if (regularization == L1) g += k.decay * (w > 0 ? 1.0f : w < 0 ? -1.0f : w);
    if (regularization == L2) g += k.decay * w;
    float step;
    if (RULE == NESTEROV) {
        float before = h;
        h = k.a * before + k.rate * g;
        step = (1 + k.a) * h - k.a * before;
    } else if (RULE == LARS) {
        h = step = k.a * h + k.rate * g;
    } else if (RULE == ADAGRAD) {
        h += g * g;
        step = k.rate * g / (sqrtf(h) + k.a);
    } else if (RULE == RMSPROP) {
        h = k.a * h + k.rest_a * (g * g);
        step = k.rate * g / (sqrtf(h) + k.b);
    } else if (RULE == ADADELTA) {
        h = k.a * h + k.rest_a * (g * g);
        float u = g * sqrtf((v + k.b) / (h + k.b));
        v = k.a * v + k.rest_a * (u * u);
        step = k.rate * u;
    } else if (RULE == LAMB) {
        step = k.rate * lamb_step(k, w, h, v);  // lamb_moments has made h and v
    } else {
        h = k.a * h + k.rest_a * g;
        v = k.b * v + k.rest_b * (g * g);
        step = RULE == ADAM ? k.rate * h / (sqrtf(v) + k.c) : k.rate * (h * k.first) / (sqrtf(v * k.second) + k.c);
    }
    w = (RULE == ADAMW ? k.keep * w : w) - step;
}

constexpr int RULED = 60;  // most weights of a launch
struct Ruled {
    float* w[RULED];
    const void* dw[RULED];  // of floats if `wide`, else of T; LAMB does not read it
    float* h[RULED];
    float* v[RULED];             // read by rules of two numbers of history
    const float* ratio[RULED];  // read by LARS and LAMB; in a step that does not count it is 0
    int64 n[RULED];
    int first[RULED];
    float decay[RULED], lr_mult[RULED];
    uint8 wide[RULED];
};

// A piece of a weight, four values at a time. w and the history change in place. All of a thread's loads come before
// its stores.
template <Rule RULE, class G>
__device__ inline void piece_of(const Numbers& k, int regularization, float* w, const G* dw, float* h, float* v,
                                int64 begin, int64 end) {
    constexpr bool TWO = RULE == ADADELTA || RULE == ADAM || RULE == ADAMW || RULE == LAMB;
    float4 a[FOURS], g[FOURS] = {}, b[FOURS], c[FOURS] = {};
#pragma unroll
    for (int j = 0; j < FOURS; j++) {
        int64 i = four_of(begin, j);
        if (i >= end / 4) continue;
        a[j] = load4(w, i), b[j] = load4(h, i);
        if (RULE != LAMB) g[j] = load4(dw, i);
        if (TWO) c[j] = load4(v, i);
    }
#pragma unroll
    for (int j = 0; j < FOURS; j++) {
        int64 i = four_of(begin, j);
        if (i >= end / 4) continue;
        element<RULE>(k, regularization, a[j].x, g[j].x, b[j].x, c[j].x);
        element<RULE>(k, regularization, a[j].y, g[j].y, b[j].y, c[j].y);
        element<RULE>(k, regularization, a[j].z, g[j].z, b[j].z, c[j].z);
        element<RULE>(k, regularization, a[j].w, g[j].w, b[j].w, c[j].w);
        if (RULE != LAMB) store4(h, i, b[j]);
        if (TWO && RULE != LAMB) store4(v, i, c[j]);
        store4(w, i, a[j]);
    }
    if (int64 i = rest_of(end); i < end) {
        float x = w[i], y = h[i], z = TWO ? v[i] : 0;
        element<RULE>(k, regularization, x, RULE == LAMB ? 0 : load(dw, i), y, z);
        if (RULE != LAMB) h[i] = y;
        if (TWO && RULE != LAMB) v[i] = z;
        w[i] = x;
    }
}

template <Rule RULE>
__device__ inline void update_multi_tensor(const Ruled& of, int count, int pieces, const float* rate, const float* objective,
                                   const void* iteration, const float* clip, double a, double b, double c,
                                   int64 every, float scale, int regularization, int clipped) {
    if (RULE != LAMB && (!isfinite(objective[0]) || (clipped && !isfinite(clip[0])))) return;
    each_piece(of, count, pieces, [&](int i, int64 begin, int64 end) {
        float decay = of.decay[i], step = rate[0] * of.lr_mult[i];
        Numbers k = numbers<RULE>(a, b, c, decay, scale, step, clipped, clip, (const int64*)iteration, every);
        if (RULE == LARS || RULE == LAMB) {
            if (of.ratio[i][0] == 0) return;
            k.rate *= of.ratio[i][0];
        }
        int how = decay == 0 || RULE == LAMB ? NONE : regularization;
        if (of.wide[i]) piece_of<RULE>(k, how, of.w[i], (const float*)of.dw[i], of.h[i], of.v[i], begin, end);
        else piece_of<RULE>(k, how, of.w[i], (const T*)of.dw[i], of.h[i], of.v[i], begin, end);
    });
}

// `iteration` is read by rules that count.
#define RULE(name, which)                                                                                             \
    extern "C" __global__ void name(Ruled of, int count, int pieces, const float* rate, const float* objective,       \
                                    const void* iteration, const float* clip, double a, double b, double c,           \
                                    int64 every, float scale, int regularization, int clipped) {                      \
        update_multi_tensor<which>(of, count, pieces, rate, objective, iteration, clip, a, b, c, every, scale, regularization, \
                           clipped);                                                                                  \
    }
RULE(nesterov, NESTEROV)
RULE(adagrad, ADAGRAD)
RULE(rmsprop, RMSPROP)
RULE(adadelta, ADADELTA)
RULE(adam, ADAM)
RULE(adamw, ADAMW)
RULE(lars, LARS)
RULE(lamb, LAMB)

// Updates m and v; if `summed`, sums the squares of each block of w, then those of the step. In a step that does not
// count m and v stay, and the sums are zeros.
template <class G>
__device__ inline void lamb_moments_of(const float* w, const G* dw, float* m, float* v, const float* objective,
                                       const int64* iteration, const float* clip, double* sums, int summed, double a,
                                       double b, double c, int64 every, float decay, float scale, int clipped,
                                       int64 n) {
    __shared__ double shared[MULTI_TENSOR_BLOCK];
    bool counts = isfinite(objective[0]) && (!clipped || isfinite(clip[0]));
    Numbers k = numbers<LAMB>(a, b, c, decay, scale, 1, clipped, clip, iteration, every);
    int64 blocks = (n + PIECE - 1) / PIECE;
    for (int64 block = blockIdx.x; block < blocks; block += gridDim.x) {
        int64 begin = block * PIECE, end = n < begin + PIECE ? n : begin + PIECE;
        double weight = 0, step = 0;
        for (int64 i = begin + threadIdx.x; counts && i < end; i += blockDim.x) {
            float g = load(dw, i) * k.scale;
            m[i] = k.a * m[i] + k.rest_a * g;
            v[i] = k.b * v[i] + k.rest_b * (g * g);
            double u = lamb_step(k, w[i], m[i], v[i]);
            weight += (double)w[i] * w[i], step += u * u;
        }
        if (!summed) continue;
        weight = block_sum(shared, weight), step = block_sum(shared, step);
        if (threadIdx.x == 0) sums[block] = weight, sums[blocks + block] = step;
    }
}
#define MOMENTS(name, G)                                                                                               \
    extern "C" __global__ void name(const float* w, const G* dw, float* m, float* v, const float* objective,           \
                                    const int64* iteration, const float* clip, void* sums, int summed, double a,       \
                                    double b, double c, int64 every, float decay, float scale, int clipped, int64 n) { \
        lamb_moments_of(w, dw, m, v, objective, iteration, clip, (double*)sums, summed, a, b, c, every, decay, scale,  \
                        clipped, n);                                                                                   \
    }
MOMENTS(lamb_moments, T)
MOMENTS(lamb_moments_wide, float)
