// Products on tensor cores, by warps: mma.sync on registers, which ldmatrix fills from tiles in shared memory, which
// cp.async fills from memory. Sums are in float32. Operands are T of 16 bits, or floats that are rounded to TF32.
//
// Tensor cores multiply bfloat16 and TF32 from sm_80 on, float16 from sm_75 on. On older cards these kernels trap: the
// recipes (backends/cuda/tensor_cores.py) never launch them there. Register layouts are those of the PTX ISA, "Matrix
// Fragments for mma.m16n8k16" and its neighbours: g = lane / 4 is a row, t = lane % 4 a column of 4 bytes.

#pragma once
#include "common.cuh"

constexpr int K = 32 / sizeof(T);       // numbers of a row that one product takes
constexpr int UNITS = 16 / sizeof(T);   // numbers that move at once, and by which rows are padded: no bank conflicts

struct Lane {
    int warp, g, t, index;
    __device__ Lane() : warp(threadIdx.x / 32), g(threadIdx.x % 32 / 4), t(threadIdx.x % 4), index(threadIdx.x % 32) {}
};

// 16 rows of K numbers, as two blocks of 8 rows, and beside these two more: of a, or of b' for two products.
struct Factor {
    uint32 v[4];
};

// ---- the instructions

#ifdef __CUDA_ARCH__
__device__ inline uint32 shared_address(const void* p) { return (uint32)__cvta_generic_to_shared(p); }
#endif

template <bool TURNED>
__device__ inline Factor load_matrices(const T* row) {
    Factor f = {};  // cards without the instruction end in a trap
#if !defined(__CUDA_ARCH__)
    shim::load_matrices(f.v, row, TURNED, __LINE__);
#elif __CUDA_ARCH__ >= 750
    if (TURNED)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(f.v[0]), "=r"(f.v[1]), "=r"(f.v[2]), "=r"(f.v[3]) : "r"(shared_address(row)) : "memory");
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(f.v[0]), "=r"(f.v[1]), "=r"(f.v[2]), "=r"(f.v[3]) : "r"(shared_address(row)) : "memory");
#else
    __trap();
#endif
    return f;
}

#define MMA(SHAPE, TYPES, ...)                                                                                         \
    asm volatile("mma.sync.aligned." SHAPE ".row.col.f32." TYPES ".f32 {%0, %1, %2, %3}, " __VA_ARGS__)
#define OF_K32 "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
#define SUMS "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
#define ALL_OF_A "r"(a.v[0]), "r"(a.v[1]), "r"(a.v[2]), "r"(a.v[3])

// c += a b, for the two blocks of b that b0 and b1 hold.
__device__ inline void mma(float (&c)[4], const Factor& a, uint32 b0, uint32 b1, bf16) {
#if !defined(__CUDA_ARCH__)
    auto number = [](const unsigned* r, int i) { return widen(((const bf16*)r)[i]); };
    shim::mma(c, a.v, b0, b1, 2, [&](unsigned r, int i) { return number(&r, i); }, __LINE__);
#elif __CUDA_ARCH__ >= 800
    MMA("m16n8k16", "bf16.bf16", OF_K32 : SUMS : ALL_OF_A, "r"(b0), "r"(b1));
#else
    __trap();
#endif
}
__device__ inline void mma(float (&c)[4], const Factor& a, uint32 b0, uint32 b1, fp16) {
#if !defined(__CUDA_ARCH__)
    auto number = [](const unsigned* r, int i) { return widen(((const fp16*)r)[i]); };
    shim::mma(c, a.v, b0, b1, 2, [&](unsigned r, int i) { return number(&r, i); }, __LINE__);
#elif __CUDA_ARCH__ >= 800
    MMA("m16n8k16", "f16.f16", OF_K32 : SUMS : ALL_OF_A, "r"(b0), "r"(b1));
#elif __CUDA_ARCH__ >= 750
    MMA("m16n8k8", "f16.f16", "{%4, %5}, {%6}, {%0, %1, %2, %3};" : SUMS : "r"(a.v[0]), "r"(a.v[1]), "r"(b0));
    MMA("m16n8k8", "f16.f16", "{%4, %5}, {%6}, {%0, %1, %2, %3};" : SUMS : "r"(a.v[2]), "r"(a.v[3]), "r"(b1));
#else
    __trap();
#endif
}
__device__ inline void mma(float (&c)[4], const Factor& a, uint32 b0, uint32 b1, float) {
#if !defined(__CUDA_ARCH__)
    shim::mma(c, a.v, b0, b1, 1, [](unsigned r, int) { return __uint_as_float(r); }, __LINE__);
#elif __CUDA_ARCH__ >= 800
    MMA("m16n8k8", "tf32.tf32", OF_K32 : SUMS : ALL_OF_A, "r"(b0), "r"(b1));
#else
    __trap();
#endif
}

// The nearest TF32 number, and of two the one that is farther from 0.
__device__ inline uint32 tf32(float v) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    uint32 to;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(to) : "f"(v));
    return to;
#else
    uint32 bits = __float_as_uint(v);
    return (bits & 0x7F800000u) == 0x7F800000u ? bits : (bits + 0x1000u) & ~0x1FFFu;
#endif
}

// Both numbers as H, the low one in the lower half.
template <typename H>
__device__ inline uint32 packed(float low, float high) {
    H a, b;
    narrow(low, a), narrow(high, b);
    return a.bits | (uint32)b.bits << 16;
}

__device__ inline uint32 pack(float low, float high, bf16) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    uint32 to;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(to) : "f"(high), "f"(low));
    return to;
#else
    return packed<bf16>(low, high);
#endif
}
__device__ inline uint32 pack(float low, float high, fp16) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    uint32 to;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(to) : "f"(high), "f"(low));
    return to;
