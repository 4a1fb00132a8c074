"""BatchReindex: rows of its first bottom, chosen and ordered by the numbers in its second."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from minidnn.layers.base import Shape, ShapeError, Site, text
from minidnn.layers.moving import Moving
from minidnn.program import Op


class BatchReindex(Moving):
    """Caffe's BatchReindex: row i of the top is row index[i] of the bottom. A row may occur several times or not at
    all; its gradient is the sum over its occurrences, in order."""

    type = "BatchReindex"
    bottoms = (2, 2)
    indices = 1
    still = (1,)

    def shapes(self, bottoms: Sequence[Shape]) -> list[Shape]:
        shape, index = bottoms
        if len(index) != 1:
            raise ShapeError(f"the second bottom holds numbers of rows, and has one axis; got {text(index)}")
        if not shape:
            raise ShapeError("the first bottom has no axes, and so no rows")
        return [(*index, *shape[1:])]

    def dtypes(self, bottoms: Sequence[str]) -> list[str]:
        if bottoms[1] != "int32":
            raise ShapeError(
                f"the second bottom ({self.spec.bottom[1]}) holds {bottoms[1]}, and numbers of rows are int32: take a "
                f"top of Input that BatchReindex alone reads"
            )
        return super().dtypes(bottoms)

    def forward(self, s: Site) -> Iterable[Op]:
        (y,) = s.y
        yield s.op("batch_reindex.forward", s.x, [y], flops=y.size)

    def backward(self, s: Site) -> Iterable[Op]:
        (dy,), (dx,) = s.arriving, s.bottom_gradients
        yield s.op("batch_reindex.backward", [s.x[1], dy], [dx], flops=dy.size)
