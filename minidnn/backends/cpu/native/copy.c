/* Copies of tensors between the arena and the host's part. Both lie in one memory, so a copy takes from the memory's
 * rate what the ops beside it want, and from their caches what they just wrote. It goes past the caches: then the
 * memory is not read before it is written. */
#include "mirrored.h"
#include "vector.h"

enum { AHEAD = 2048, BLOCK = 256 }; /* bytes: of a read that is asked for ahead, and of a turn of the loop */

typedef struct {
    int64_t bytes;
} Copied;
MIRRORED(copied, Copied)

void copy_bytes(const Copied *g, char *to, const char *from) {
    const int64_t n = g->bytes, head = -(uintptr_t)to & (sizeof(vec) - 1);
    int64_t i = head < n ? head : n;
    memcpy(to, from, i);
    for (; i + BLOCK <= n; i += BLOCK) {
        for (int64_t k = 0; k < BLOCK; k += 64) __builtin_prefetch(from + i + AHEAD + k, 0, 0);
        for (int64_t k = 0; k < BLOCK; k += sizeof(vec))
            store_past((float *)(to + i + k), load((const float *)(from + i + k)));
    }
    memcpy(to + i, from + i, n - i);
    stored_past();
}
