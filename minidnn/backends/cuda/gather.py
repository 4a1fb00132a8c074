"""Im2col, BatchReindex and RelativePositionBias (kernels/gather.cu).

On a GPU a number that names no row cannot raise an error. It makes its row of the result NaN."""

from __future__ import annotations

import numpy as np

from minidnn.backends.cuda.recipe import BLOCK, MOST_BLOCKS, Launch, Read, Recipe, Write, by_fours, int32, over, plain
from minidnn.program import Op


def windows(op: Op) -> list[Recipe]:
    """One recipe for the image x -> the columns y, or for dy -> dx."""
    forward, a, size = op.kind.endswith(".forward"), op.attrs, op.writes[0].size
    x, y = (op.reads[0], op.writes[0]) if forward else (op.writes[0], op.reads[0])
    sizes = (*x.shape[1:], *y.shape[2:], *a.kernel, *a.stride, *a.pad, *a.dilation)
    arguments = Read(0), Write(0), np.int64(size), *(int32(n) for n in sizes)
    return [plain(Launch("gather", "columns" if forward else "pixels", arguments, over(size)))]


def rows(op: Op) -> list[Recipe]:
    """One recipe for x index -> y. An index is int32."""
    (x, _), (y,) = op.reads, op.writes
    sizes = np.int64(y.size), np.int64(x.size // x.shape[0]), int32(x.shape[0])
    return [plain(Launch("gather", "rows", (Read(0), Read(1), Write(0), *sizes), over(y.size)))]


def sums(op: Op) -> list[Recipe]:
    """One recipe for index dy -> dx: zeros, then the sums of those rows that have a number."""
    (index, _), (dx,) = op.reads, op.writes
    width = dx.size // dx.shape[0]
    pieces = -(-width // BLOCK)
    sizes = (
        np.int64(index.size * pieces),
        int32(index.size),
        np.int64(width),
        int32(pieces),
        int32(dx.shape[0]),
    )
    return [
        plain(
            by_fours("elementwise", "fill", dx.size, Write(0), np.float32(0)),
            Launch("gather", "sums", (Read(0), Read(1), Write(0), *sizes), min(index.size * pieces, MOST_BLOCKS)),
        )
    ]


def relative_bias(op: Op) -> list[Recipe]:
    """One recipe for w -> y."""
    a, size = op.attrs, op.writes[0].size
    numbers = np.int64(size), *(int32(n) for n in (a.side, a.heads, a.down, a.across, a.shift)), np.float32(a.hidden)
    return [plain(Launch("gather", "relative_bias", (Read(0), Write(0), *numbers), over(size)))]


def relative_sums(op: Op) -> list[Recipe]:
    """One recipe for dy -> dw. A block has a sum."""
    a, size = op.attrs, op.writes[0].size
    numbers = np.int64(size), *(int32(n) for n in (a.side, a.heads, a.down * a.across))
    return [plain(Launch("gather", "relative_sums", (Read(0), Write(0), *numbers), min(size, MOST_BLOCKS)))]


KINDS = {
    "im2col.forward": windows,
    "im2col.backward": windows,
    "batch_reindex.forward": rows,
    "batch_reindex.backward": sums,
    "relative_bias.forward": relative_bias,
    "relative_bias.backward": relative_sums,
}
