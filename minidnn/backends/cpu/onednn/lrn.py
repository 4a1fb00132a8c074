"""LRN within a channel, by oneDNN's pooling and NumPy, one image at a time.

y = x s^-beta with s = 1 + alpha * average of x^2 over a window
"""

from __future__ import annotations

from functools import partial

import numpy as np

from minidnn.backends.cpu.layout import address, flat
from minidnn.backends.cpu.onednn import dnnl as d
from minidnn.backends.cpu.recipe import Call, Recipe, Scratch
from minidnn.backends.layout import strides
from minidnn.program import Op


class _Within:
    """The average over n x n windows at stride 1, of one image. It is its own adjoint, because n is odd: so backward
    uses it, too."""

    def __init__(self, dnnl: d.Dnnl, a, shape: tuple[int, ...]) -> None:
        image = (1, *shape[1:])
        self.desc = dnnl.desc(image, strides(image))
        ones, zeros, pad = d.Dims(1, 1), d.Dims(0, 0), d.Dims((a.size - 1) // 2, (a.size - 1) // 2)
        self.p = dnnl.best(
            "pooling_forward", d.INFERENCE, d.POOLING_AVERAGE, self.desc, self.desc,
            ones, d.Dims(a.size, a.size), zeros, pad, pad, dnnl.attr,
        )  # fmt: skip

    def average(self, source: np.ndarray, target: np.ndarray, pad: int) -> Call:
        return self.p.bind({d.SRC: (self.desc, address(source)), d.DST: (self.desc, address(target))}, pad)

    def sum(self, x: np.ndarray, s: np.ndarray, square: np.ndarray, alpha: float, pad: int) -> list[Call]:
        """Steps for s = 1 + alpha * average of x^2. `square` is scratch, `pad` the address of the scratchpad."""
        return [
            partial(np.multiply, x, x, out=square),
            self.average(square, s, pad),
            partial(np.multiply, s, np.float32(alpha), out=s),
            partial(np.add, s, np.float32(1), out=s),
        ]


def _images(array: np.ndarray) -> np.ndarray:
    return flat(array).reshape(array.shape[0], -1)


def lrn_forward(dnnl: d.Dnnl, op: Op) -> list[Recipe]:
    """One recipe for x -> y; none for LRN across channels, or if x is not 4-D."""
    x, a = op.reads[0], op.attrs
    if a.region != "WITHIN_CHANNEL" or len(x.shape) != 4:
        return []
    within = _Within(dnnl, a, x.shape)
    scratch = Scratch()
    pad, *pieces = scratch.take(within.p.scratchpad), *(scratch.take(x.nbytes // x.shape[0]) for _ in range(2))

    def bind(reads, writes, ws):
        s, t = (piece.array(ws) for piece in pieces)
        steps: list[Call] = []
        for x, y in zip(_images(reads[0]), _images(writes[0]), strict=True):
            steps += within.sum(x, s, t, a.alpha, pad.address(ws))
            steps += [partial(np.power, s, np.float32(-a.beta), out=t), partial(np.multiply, x, t, out=y)]
        return steps

    return [scratch.recipe("pooling", bind)]


def lrn_backward(dnnl: d.Dnnl, op: Op) -> list[Recipe]:
    """One recipe for dx = dy s^-beta - 2 alpha beta x average(dy x s^(-beta-1)); none as in `lrn_forward`."""
    x, a = op.reads[0], op.attrs
    if a.region != "WITHIN_CHANNEL" or len(x.shape) != 4:
        return []
    within = _Within(dnnl, a, x.shape)
    scratch = Scratch()
    pad, *pieces = scratch.take(within.p.scratchpad), *(scratch.take(x.nbytes // x.shape[0]) for _ in range(3))

    def bind(reads, writes, ws):
        s, t, u = (piece.array(ws) for piece in pieces)
        steps: list[Call] = []
        for x, dy, dx in zip(_images(reads[0]), _images(reads[-1]), _images(writes[0]), strict=True):
            steps += within.sum(x, s, t, a.alpha, pad.address(ws))
            steps += [
                partial(np.power, s, np.float32(-a.beta), out=t),
                partial(np.multiply, dy, t, out=t),
                partial(np.divide, t, s, out=u),
                partial(np.multiply, u, x, out=u),
                within.average(u, s, pad.address(ws)),
                partial(np.multiply, s, x, out=s),
                partial(np.multiply, s, np.float32(2 * a.alpha * a.beta), out=s),
                partial(np.subtract, t, s, out=dx),
            ]
        return steps

    return [scratch.recipe("pooling", bind)]


KINDS = {"lrn.forward": lrn_forward, "lrn.backward": lrn_backward}
