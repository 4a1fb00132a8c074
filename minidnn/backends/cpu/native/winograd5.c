/* Winograd convolution of 5x5 filters: F(2x2,5x5) and F(5x5,2x2). */
#define FILTER 5
#include "winograd.h"
