/* Marks a struct that a Python class repeats: a subclass of Mirrored in binding.py, whose `twin` is `name`. When the
 * library is loaded, the sizes of both are compared. */
#pragma once
#include <stdint.h>

#define MIRRORED(name, type) \
    int64_t mirrored_##name(void) { return sizeof(type); }
