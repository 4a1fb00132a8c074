/* How elements are shared among threads: in pieces that depend on the number of elements alone. So the bits are the
 * same for any number of threads. */
#pragma once
#include "vector.h"

enum { PIECE = 1 << 12 }; /* elements */
enum { ALONE = 1 << 16 }; /* elements; up to so many, one thread is done before another would have woken */

ALWAYS int64_t at_most(int64_t most, int64_t n) { return n < most ? n : most; }

enum { LARGE = 1 << 20 }; /* elements; of so large a result, a near cache no longer has the beginning at the end */

/* Whether a result of rows of c elements goes past the caches: it is large, and its rows are whole, aligned vectors. */
ALWAYS int goes_past(const float *to, int64_t rows, int64_t c) {
    return rows * c > LARGE && c % LANES == 0 && (uintptr_t)to % sizeof(vec) == 0;
}
