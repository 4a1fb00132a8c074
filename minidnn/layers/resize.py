"""Images in another size: Interp (DeepLab's, bilinear between the corners) and Upsample (forks', nearest)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from minidnn.layers.base import Layer, Shape, ShapeError, Site, addressable, images, text
from minidnn.program import Op


@dataclass(frozen=True)
class ResizeAttrs:
    """Per axis (height, width): place i of the result lies i * step / over pixels behind pixel `begin`.

    BILINEAR takes the pixel at or before the place and the next one, each by its nearness, also where that is 0: so
    NaN and infinities spread as in Caffe. No pixel follows the last of `size`, which then counts twice. If the result
    has that size, it is a copy."""

    method: str  # "BILINEAR" | "NEAREST"
    step: tuple[int, int]
    over: tuple[int, int]
    begin: tuple[int, int] = (0, 0)
    size: tuple[int, int] = (0, 0)  # of the part of the image that BILINEAR takes from


class _Resize(Layer):
    def attrs(self, shape: Shape) -> ResizeAttrs:
        """The geometry for a bottom of this shape."""
        raise NotImplementedError

    def forward(self, s: Site) -> Iterable[Op]:
        (x,), (y,) = s.x, s.y
        yield s.op("resize.forward", [x], [y], self.attrs(x.shape), flops=8 * y.size)

    def backward(self, s: Site) -> Iterable[Op]:
        (x,), (dy,), (dx,) = s.x, s.arriving, s.bottom_gradients
        yield s.op("resize.backward", [dy], [dx], self.attrs(x.shape), flops=8 * dy.size)


class Interp(_Resize):
    """DeepLab's Interp: bilinear, with aligned corners. The new size is `height` x `width`, or follows from zoom_factor
    and shrink_factor. Negative pad_beg and pad_end first crop the bottom."""

    type = "Interp"
    field_name = "interp_param"

    def cropped(self, shape: Shape) -> tuple[int, int]:
        """The height and the width that the crop leaves. Raises ShapeError if it leaves nothing."""
        begin, end = self.param.pad_beg, self.param.pad_end
        h, w = (size + begin + end for size in images(shape)[2:])
        if min(h, w) < 1:
            raise ShapeError(f"pad_beg {begin} and pad_end {end} leave nothing of its bottom {text(shape)}")
        return h, w

    def shapes(self, bottoms: Sequence[Shape]) -> list[Shape]:
        p, kept = self.param, self.cropped(bottoms[0])
        shrunk = ((size - 1) // p.shrink_factor + 1 for size in kept)
        out = p.size or tuple((size - 1) * p.zoom_factor + 1 for size in shrunk)
        return [addressable((*bottoms[0][:2], *out), "its top")]

    def attrs(self, shape: Shape) -> ResizeAttrs:
        old, new = self.cropped(shape), self.shapes([shape])[0][2:]
        (h, rows), (w, columns) = ((h - 1 if n > 1 else 0, max(1, n - 1)) for h, n in zip(old, new, strict=True))
        return ResizeAttrs("BILINEAR", (h, w), (rows, columns), (-self.param.pad_beg,) * 2, old)


class Upsample(_Resize):
    """Each pixel becomes a square of `scale` x `scale` equal pixels. (SegNet's Upsample, with the positions of maxima
    as a second bottom, is a different layer.)"""

    type = "Upsample"
    field_name = "upsample_param"

    def shapes(self, bottoms: Sequence[Shape]) -> list[Shape]:
        n, c, h, w = images(bottoms[0])
        return [addressable((n, c, h * self.param.scale, w * self.param.scale), "its top")]

    def attrs(self, shape: Shape) -> ResizeAttrs:
        return ResizeAttrs("NEAREST", (1, 1), (self.param.scale,) * 2)
