/* Whole tensors between float32 and the formats of 16 bits (halves.h). */
#include "halves.h"
#include "mirrored.h"

typedef struct {
    int64_t rows, width, from_pitch, to_pitch, threads; /* rows of so many elements, which begin a pitch apart */
} Geometry;
MIRRORED(convert, Geometry)

#define BY_PIECES                                                                                                       \
    _Pragma("omp parallel for collapse(2) num_threads(g->threads) schedule(static) if (g->rows * g->width > ALONE)")     \
    for (int64_t r = 0; r < g->rows; r++)                                                                                \
        for (int64_t i = 0; i < g->width; i += PIECE)

#define CONVERSIONS(format)                                                                                             \
    void convert_##format##_float32(const Geometry *g, const uint16_t *from, float *to) {                               \
        BY_PIECES                                                                                                       \
        widen_piece(at_most(PIECE, g->width - i), from + r * g->from_pitch + i, to + r * g->to_pitch + i, from_##format);     \
    }                                                                                                                   \
    void convert_float32_##format(const Geometry *g, const float *from, uint16_t *to) {                                 \
        BY_PIECES                                                                                                       \
        narrow_piece(at_most(PIECE, g->width - i), from + r * g->from_pitch + i, to + r * g->to_pitch + i, to_##format); \
    }

CONVERSIONS(bfloat16)
CONVERSIONS(float16)
