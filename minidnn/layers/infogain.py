"""InfogainLoss: the softmax loss where a mistake costs what a matrix says."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np

from minidnn.files import regular
from minidnn.layers.base import Parameter, Shape, ShapeError, Site, positive_axis, text
from minidnn.layers.fillers import Values
from minidnn.layers.loss import in_shape, moves
from minidnn.layers.softmax import SoftmaxWithLoss
from minidnn.program import Op, Tensor


class InfogainLoss(SoftmaxWithLoss):
    """Caffe's loss: the mean of -(the sum over classes k of H[label, k] log(p_k)). p is the softmax of the scores,
    clipped to at least 1e-20 in the logarithm. H is the third bottom, or the matrix in the file `source`. The optional
    second top is p."""

    type = "InfogainLoss"
    field_name = "infogain_loss_param"
    bottoms = (2, 3)
    targets = (1, 2)

    def shapes(self, bottoms: Sequence[Shape]) -> list[Shape]:
        self.refuse_smoothing()
        result = super().shapes(bottoms[:2])
        if bool(self.param.source) == (len(bottoms) == 3):
            got = "both" if self.param.source else "neither"
            raise ShapeError(f"expected the matrix as a third bottom, or its file as infogain_loss_param.source; {got}")
        if len(bottoms) == 3:
            self.check(bottoms[2], f"bottom 2 ({self.spec.bottom[2]})", bottoms[0])
        return result

    def check(self, shape: Shape, what: str, scores: Shape) -> None:
        """Raise ShapeError unless a matrix of this shape has a row and a column for each class."""
        k = scores[positive_axis(self.param.axis, scores)]
        if math.prod(shape) != k * k:
            raise ShapeError(f"{what} is {text(shape)}; {k} classes need a matrix of {k}x{k}")

    def parameters(self, bottoms: Sequence[Shape]) -> list[Parameter]:
        if not self.param.source:
            return []
        values = read_matrix(self.param.source)
        self.check(values.shape, f"the matrix in {self.param.source}", bottoms[0])
        k = math.isqrt(values.size)
        return [Parameter("infogain", (k, k), Values(values), 0.0, 0.0, learnable=False, constant=True)]

    def forward(self, s: Site) -> Iterable[Op]:
        if len(s.x) == 3:
            yield from moves(s, [*s.x[:2], *self.matrix(s)])
        yield from super().forward(s)

    def matrix(self, s: Site) -> list[Tensor]:
        if len(s.x) < 3:
            return [s.p["infogain"]]
        k = math.isqrt(s.x[2].size)
        return [in_shape(s, 2, (k, k))]


def read_matrix(path: str) -> np.ndarray:
    """The matrix in Caffe's .binaryproto or in an .npy file, float32. Raises ShapeError."""
    from minidnn.schema import blobs

    readers: dict[str, Callable[[str], np.ndarray]] = {".binaryproto": blobs.array, ".npy": _mapped}
    what, form = f"infogain_loss_param.source: {path!r}", Path(path).suffix
    if form not in readers:
        raise ShapeError(f"{what} is not a {' or '.join(readers)} file")
    try:
        result = readers[form](path)
    except (OSError, ValueError) as error:
        raise ShapeError(f"{what} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if result.dtype.kind != "f":
        raise ShapeError(f"{what} holds {result.dtype}; expected float32")
    if not np.isfinite(result).all():
        raise ShapeError(f"{what} holds numbers that are not finite")
    return result.astype(np.float32)


def _mapped(path: str) -> np.ndarray:
    """The array of an npy file, which is as long as its header says, or cannot be mapped."""
    with regular.opened(path):
        return np.load(path, mmap_mode="r", allow_pickle=False)
