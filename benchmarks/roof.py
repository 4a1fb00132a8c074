"""The roof of a machine (benchmarks/rates.py measures it), and the seconds that an op takes at least below it.

An op takes at least as long as its arithmetic or its bytes do, whichever takes longer. A step is the sum of its ops. So
that this is a bound, these are counted:

- the multiplications and additions that the op's algorithm makes: of a convolution those on pixels within the image,
  not on its padding; of Winograd's, the products of its transformed tiles, and no transform. None of ops that multiply
  no matrices (FAMILIES);
- each tensor's bytes once. Of a table or an image of which an op reads some rows or pixels alone, these. What caches
  can hold moves at the rate of the caches, as if the op before had left it there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from minidnn.backends import families
from minidnn.backends.cpu.native import winograd
from minidnn.program import PRODUCTS, Algorithm, Op, Tensor

FAMILIES = (*sorted(PRODUCTS), "linear_loss")  # of ops that multiply matrices
KINDS = frozenset(kind for family in FAMILIES for kind in families.FAMILIES[family])
WINOGRAD = {size.name: size for size in winograd.SIZES.values()}
STILL = ("flatten.forward", "flatten.backward", "identity.forward")  # in place they do nothing
# They read no more of their first tensor than they write: rows of a table, a part of an image.
CHOOSING = ("batch_reindex.forward", "concat.backward", "crop.forward")


@dataclass(frozen=True)
class Level:
    """Bytes per second in the caches of one level, or in memory."""

    nbytes: int | None  # that it holds, of all cores together; None: memory
    read: float
    written: float
    moved: float  # read and written, in any mixture

    def faster(self, outer: Level) -> Level:
        """This level, no slower than the one behind it."""
        pairs = {name: max(getattr(self, name), getattr(outer, name)) for name in ("read", "written", "moved")}
        return Level(self.nbytes, **pairs)


@dataclass(frozen=True)
class Work:
    """What an op does at least: operations of its products, bytes read and bytes written."""

    flops: int
    read: int
    written: int


@dataclass(frozen=True)
class Roof:
    """flops:  operations per second of products: the fastest of `rates`
    rates:  by what they were measured
    levels: from the first cache to memory"""

    flops: float
    rates: dict[str, float]
    levels: tuple[Level, ...]

    @classmethod
    def of(cls, rates: dict[str, float], levels: Sequence[Level]) -> Roof:
        found: list[Level] = []
        for level in reversed(levels):
            found.insert(0, level.faster(found[0]) if found else level)
        return cls(max(rates.values()), rates, tuple(found))

    def arithmetic(self, work: Work) -> float:
        """Seconds."""
        return work.flops / self.flops

    def moving(self, work: Work) -> float:
        """Seconds."""
        counted = (("read", work.read), ("written", work.written), ("moved", work.read + work.written))
        return max(self._seconds(nbytes, what) for what, nbytes in counted)

    def _seconds(self, nbytes: int, what: str) -> float:
        seconds = 0.0
        for level in self.levels:
            here = nbytes if level.nbytes is None else min(nbytes, level.nbytes)
            seconds, nbytes = seconds + here / getattr(level, what), nbytes - here
        return seconds

    def seconds(self, work: Work) -> float:
        """The least seconds of an op's work."""
        return max(self.arithmetic(work), self.moving(work))

    def document(self) -> dict[str, Any]:
        return asdict(self)


def work(op: Op, algorithm: Algorithm) -> Work:
    """The least work of an op with this algorithm."""
    if op.kind in STILL and op.inplace:
        return Work(0, 0, 0)
    read = dict(zip(op.reads, op.read_bytes, strict=True))
    written = sum(t.nbytes for t in dict.fromkeys(op.writes))
    if op.kind in CHOOSING:
        read[op.reads[0]] = min(read[op.reads[0]], written)
    flops = op.flops if op.kind in KINDS else 0
    if op.kind in families.FAMILIES["convolution"]:
        x, w, y = _convolution(op)
        pairs, seen = _windows(op.attrs, x.shape, y.shape)
        size = WINOGRAD.get(algorithm.name)
        if size is None:
            flops = 2 * x.shape[0] * w.shape[0] * w.shape[1] * pairs
        else:
            of = x if op.kind == "convolution.backward_data" else y
            flops = 2 * winograd.POINTS * size.tiles(of.shape) * w.shape[0] * w.shape[1]
        if x in read:
            read[x] = read[x] * seen // (x.shape[2] * x.shape[3])
    return Work(flops, sum(read.values()), written)


def _convolution(op: Op) -> tuple[Tensor, Tensor, Tensor]:
    """x, w and y of a convolution's pass, or their gradients."""
    if op.kind == "convolution.backward_filter":
        return op.reads[0], op.writes[0], op.reads[1]
    if op.kind == "convolution.backward_data":
        return op.writes[0], op.reads[0], op.reads[1]
    return op.reads[0], op.reads[1], op.writes[0]


def _windows(attrs: Any, x: Sequence[int], y: Sequence[int]) -> tuple[int, int]:
    """How many pairs of an output's pixel and a tap lie within an image, and how many of its pixels any of them reads;
    x and y are shapes (N, C, H, W)."""
    pairs = seen = 1
    for i in (0, 1):
        first = np.arange(y[2 + i])[:, None] * attrs.stride[i] - attrs.pad[i]
        places = first + np.arange(attrs.kernel[i]) * attrs.dilation[i]
        within = places[(places >= 0) & (places < x[2 + i])]
        pairs, seen = pairs * within.size, seen * np.unique(within).size
    return pairs, seen
