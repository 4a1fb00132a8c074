"""Pooling: the largest value (MAX) or the mean (AVE) of each window.

The number of windows is rounded as in Caffe: up by default, so that the last window may extend over the edge. A window
that would begin beyond the image is left out. (Caffe does so only if there is padding. Without padding, and with a
stride above the kernel, such a window would hold no element; minidnn leaves it out there, too.)
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from minidnn.layers.base import Layer, Shape, ShapeError, Site, addressable, images, padded, text
from minidnn.layers.facts import Facts
from minidnn.program import Op, Tensor

PLACES = 2**31 - 1  # the most places in a window, since the index of a maximum is an int32


@dataclass(frozen=True)
class PoolingAttrs:
    method: str  # "MAX" | "AVE"
    kernel: tuple[int, int]
    stride: tuple[int, int] = (1, 1)
    pad: tuple[int, int] = (0, 0)
    saved: str | None = "index"  # what MAX's backward reads, apart from dy: "index", "x" or "xy"; None for AVE


class Pooling(Layer):
    """Caffe's Pooling. AVE divides by the size of the window within the padded image: padding counts, but positions
    beyond the padding do not."""

    type = "Pooling"
    field_name = "pooling_param"
    tops = (1, 2)  # Caffe's second top is refused with a reason

    def attrs(self, shape: Shape, facts: Facts | None = None) -> PoolingAttrs:
        p = self.param
        saved = facts.pool if facts and p.pool == "MAX" else None
        return PoolingAttrs(p.pool, p.pair("kernel") or tuple(shape[2:]), p.pair("stride"), p.pair("pad"), saved)

    def shapes(self, bottoms: Sequence[Shape]) -> list[Shape]:
        if len(self.spec.top) > 1:
            raise ShapeError(
                f"a second top, the places of the maxima as numbers ({self.spec.top[1]}), is Caffe's, but minidnn does "
                f"not make it: leave it out"
            )
        n, c, *size = images(bottoms[0])
        a, out = self.attrs(bottoms[0]), []
        for h, k, s, p in zip(size, a.kernel, a.stride, a.pad, strict=True):
            if p >= k:
                raise ShapeError(f"pad {p} must be less than kernel {k}")
            room = h + 2 * p - k
            o = (-(-room // s) if self.param.round_mode == "CEIL" else room // s) + 1
            if (o - 1) * s >= h + p:
                o -= 1
            if o < 1:
                raise ShapeError(
                    f"a window of {k} does not fit into {h} + 2 x {p} (pad) of its bottom {text(bottoms[0])}"
                )
            out.append(o)
        addressable(padded(bottoms[0], a.pad), "its padded bottom")
        if math.prod(a.kernel) > PLACES:
            raise ShapeError(f"a window of {text(a.kernel)} has more places than the {PLACES} of its index")
        return [(n, c, *out)]

    def forward(self, s: Site) -> Iterable[Op]:
        (x,), (y,) = s.x, s.y
        attrs = self.attrs(x.shape, s.facts if s.train else None)
        index = [index_of(s, y, attrs)] if attrs.saved == "index" else []
        yield s.op("pooling.forward", [x], [y, *index], attrs, flops=y.size * math.prod(attrs.kernel))

    def backward(self, s: Site) -> Iterable[Op]:
        (x,), (y,), (dy,), (dx,) = s.x, s.y, s.arriving, s.bottom_gradients
        attrs = self.attrs(x.shape, s.facts)
        saved = saved_of(s, x, y, attrs)
        flops = y.size * (math.prod(attrs.kernel) if attrs.method == "AVE" else 1)
        yield s.op("pooling.backward", [*saved, dy], [dx], attrs, flops=flops)


def index_of(s: Site, y: Tensor, attrs: PoolingAttrs, name: str = "index") -> Tensor:
    """The place of each maximum in its window, counted row by row over the whole kh x kw window: uint8 if a byte is
    enough, else int32."""
    return s.extra(name, y.shape, "uint8" if math.prod(attrs.kernel) <= 256 else "int32")


def saved_of(s: Site, x: Tensor, y: Tensor, attrs: PoolingAttrs, name: str = "index") -> list[Tensor]:
    """The tensors that backward reads, apart from dy; `name` is the index's."""
    if attrs.saved == "index":
        return [index_of(s, y, attrs, name)]
    return {"x": [x], "xy": [x, y], None: []}[attrs.saved]
