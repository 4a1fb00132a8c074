"""ReLU by oneDNN, and by NumPy over blocks where a mask is saved.

An output may have the bytes of any input: the result is the same as with bytes of its own.
"""

from __future__ import annotations

import ctypes
from functools import partial

import numpy as np

from minidnn.backends.cpu.layout import address, flat
from minidnn.backends.cpu.onednn import dnnl as d
from minidnn.backends.cpu.onednn.elementwise import eltwise
from minidnn.backends.cpu.recipe import BLOCK, Call, Recipe, Scratch, blocks, plain
from minidnn.program import Op

_f = ctypes.c_float


def relu_forward(dnnl: d.Dnnl, op: Op) -> list[Recipe]:
    """One recipe for x -> y (mask)."""
    if op.attrs.negative_slope == 0:
        recipe = _rectifier(dnnl, op.reads[0].size)
    else:
        p, run = eltwise(dnnl, op.reads[0].size, d.RELU, op.attrs.negative_slope)
        recipe = plain(lambda r, w, _: [p.bind({d.SRC: (run, address(r[0])), d.DST: (run, address(w[0]))})])
    if len(op.writes) == 1:
        return [recipe]
    return [plain(lambda reads, writes, ws: [*recipe.bind(reads, writes, ws), *_signs(*writes)])]


def _signs(y: np.ndarray, mask: np.ndarray) -> list[Call]:
    """Steps of mask = y > 0. That is x > 0 if the slope is not negative; x itself may be overwritten by y."""
    zero = np.float32(0)
    return [partial(np.greater, a, zero, out=m) for a, m in blocks(flat(y), flat(mask).view(bool))]


def _rectifier(dnnl: d.Dnnl, size: int) -> Recipe:
    """The recipe of max(x - x, x). The library's own ReLU turns NaN and -inf into 0. Here x - x is NaN for these, so no
    such x is lost."""
    run = dnnl.desc((size,))
    p = dnnl.best("binary", d.SUBTRACT, run, run, run, dnnl.attributes([(d.MAXIMUM, run)]))

    def bind(reads, writes, _):
        x, y = ((run, address(a)) for a in (reads[0], writes[0]))
        return [p.bind({d.SRC: x, d.SRC_1: x, d.post_op(0): x, d.DST: y})]

    return plain(bind)


def relu_backward(dnnl: d.Dnnl, op: Op) -> list[Recipe]:
    """One recipe for y dy -> dx (y has x's sign), x y dy -> dx, or mask dy -> dx."""
    saved = op.attrs.saved
    if saved == "mask":
        return [_masked(dnnl, op) if op.attrs.negative_slope == 0 else _masked_slope(op)]
    algorithm, data = (d.RELU_FROM_DST, d.DST) if saved == "y" else (d.RELU, d.SRC)
    slope = op.attrs.negative_slope
    hint, run = eltwise(dnnl, op.reads[0].size, algorithm, slope)
    p = dnnl.best("eltwise_backward", algorithm, run, run, run, _f(slope), _f(0), hint.pd, dnnl.attr)

    def bind(reads, writes, _):
        return [p.bind({
            data: (run, address(reads[0])),
            d.DIFF_DST: (run, address(reads[-1])),
            d.DIFF_SRC: (run, address(writes[0])),
        })]  # fmt: skip

    return [plain(bind)]


def _masked(dnnl: d.Dnnl, op: Op) -> Recipe:
    """The recipe for mask dy -> dx = dy * mask. For a dy that is not finite it gives the same as the other kernels."""
    size = op.writes[0].size
    run, ones = dnnl.desc((size,)), dnnl.desc((size,), dtype="uint8")
    p = dnnl.best("binary", d.MULTIPLY, run, ones, run, dnnl.attr)

    def bind(reads, writes, _):
        mask, dy = (address(a) for a in reads)
        return [p.bind({d.SRC: (run, dy), d.SRC_1: (ones, mask), d.DST: (run, address(writes[0]))})]

    return plain(bind)


def _masked_slope(op: Op) -> Recipe:
    """The recipe for mask dy -> dx: dy where the mask is set, slope * dy elsewhere."""
    scratch = Scratch()
    piece = scratch.take(min(BLOCK, op.writes[0].size) * 4)
    slope = np.float32(op.attrs.negative_slope)

    def bind(reads, writes, workspace):
        steps: list[Call] = []
        for mask, dy, dx in blocks(flat(reads[0]).view(bool), flat(reads[1]), flat(writes[0])):
            term = piece.array(workspace)[: dx.size]
            steps += [
                partial(np.multiply, dy, slope, out=term),
                partial(np.copyto, term, dy, where=mask),
                partial(np.copyto, dx, term),
            ]
        return steps

    return scratch.recipe("numpy", bind)


KINDS = {"relu.forward": relu_forward, "relu.backward": relu_backward}
