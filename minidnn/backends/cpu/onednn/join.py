"""Flatten: a strided copy, by oneDNN's reorder."""

from __future__ import annotations

import numpy as np

from minidnn.backends.cpu.layout import address
from minidnn.backends.cpu.onednn import dnnl as d
from minidnn.backends.cpu.onednn.elementwise import copy
from minidnn.backends.cpu.recipe import Call, Recipe, Scratch, plain
from minidnn.backends.layout import contiguous, strides
from minidnn.program import Op


class Move:
    """Copies elements of one logical shape from a layout to another, each given by its strides."""

    def __init__(self, dnnl: d.Dnnl, shape: tuple[int, ...], source, target, scratch: Scratch) -> None:
        self.source, self.target = dnnl.desc(shape, source), dnnl.desc(shape, target)
        self.p = dnnl.reorder(self.source, self.target)
        self.pad = scratch.take(self.p.scratchpad)

    def bind(self, source: int, target: int, workspace: np.ndarray) -> Call:
        ends = {d.SRC: (self.source, source), d.DST: (self.target, target)}
        return self.p.bind(ends, self.pad.address(workspace))


def flatten(dnnl: d.Dnnl, op: Op) -> list[Recipe]:
    """One recipe for x -> y, the same elements in logical order. Memory has them in another order only in a 4-D tensor,
    so elsewhere a plain copy will do."""
    (x,), (y,) = op.reads, op.writes
    if (len(x.shape) == 4) == (len(y.shape) == 4):
        if len(x.shape) == 4 and x.shape != y.shape:
            return [plain(_between_images, "numpy")]
        return copy(dnnl, op)
    four = x.shape if len(x.shape) == 4 else y.shape
    ends = (strides(four), contiguous(four))
    scratch = Scratch()
    move = Move(dnnl, four, *(ends if four == x.shape else ends[::-1]), scratch)
    return [scratch.recipe("reorder", lambda r, w, ws: [move.bind(address(r[0]), address(w[0]), ws)])]


def _between_images(reads, writes, _) -> list[Call]:
    """A copy from 4-D to another 4-D shape, which is not one reorder: element by element, without a buffer."""

    def call() -> None:
        writes[0].flat[:] = reads[0].flat

    return [call]


KINDS = {
    "flatten.forward": flatten,
    "flatten.backward": flatten,
}
