/* How elements are shared among threads: in pieces that depend on nothing but the size of the whole, so that no bit
 * depends on who computed it. */
#pragma once
#include "vector.h"

enum { PIECE = 1 << 12 }; /* elements */
enum { ALONE = 1 << 16 }; /* elements: below, one thread is done before another would have woken */

ALWAYS int64_t at_most(int64_t most, int64_t n) { return n < most ? n : most; }
