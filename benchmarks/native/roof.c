/* What the machine does at its best, on `threads` threads at once: fused multiply-adds in registers, and memory read,
 * written, copied and added to. Each function does its work `rounds` times and allocates nothing. While it does, each
 * thread keeps to a core of its own: beside another program, the system would put two of them on one core. */
#define _GNU_SOURCE
#include <omp.h>
#include <sched.h>

#include "../../minidnn/backends/cpu/native/vector.h"

/* Sums of products that a core has under way. A multiply-add takes four cycles, and a core begins two in each, so 8 is
 * the least. 12 and two factors fit the 16 registers of AVX2. */
enum { CHAINS = 12, ABREAST = 8, MOST_STREAMS = 4 };

#define AGAIN __asm__ volatile("" ::: "memory") /* so that each round does its work */

/* Keeps this thread to one of the cores that it may use, by its number. Returns all that it may use. */
static cpu_set_t kept_to_a_core(void) {
    cpu_set_t before, one;
    CPU_ZERO(&before);
    CPU_ZERO(&one);
    sched_getaffinity(0, sizeof before, &before);
    int left = CPU_COUNT(&before) ? omp_get_thread_num() % CPU_COUNT(&before) : 0;
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &before) && left-- == 0) CPU_SET(cpu, &one);
    sched_setaffinity(0, sizeof one, &one);
    return before;
}

int64_t roof_products(void) { return CHAINS * LANES; } /* of a thread in a round */

float roof_multiply_add(int64_t rounds, int64_t threads) {
    float total = 0;
#pragma omp parallel num_threads(threads) reduction(+ : total)
    {
        const cpu_set_t before = kept_to_a_core();
        vec sum[CHAINS];
        const vec factor = (vec){0} + 0.5f, more = (vec){0} + 1.0f;
        for (int i = 0; i < CHAINS; i++) sum[i] = (vec){0} + (float)i;
        for (int64_t r = 0; r < rounds; r++)
            _Pragma("GCC unroll 12") for (int i = 0; i < CHAINS; i++) sum[i] = fused(sum[i], factor, more);
        for (int i = 0; i < CHAINS; i++) total += sum[i][0];
        sched_setaffinity(0, sizeof before, &before);
    }
    return total;
}

/* This thread's part of n floats, in whole groups of ABREAST vectors in each stream. */
ALWAYS int64_t own(int64_t n) {
    const int64_t group = MOST_STREAMS * ABREAST * LANES;
    return n / omp_get_num_threads() / group * group;
}

/* `streams`: in how many places at once a thread reads. Memory is quicker with several, caches with one. */

float roof_read(const float *p, int64_t n, int64_t rounds, int64_t threads, int64_t streams) {
    float total = 0;
#pragma omp parallel num_threads(threads) reduction(+ : total)
    {
        const cpu_set_t before = kept_to_a_core();
        const int64_t count = own(n), piece = count / streams;
        const float *from = p + omp_get_thread_num() * count;
        vec sum[ABREAST] = {0};
        for (int64_t r = 0; r < rounds; r++) {
            for (int64_t i = 0; i < piece; i += ABREAST * LANES)
                for (int64_t at = i; at < count; at += piece)
                    _Pragma("GCC unroll 8") for (int v = 0; v < ABREAST; v++) sum[v] += load(from + at + v * LANES);
            AGAIN;
        }
        for (int v = 0; v < ABREAST; v++) total += sum[v][0];
        sched_setaffinity(0, sizeof before, &before);
    }
    return total;
}

void roof_write(float *p, int64_t n, int64_t rounds, int64_t threads, int64_t past) {
#pragma omp parallel num_threads(threads)
    {
        const cpu_set_t before = kept_to_a_core();
        const int64_t count = own(n);
        float *to = p + omp_get_thread_num() * count;
        const vec v = (vec){0} + 1.0f;
        for (int64_t r = 0; r < rounds; r++) {
            if (past)
                for (int64_t i = 0; i < count; i += LANES) store_past(to + i, v);
            else
                for (int64_t i = 0; i < count; i += LANES) store(to + i, v);
            AGAIN;
        }
        stored_past();
        sched_setaffinity(0, sizeof before, &before);
    }
}

void roof_copy(const float *p, float *q, int64_t n, int64_t rounds, int64_t threads, int64_t past) {
#pragma omp parallel num_threads(threads)
    {
        const cpu_set_t before = kept_to_a_core();
        const int64_t count = own(n), first = omp_get_thread_num() * count;
        const float *from = p + first;
        float *to = q + first;
        for (int64_t r = 0; r < rounds; r++) {
            if (past)
                for (int64_t i = 0; i < count; i += LANES) store_past(to + i, load(from + i));
            else
                memcpy(to, from, 4 * count);
            AGAIN;
        }
        stored_past();
        sched_setaffinity(0, sizeof before, &before);
    }
}

/* q += p: what is written was read, and a cache need not fetch it for that. */
void roof_add(const float *p, float *q, int64_t n, int64_t rounds, int64_t threads, int64_t streams) {
#pragma omp parallel num_threads(threads)
    {
        const cpu_set_t before = kept_to_a_core();
        const int64_t count = own(n), first = omp_get_thread_num() * count, piece = count / streams;
        const float *from = p + first;
        float *to = q + first;
        for (int64_t r = 0; r < rounds; r++) {
            for (int64_t i = 0; i < piece; i += ABREAST * LANES)
                for (int64_t at = i; at < count; at += piece)
                    _Pragma("GCC unroll 8") for (int v = 0; v < ABREAST; v++)
                        store(to + at + v * LANES, load(to + at + v * LANES) + load(from + at + v * LANES));
            AGAIN;
        }
        sched_setaffinity(0, sizeof before, &before);
    }
}
