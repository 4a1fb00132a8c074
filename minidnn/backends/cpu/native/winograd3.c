/* Winograd convolution of 3x3 filters: F(4x4,3x3) and F(3x3,4x4). */
#define FILTER 3
#include "winograd.h"
#include "mirrored.h"

MIRRORED(winograd, Geometry) /* 5x5 has the same struct */
