// Runs a CUDA source on the CPU: included before it by tests/support/cuda/host.py, which compiles both as one C++ file.
//
// The threads of a block are coroutines of one system thread. Each runs until it ends or meets __syncthreads(), where
// it waits until all of its block have come; a thread that ends gives its stack to the next, so that a kernel without
// barriers costs two switches a thread. The 32 threads of a warp, which come to rest together, also wait for each other
// where they exchange registers (a shuffle, a product on tensor cores); other warps do not wait for them there. What
// cp.async copies arrives as late as it may: when the thread waits for it. Blocks run one after another. Both run in rising or in falling order: a kernel
// whose bytes differ between the two has a race. Shared memory is NaN (all bits set) when a block begins.
//
// An error (a barrier that not all threads of a block reach, too large a block) comes back as a text.

#pragma once

#include <sys/mman.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <type_traits>
#include <utility>

#if !defined(__x86_64__) && !defined(SHIM_UCONTEXT)
#define SHIM_UCONTEXT  // portable, and some fifty times slower: every switch is a system call
#endif
#ifdef SHIM_UCONTEXT
#include <ucontext.h>
#endif
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

// ---- the language

#define __global__
#define __device__
#define __host__
#define __constant__ static const
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __align__(n) alignas(n)
// All static shared variables lie in one section, which is filled with NaN before each block.
#define __shared__ static __attribute__((section("shim_shared")))
#define __syncthreads() shim::wait(__LINE__)
#define __shfl_xor_sync(mask, x, by) shim::shuffle_xor(x, by, __LINE__)
#define __ldg(p) (*(p))
#define __ldcg(p) (*(p))
#define __threadfence() ((void)0)
#define __CUDA_HOST_SHIM__ 1

struct uint3 { unsigned x, y, z; };
struct dim3 { unsigned x, y, z; };
#define SHIM_VECTORS(type, name)                                            \
    struct alignas(2 * sizeof(type)) name##2 { type x, y; };                \
    struct name##3 { type x, y, z; };                                       \
    struct alignas(sizeof(type) < 8 ? 4 * sizeof(type) : 16) name##4 { type x, y, z, w; }; \
    inline name##2 make_##name##2(type x, type y) { return {x, y}; }        \
    inline name##4 make_##name##4(type x, type y, type z, type w) { return {x, y, z, w}; }
SHIM_VECTORS(float, float)
SHIM_VECTORS(double, double)
SHIM_VECTORS(int, int)
SHIM_VECTORS(long long, longlong)
SHIM_VECTORS(short, short)
SHIM_VECTORS(signed char, char)
SHIM_VECTORS(unsigned char, uchar)
SHIM_VECTORS(unsigned short, ushort)
struct alignas(8) uint2 { unsigned x, y; };
struct alignas(16) uint4 { unsigned x, y, z, w; };
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }

static uint3 threadIdx, blockIdx;
static dim3 blockDim, gridDim;
static const int warpSize = 32;

