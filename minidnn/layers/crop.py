"""Crop: a box of its first bottom, as large as its second."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from minidnn.layers.base import Shape, ShapeError, Site, positive_axis, text
from minidnn.layers.moving import Moving
from minidnn.program import Op


@dataclass(frozen=True)
class CropAttrs:
    start: tuple[int, ...]  # per axis, the place in x where the box begins


class Crop(Moving):
    """Caffe's Crop: from `axis` on, the top has the lengths of the second bottom, and begins at `offset` in the first.
    Only the shape of the second bottom is used: it is not read, and gets no gradient."""

    type = "Crop"
    field_name = "crop_param"
    bottoms = (2, 2)
    still = (1,)

    def start(self, shape: Shape) -> tuple[int, ...]:
        """Where the box begins in a bottom of this shape. Raises ShapeError for a wrong number of offsets."""
        axis, offset = positive_axis(self.param.axis, shape), self.param.offset
        cropped = len(shape) - axis
        if len(offset) not in (0, 1, cropped):
            raise ShapeError(
                f"expected one offset, or {cropped}, one for each axis from {axis} on of the bottom {text(shape)}; "
                f"got {len(offset)}"
            )
        return (*[0] * axis, *(offset if len(offset) == cropped else (offset or (0,)) * cropped))

    def shapes(self, bottoms: Sequence[Shape]) -> list[Shape]:
        shape, like = bottoms
        start, axis = self.start(shape), positive_axis(self.param.axis, shape)
        if len(like) < len(shape):
            raise ShapeError(
                f"the second bottom ({text(like)}) gives the lengths of the axes from {axis} on, and has fewer axes "
                f"than the first ({text(shape)})"
            )
        for i in range(axis, len(shape)):
            if start[i] + like[i] > shape[i]:
                raise ShapeError(
                    f"axis {i}: {like[i]} elements from offset {start[i]} on do not fit into the {shape[i]} of the "
                    f"bottom {text(shape)}; the offset may be up to {shape[i] - like[i]}"
                    if like[i] <= shape[i]
                    else f"axis {i}: the second bottom ({text(like)}) is longer than the first ({text(shape)})"
                )
        return [(*shape[:axis], *like[axis : len(shape)])]

    def forward(self, s: Site) -> Iterable[Op]:
        x, (y,) = s.x[0], s.y
        yield s.op("crop.forward", [x], [y], CropAttrs(self.start(x.shape)), flops=y.size)

    def backward(self, s: Site) -> Iterable[Op]:
        (dx,) = s.bottom_gradients
        yield s.op("crop.backward", s.arriving, [dx], CropAttrs(self.start(dx.shape)), flops=dx.size)
