/* A struct that a class of Python spells, too (binding.Mirrored, whose `twin` is this name). When the library is loaded,
 * their sizes are compared. */
#pragma once
#include <stdint.h>

#define MIRRORED(name, type) \
    int64_t mirrored_##name(void) { return sizeof(type); }