using std::isfinite;
using std::isinf;
using std::isnan;
using std::signbit;
template <class A, class B> inline std::common_type_t<A, B> min(A a, B b) {
    if constexpr (std::is_floating_point_v<std::common_type_t<A, B>>) return std::fmin(a, b);  // the one that is a number
    else return b < a ? b : a;
}
template <class A, class B> inline std::common_type_t<A, B> max(A a, B b) {
    if constexpr (std::is_floating_point_v<std::common_type_t<A, B>>) return std::fmax(a, b);
    else return a < b ? b : a;
}
inline float rsqrtf(float x) { return 1 / sqrtf(x); }
inline double rsqrt(double x) { return 1 / sqrt(x); }
inline float __expf(float x) { return expf(x); }
inline float sinpif(float x) { return (float)sin(3.14159265358979323846 * x); }
inline float cospif(float x) { return (float)cos(3.14159265358979323846 * x); }
inline float __logf(float x) { return logf(x); }
inline float __powf(float x, float y) { return powf(x, y); }
inline float __frcp_rn(float x) { return 1 / x; }
inline float __fmul_rn(float x, float y) { return x * y; }
inline float __fadd_rn(float x, float y) { return x + y; }
inline float __fsub_rn(float x, float y) { return x - y; }
inline float __fdiv_rn(float x, float y) { return x / y; }
inline float __fmaf_rn(float x, float y, float z) { return fmaf(x, y, z); }
inline float __fsqrt_rn(float x) { return sqrtf(x); }
inline float __fdividef(float x, float y) { return x / y; }
inline double __dmul_rn(double x, double y) { return x * y; }
inline double __dadd_rn(double x, double y) { return x + y; }
inline unsigned atomicInc(unsigned* p, unsigned most) {  // blocks run one after another, and a block's threads, too
    unsigned was = *p;
    *p = was >= most ? 0 : was + 1;
    return was;
}
inline unsigned __umulhi(unsigned x, unsigned y) { return (unsigned)((uint64_t)x * y >> 32); }
inline int __popcll(long long x) { return __builtin_popcountll(x); }
template <class To, class From> inline To shim_bits(From x) {
    static_assert(sizeof(To) == sizeof(From));
    To y;
    memcpy(&y, &x, sizeof y);
    return y;
}
#ifdef __FLT16_MANT_DIG__
inline float shim_widen(unsigned short bits) { return (float)shim_bits<_Float16>(bits); }
inline unsigned short shim_narrow(float x) { return shim_bits<unsigned short>((_Float16)x); }
#else
inline float shim_widen(unsigned short) { return abort(), 0.0f; }  // this compiler has no 16-bit floats
inline unsigned short shim_narrow(float) { return abort(), (unsigned short)0; }
#endif
inline unsigned __float_as_uint(float x) { return shim_bits<unsigned>(x); }
inline int __float_as_int(float x) { return shim_bits<int>(x); }
inline float __uint_as_float(unsigned x) { return shim_bits<float>(x); }
inline float __int_as_float(int x) { return shim_bits<float>(x); }

// ---- coroutines

extern "C" char __start_shim_shared[] __attribute__((weak));
extern "C" char __stop_shim_shared[] __attribute__((weak));

