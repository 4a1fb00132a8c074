/* How elements are shared among threads: in pieces that depend on the number of elements alone. So the bits are the
 * same for any number of threads. */
#pragma once
#include "vector.h"

enum { PIECE = 1 << 12 }; /* elements */
enum { ALONE = 1 << 16 }; /* elements; up to so many, one thread is done before another would have woken */

ALWAYS int64_t at_most(int64_t most, int64_t n) { return n < most ? n : most; }