#else
    return packed<fp16>(low, high);
#endif
}

// Copies from memory that go on beside what the thread does. It waits for them by groups.
template <int BYTES>
__device__ inline void copy_async(void* to, const void* from, bool there) {  // or zeros, if they are not there
#if !defined(__CUDA_ARCH__)
    shim::copy_async(to, from, BYTES, there ? BYTES : 0);
#elif __CUDA_ARCH__ >= 800
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(shared_address(to)),
                 "l"(__cvta_generic_to_global(from)), "n"(BYTES), "r"(there ? BYTES : 0) : "memory");
#else
    struct alignas(BYTES) Bytes {
        unsigned char v[BYTES];
    } none = {};
    *(Bytes*)to = there ? *(const Bytes*)from : none;
#endif
}
__device__ inline void commit_group() {
#if !defined(__CUDA_ARCH__)
    shim::commit_group();
#elif __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
// Until at most `PENDING` of this thread's groups are under way. A barrier has to follow for what others copied.
template <int PENDING>
__device__ inline void wait_group() {
#if !defined(__CUDA_ARCH__)
    shim::wait_group(PENDING);
#elif __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
#endif
}

// ---- tiles in shared memory: rows of numbers, PITCH numbers apart

// Fills ROWS x COLUMNS numbers by THREADS threads from rows of memory. `rows` and `columns`: so many are there; others
// become 0. `unit`: bytes, a power of two up to 16, of which every row's beginning and length are multiples.
template <int ROWS, int COLUMNS, int PITCH, int THREADS>
__device__ inline void fetch(T* tile, const T* from, int64 pitch, int rows, int columns, int unit) {
    static_assert(COLUMNS % UNITS == 0 && PITCH % UNITS == 0);
    constexpr int ACROSS = COLUMNS / UNITS, WORD = 4 / sizeof(T);
    if (unit == 16) {
#pragma unroll
        for (int e = threadIdx.x; e < ROWS * ACROSS; e += THREADS) {
            int r = e / ACROSS, c = e % ACROSS * UNITS;
            bool there = r < rows && c < columns;
            copy_async<16>(tile + r * PITCH + c, there ? from + r * pitch + c : from, there);
        }
    } else if (unit >= 4) {
#pragma unroll 1
        for (int e = threadIdx.x; e < ROWS * COLUMNS / WORD; e += THREADS) {
            int r = e / (COLUMNS / WORD), c = e % (COLUMNS / WORD) * WORD;
            bool there = r < rows && c < columns;
            copy_async<4>(tile + r * PITCH + c, there ? from + r * pitch + c : from, there);
        }
    } else {
#pragma unroll 1
        for (int e = threadIdx.x; e < ROWS * COLUMNS; e += THREADS) {
            int r = e / COLUMNS, c = e % COLUMNS;
            store(tile, r * PITCH + c, r < rows && c < columns ? load(from, r * pitch + c) : 0.0f);
        }
    }
}

// The operand of 16 rows from `row` on, and of K numbers from `k` on: v[0] rows + 0 and v[1] rows + 8, of the first half
// of the numbers; v[2] and v[3] of the second half. So of a' for a product, and of b for two.
template <int PITCH>
__device__ inline Factor in_rows(const T* tile, int row, int k) {
    Lane l;
    int block = l.index / 8;
    Factor f = load_matrices<false>(tile + (row + block % 2 * 8 + l.index % 8) * PITCH + k + block / 2 * (K / 2));
    if (sizeof(T) == 4)
#pragma unroll
        for (int i = 0; i < 4; i++) f.v[i] = tf32(__uint_as_float(f.v[i]));
    return f;
}

// The same of a tile that lies turned: the numbers k are its rows. PAIRED: floats k have the order of `of_sums`.
template <int PITCH, bool PAIRED = false>
__device__ inline Factor in_columns(const T* tile, int row, int k) {
    Lane l;
    if constexpr (sizeof(T) == 2) {
        int block = l.index / 8;
        return load_matrices<true>(tile + (k + block / 2 * 8 + l.index % 8) * PITCH + row + block % 2 * 8);
    } else {
        Factor f;
        const T* at = tile + (k + (PAIRED ? 2 : 1) * l.t) * PITCH + row + l.g;
#pragma unroll
        for (int i = 0; i < 4; i++) f.v[i] = tf32(widen(at[i / 2 * (PAIRED ? 1 : 4) * PITCH + i % 2 * 8]));
        return f;
    }
}

// The operand a of the next product, from the sums of the former one: 16 rows, of K numbers from `k` on. A thread has
// two neighbours of each 8 sums. With 16 bits that is how it has to have them. With floats the first of the two becomes
// number t, and the second number t + 4, which b has to do likewise (PAIRED).
template <int COUNT>
__device__ inline Factor of_sums(const float (&c)[COUNT][4], int k) {
    Factor f;
    if constexpr (sizeof(T) == 2) {
#pragma unroll
        for (int i = 0; i < 4; i++) f.v[i] = pack(c[k / 8 + i / 2][i % 2 * 2], c[k / 8 + i / 2][i % 2 * 2 + 1], T());
    } else {
#pragma unroll
        for (int i = 0; i < 4; i++) f.v[i] = tf32(c[k / 8][i % 2 * 2 + i / 2]);
    }
    return f;
}

// Products of 16 rows of a and 16 rows of b'.
__device__ inline void two(float (&left)[4], float (&right)[4], const Factor& a, const Factor& b) {
    mma(left, a, b.v[0], b.v[2], T());
    mma(right, a, b.v[1], b.v[3], T());
}

template <int COUNT>
__device__ inline void clear(float (&c)[COUNT][4]) {
#pragma unroll
    for (int n = 0; n < COUNT; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) c[n][i] = 0;
}
