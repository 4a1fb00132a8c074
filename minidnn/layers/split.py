"""Split and Silence: one names its bottom anew, the other takes blobs so that they are no outputs of the net."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from minidnn.layers.base import Layer, Shape, ShapeError, Site
from minidnn.layers.moving import Moving
from minidnn.program import Op


class Split(Moving):
    """Caffe's Split: the tops are the bottom itself under other names, without an op. The gradients of all readers of
    the tops add up, as for a blob with several readers (Caffe's implicit Split)."""

    type = "Split"
    tops = (1, None)
    same = True

    def shapes(self, bottoms: Sequence[Shape]) -> list[Shape]:
        for field in ("loss_weight", "propagate_down"):
            if getattr(self.spec, field):
                raise ShapeError(f"{field} has no meaning here, since the tops of a Split are its bottom: give it to "
                    "the layers before or after")  # fmt: skip
        return [bottoms[0]] * len(self.spec.top)

    def forward(self, s: Site) -> Iterable[Op]:
        return ()

    def backward(self, s: Site) -> Iterable[Op]:
        return ()


class Silence(Layer):
    """Caffe's Silence: reads blobs, so that they are not outputs. It computes nothing and gives no gradient."""

    type = "Silence"
    bottoms = (1, None)
    tops = (0, 0)

    def shapes(self, bottoms: Sequence[Shape]) -> list[Shape]:
        return []

    def forward(self, s: Site) -> Iterable[Op]:
        return ()

    def backward(self, s: Site) -> Iterable[Op]:
        return ()
