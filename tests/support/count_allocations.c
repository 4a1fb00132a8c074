/* LD_PRELOAD library: counts allocations of at least 4 KiB while armed, by whom ever in the process. */
#define _GNU_SOURCE
#include <errno.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);

enum { LEAST = 4096 };
static volatile int armed;
static volatile long count, bytes;

static void note(size_t n) {
    if (armed && n >= LEAST) {
        __sync_fetch_and_add(&count, 1);
        __sync_fetch_and_add(&bytes, (long)n);
    }
}

void allocations_arm(void) { count = bytes = 0; armed = 1; }
long allocations_disarm(void) { armed = 0; return count; }
long allocations_bytes(void) { return bytes; }

void *malloc(size_t n) { note(n); return __libc_malloc(n); }
void *calloc(size_t k, size_t n) { note(k * n); return __libc_calloc(k, n); }
void *realloc(void *p, size_t n) { note(n); return __libc_realloc(p, n); }
void *memalign(size_t a, size_t n) { note(n); return __libc_memalign(a, n); }
void *aligned_alloc(size_t a, size_t n) { note(n); return __libc_memalign(a, n); }

int posix_memalign(void **p, size_t a, size_t n) {
    note(n);
    void *got = __libc_memalign(a, n);
    if (!got) return ENOMEM;
    *p = got;
    return 0;
}

void *mmap(void *at, size_t n, int protection, int flags, int fd, off_t offset) {
    note(n);
    return (void *)syscall(SYS_mmap, at, n, protection, flags, fd, offset);
}