namespace shim {

constexpr unsigned MOST_THREADS = 1024;
#ifdef __SANITIZE_ADDRESS__
constexpr size_t STACK = 256 << 10;
#else
constexpr size_t STACK = 64 << 10;
#endif
constexpr size_t PAGE = 4096, MOST_SHARED = 227 << 10;

using Thunk = void (*)(void**);

constexpr unsigned WARP = 32, MOST_COPIES = 512;

struct Copy {  // of cp.async, not yet there
    char* to;
    const char* from;
    unsigned all, some;  // bytes to write, of which so many are read; the rest becomes 0
    unsigned group;
};

struct Fiber {
    char* stack = nullptr;  // above one page that may not be touched
    unsigned thread = 0;
    int line = 0;  // of the barrier at which it waits; 0: it has ended
    bool within = false;  // it waits for its warp only
    unsigned exchanges = 0;  // of registers with its warp, so far
    unsigned copies = 0, group = 0;
    Copy late[MOST_COPIES];
    void* fake = nullptr;  // AddressSanitizer's
#ifdef SHIM_UCONTEXT
    ucontext_t context;
#else
    void* sp = nullptr;
#endif
};

static Fiber fibers[MOST_THREADS];
static Fiber* current;
static Thunk kernel;
static void** arguments;
static char* dynamic;  // the bytes of `extern __shared__` arrays
static char message[256];

#ifdef SHIM_UCONTEXT
static ucontext_t home;
#else
static void* home;
// Saves the registers that a callee must keep, and the stack pointer in *save; goes on at `load`.
extern "C" void shim_switch(void** save, void* load) asm("shim_switch");
asm(R"(
.text
.p2align 4
.type shim_switch,@function
shim_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
.size shim_switch,.-shim_switch
)");
#endif

#ifdef __SANITIZE_ADDRESS__
static void* home_fake;
static const void* home_bottom;
static size_t home_size;
#endif

static void to_home() {
    Fiber* f = current;
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_start_switch_fiber(&f->fake, home_bottom, home_size);
#endif
#ifdef SHIM_UCONTEXT
    swapcontext(&f->context, &home);
#else
    shim_switch(&f->sp, home);
#endif
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_finish_switch_fiber(f->fake, &home_bottom, &home_size);
#endif
}

static void resume(Fiber* f) {
    current = f;
    threadIdx = {f->thread, 0, 0};
    f->line = 0;
    f->within = false;
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_start_switch_fiber(&home_fake, f->stack, STACK);
#endif
#ifdef SHIM_UCONTEXT
    swapcontext(&home, &f->context);
#else
    shim_switch(&home, f->sp);
#endif
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_finish_switch_fiber(home_fake, nullptr, nullptr);
#endif
}

static void wait(int line) {
    current->line = line;
    to_home();
}

static void body() {
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_finish_switch_fiber(nullptr, &home_bottom, &home_size);
#endif
    for (;;) {  // one thread after another, until its fiber is no longer resumed
        kernel(arguments);
        to_home();
    }
}

static void fresh(Fiber* f) {
    if (!f->stack) {
        void* p = mmap(nullptr, STACK + PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (p == MAP_FAILED) {
            perror("shim: a stack");
            abort();
        }
        mprotect(p, PAGE, PROT_NONE);
        f->stack = (char*)p + PAGE;
    }
    f->fake = nullptr;
    f->line = 0;
#ifdef __SANITIZE_ADDRESS__
    __asan_unpoison_memory_region(f->stack, STACK);  // of a thread that was forgotten at a barrier
#endif
#ifdef SHIM_UCONTEXT
    getcontext(&f->context);
    f->context.uc_stack.ss_sp = f->stack;
    f->context.uc_stack.ss_size = STACK;
    f->context.uc_link = nullptr;
    makecontext(&f->context, body, 0);
#else
    void** top = (void**)(f->stack + STACK);
    *--top = nullptr;  // where body would return to
    *--top = (void*)body;
    for (int i = 0; i < 6; i++) *--top = nullptr;
    f->sp = top;
#endif
}

// ---- what the threads of a warp do together

// Registers of the threads of the warp that runs, for two exchanges: a thread may come to the next one before others
// have read.
static unsigned registers[2][WARP][8];

// Shows this thread's registers to its warp. Returns all threads' once all have shown theirs.
template <size_t N> static unsigned (*exchange(const unsigned (&mine)[N], int line))[8] {
    static_assert(N <= 8);
    unsigned (*all)[8] = registers[current->exchanges++ % 2];
    memcpy(all[threadIdx.x % WARP], mine, sizeof mine);
    current->line = line;
    current->within = true;
    to_home();
    return all;
}

// Goes on with those of fibers [begin, end), a warp's, until none of them waits for its warp only.
static bool settle(unsigned begin, unsigned end, bool whole) {
    for (;;) {
        unsigned within = 0;
        for (unsigned i = begin; i < end; i++) within += fibers[i].line && fibers[i].within;
        if (!within) return true;
        for (unsigned i = begin; i < end; i++) {
            if (whole && end - begin == WARP && fibers[i].within && fibers[i].line == fibers[begin].line) continue;
            snprintf(message, sizeof message, "block %u: not all 32 threads of a warp exchange registers in line %d, thread %u does not",
                     blockIdx.x, fibers[begin].line, fibers[i].thread);
            return false;
        }
        for (unsigned i = begin; i < end; i++) resume(&fibers[i]);
    }
}

inline float shuffle_xor(float x, unsigned by, int line) {
    return shim_bits<float>(exchange({shim_bits<unsigned>(x)}, line)[threadIdx.x % WARP ^ by][0]);
}
inline unsigned shuffle_xor(unsigned x, unsigned by, int line) { return exchange({x}, line)[threadIdx.x % WARP ^ by][0]; }

// ldmatrix.x4: blocks of 8 rows of 16 bytes, whose addresses the threads of the warp give, in order. `turned`: .trans
inline void load_matrices(unsigned (&to)[4], const void* row, bool turned, int line) {
    if ((uintptr_t)row % 16) {
        fprintf(stderr, "shim: ldmatrix of an address that is no multiple of 16\n");
        abort();
    }
    uint64_t address = (uint64_t)(uintptr_t)row;
    unsigned (*all)[8] = exchange({(unsigned)address, (unsigned)(address >> 32)}, line);
    unsigned lane = threadIdx.x % WARP;
    for (unsigned i = 0; i < 4; i++) {
        unsigned short pair[2];
        for (unsigned h = 0; h < 2; h++) {
            unsigned r = turned ? lane % 4 * 2 + h : lane / 4, c = turned ? lane / 4 : lane % 4 * 2 + h;
            const unsigned* at = all[8 * i + r];
            pair[h] = ((const unsigned short*)(uintptr_t)(at[0] | (uint64_t)at[1] << 32))[c];
        }
        memcpy(&to[i], pair, 4);
    }
}

// mma.m16n8 of 32 bytes of each row of a and column of b: c += a b. `number(registers, i)`: the i-th number there.
template <class N> inline void mma(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1, int each, N number, int line) {
    unsigned (*all)[8] = exchange({a[0], a[1], a[2], a[3], b0, b1}, line);
    unsigned lane = threadIdx.x % WARP, width = 4 * each;  // numbers of a register, and of half a row
    float rows[2][16], columns[2][16];
    for (unsigned k = 0; k < 2 * width; k++) {
        unsigned half = k / width, of = k % width / each, i = k % each;
        for (unsigned e = 0; e < 2; e++) {
            rows[e][k] = number(all[lane / 4 * 4 + of][half * 2 + e], i);
            columns[e][k] = number(all[(lane % 4 * 2 + e) * 4 + of][4 + half], i);
        }
    }
    for (unsigned e = 0; e < 4; e++)
        for (unsigned k = 0; k < 2 * width; k++) c[e] += rows[e / 2][k] * columns[e % 2][k];
}

inline void arrive(unsigned before) {  // all copies of the groups before that one
    unsigned kept = 0;
    for (unsigned i = 0; i < current->copies; i++) {
        Copy c = current->late[i];
        if (c.group >= before) {
            current->late[kept++] = c;
            continue;
        }
        memcpy(c.to, c.from, c.some);
        memset(c.to + c.some, 0, c.all - c.some);
    }
    current->copies = kept;
}
inline void copy_async(void* to, const void* from, unsigned all, unsigned some) {
    if ((uintptr_t)to % all || (some && (uintptr_t)from % all) || some > all || current->copies == MOST_COPIES) {
        fprintf(stderr, "shim: cp.async of %u of %u bytes, from %p to %p\n", some, all, from, to);
        abort();
    }
    current->late[current->copies++] = {(char*)to, (const char*)from, all, some, current->group};
}
inline void commit_group() { current->group++; }
inline void wait_group(unsigned pending) { arrive(current->group > pending ? current->group - pending : 0); }

static unsigned fibers_ready;  // that many have a stack and stand at the beginning of `body`, or at its end

// One block. False: `message` says what went wrong, and the fibers are to be made anew.
static bool block(unsigned threads, bool falling) {
    unsigned waiting = 0, ended = 0, before = 0;  // the fibers of a warp's threads begin at `before`
    for (unsigned i = 0; i < threads; i++) {
        if (waiting == fibers_ready) fresh(&fibers[fibers_ready++]);
        Fiber* f = &fibers[waiting];
        f->thread = falling ? threads - 1 - i : i;
        f->exchanges = f->copies = f->group = 0;
        resume(f);
        if (f->line) waiting++;
        else ended++;
        if (i % WARP == WARP - 1 || i == threads - 1) {  // the last one of its warp
            unsigned late = 0;
            if (!settle(before, waiting, waiting - before == i % WARP + 1)) return false;
            for (unsigned k = before; k < waiting; k++) late += !fibers[k].line;
            ended += late;
            if (late && late < waiting - before) {
                snprintf(message, sizeof message, "block %u: after an exchange of registers some threads of a warp end, others wait", blockIdx.x);
                return false;
            }
            before = waiting -= late;  // their fibers are free
        }
    }
    while (waiting) {
        for (unsigned i = 1; i < waiting; i++)
            if (fibers[i].line != fibers[0].line) {
                snprintf(message, sizeof message, "block %u: thread %u waits at the barrier of line %d, thread %u at that of line %d",
                         blockIdx.x, fibers[0].thread, fibers[0].line, fibers[i].thread, fibers[i].line);
                return false;
            }
        if (ended) {
            snprintf(message, sizeof message, "block %u: thread %u waits at the barrier of line %d, which %u threads do not reach",
                     blockIdx.x, fibers[0].thread, fibers[0].line, ended);
            return false;
        }
        for (unsigned i = 0; i < threads; i += WARP) {
            unsigned end = min(i + WARP, threads);
            for (unsigned k = i; k < end; k++) resume(&fibers[k]);
            if (!settle(i, end, true)) return false;
            for (unsigned k = i; k < end; k++)
                if (!fibers[k].line) waiting--, ended++;
        }
        // Those that still wait must be all of them, or the next round finds `ended` and says so.
        if (waiting && ended) {
            unsigned at = 0;
            while (!fibers[at].line) at++;
            snprintf(message, sizeof message, "block %u: thread %u waits at the barrier of line %d, which %u threads do not reach",
                     blockIdx.x, fibers[at].thread, fibers[at].line, ended);
            return false;
        }
    }
    return true;
}

template <class... A, size_t... I> inline void unpack(void (*f)(A...), void** a, std::index_sequence<I...>) {
    (void)a;
    f(*static_cast<std::remove_cv_t<A>*>(a[I])...);
}
template <class... A> inline void unpack(void (*f)(A...), void** a) { unpack(f, a, std::index_sequence_for<A...>{}); }

// A parameter's type as NumPy would call it: "f4", "i8"; "*f4" points to a float, "c*f4" to a const float.
template <class A> struct Element { using type = A; };
template <> struct Element<float2> { using type = float; };
template <> struct Element<float4> { using type = float; };
template <> struct Element<int4> { using type = int; };
template <> struct Element<uint4> { using type = unsigned; };
template <> struct Element<uchar4> { using type = unsigned char; };
template <> struct Element<uchar2> { using type = unsigned char; };
template <class A> inline void describe(char*& at) {
    if constexpr (std::is_pointer_v<A>) {
        using To = std::remove_pointer_t<A>;
        if constexpr (std::is_const_v<To>) *at++ = 'c';
        *at++ = '*';
        describe<typename Element<std::remove_cv_t<To>>::type>(at);
    } else if constexpr (std::is_void_v<A>) {
        *at++ = 'v';
    } else {
        char kind = std::is_same_v<A, bool> ? 'b' : std::is_floating_point_v<A> ? 'f' : std::is_unsigned_v<A> ? 'u' : std::is_integral_v<A> ? 'i' : 'V';
        at += sprintf(at, "%c%zu", kind, sizeof(A));
    }
}
template <class... A> inline const char* signature(void (*)(A...)) {
    static char text[16 * sizeof...(A) + 1];
    char* at = text;
    ((describe<std::remove_cv_t<A>>(at), *at++ = ' '), ...);
    *at = 0;
    return text;
}

struct Entry {
    const char* name;
    Thunk thunk;
    const char* signature;
};

}  // namespace shim

#define SHIM_KERNEL(name) {#name, [](void** a) { shim::unpack(&name, a); }, shim::signature(&name)}
#define SHIM_DYNAMIC(type, name) type* const name = reinterpret_cast<type*>(shim::dynamic)

// ---- what Python calls (tests/support/cuda/host.py adds `shim_kernels`, the table of entries)

#define SHIM_LIBRARY(...)                                                                                   \
    static const shim::Entry shim_kernels[] = {__VA_ARGS__ {nullptr, nullptr, nullptr}};                     \
    extern "C" const char* shim_name(int i) { return shim_kernels[i].name; }                                 \
    extern "C" const char* shim_signature(int i) { return shim_kernels[i].signature; }                       \
    extern "C" const char* shim_run(int i, void** a, unsigned grid, unsigned threads, unsigned shared, int falling) { \
        return shim::run(shim_kernels[i].thunk, a, grid, threads, shared, falling);                          \
    }

namespace shim {

// Null, or what went wrong.
static const char* run(Thunk thunk, void** a, unsigned grid, unsigned threads, unsigned shared, bool falling) {
    if (!threads || threads > MOST_THREADS || !grid || shared > MOST_SHARED) {
        snprintf(message, sizeof message, "no GPU runs a grid of %u blocks of %u threads with %u bytes of shared memory", grid, threads, shared);
        return message;
    }
    void* bytes = nullptr;  // exactly as many as are asked for, so that AddressSanitizer sees what goes beyond
    if (shared && posix_memalign(&bytes, 256, shared)) return "no memory";
    dynamic = (char*)bytes;
    kernel = thunk;
    arguments = a;
    blockDim = {threads, 1, 1};
    gridDim = {grid, 1, 1};
    bool well = true;
    for (unsigned b = 0; b < grid && well; b++) {
        blockIdx = {falling ? grid - 1 - b : b, 0, 0};
        if (dynamic) memset(dynamic, 0xFF, shared);
        if (__start_shim_shared) memset(__start_shim_shared, 0xFF, (size_t)(__stop_shim_shared - __start_shim_shared));
        well = block(threads, falling);
    }
    free(bytes);
    if (well) return nullptr;
    fibers_ready = 0;  // those that wait at a barrier are forgotten: nothing on their stacks needs an end
    return message;
}

}  // namespace shim
