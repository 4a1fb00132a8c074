"""Im2col and BatchReindex (kernels/gather.cu).

On a GPU a number that names no row cannot raise an error. It makes its row of the result NaN."""

from __future__ import annotations

import numpy as np

from minidnn.backends.cuda.recipe import Launch, Read, Recipe, Write, over, plain
from minidnn.program import Op


def windows(op: Op) -> list[Recipe]:
    """One recipe for the image x -> the columns y, or for dy -> dx."""
    forward, a, size = op.kind.endswith(".forward"), op.attrs, op.writes[0].size
    x, y = (op.reads[0], op.writes[0]) if forward else (op.writes[0], op.reads[0])
    sizes = (*x.shape[1:], *y.shape[2:], *a.kernel, *a.stride, *a.pad, *a.dilation)
    arguments = Read(0), Write(0), np.int64(size), *(np.int32(n) for n in sizes)
    return [plain(Launch("gather", "columns" if forward else "pixels", arguments, over(size)))]


def rows(op: Op) -> list[Recipe]:
    """One recipe for x index -> y, or for index dy -> dx. An index is int32."""
    forward, (y,) = op.kind.endswith(".forward"), op.writes
    count = op.reads[0].shape[0]  # of rows of x, or of indices
    arguments = Read(0), Read(1), Write(0), np.int64(y.size), np.int64(y.size // y.shape[0]), np.int32(count)
    return [plain(Launch("gather", "rows" if forward else "sums", arguments, over(y.size)))]


KINDS = {
    "im2col.forward": windows,
    "im2col.backward": windows,
    "batch_reindex.forward": rows,
    "batch_reindex.backward": rows,
}
