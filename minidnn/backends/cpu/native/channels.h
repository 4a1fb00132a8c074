/* All channels of a pixel, a few vectors at a time. */
#pragma once
#include "vector.h"

/* Calls f(..., first channel, vectors, lanes of each) until all of the `all` channels are done, for at most `most`
 * vectors at a time: 4 or 2. A remainder after whole vectors is done by one more vector that begins earlier and repeats
 * a few channels. Only if there are fewer channels than lanes are they loaded one by one. */
#define ALL_CHANNELS(most, all, f, ...)                                                                \
    do {                                                                                               \
        const int64_t all_ = all;                                                                      \
        int64_t c_ = 0;                                                                                \
        if (most == 4)                                                                                 \
            for (; c_ + 4 * LANES <= all_; c_ += 4 * LANES) f(__VA_ARGS__, c_, most, LANES);           \
        for (; c_ + 2 * LANES <= all_; c_ += 2 * LANES) f(__VA_ARGS__, c_, 2, LANES);                  \
        for (; c_ + LANES <= all_; c_ += LANES) f(__VA_ARGS__, c_, 1, LANES);                          \
        if (c_ < all_ && all_ >= LANES) f(__VA_ARGS__, all_ - LANES, 1, LANES);                        \
        if (all_ < LANES) f(__VA_ARGS__, 0, 1, all_);                                                  \
    } while (0)
