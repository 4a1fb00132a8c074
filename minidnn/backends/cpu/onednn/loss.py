"""Softmax by oneDNN, and the objective, which adds up the losses.

oneDNN's softmax clamps NaN away, so a run that has diverged would train on with a loss that looks right. So the scores
are checked first. If one is not finite, the reference's kernel, the definition of right, computes the whole op.

The check takes the largest and the smallest score by NumPy, at the speed of memory and without allocating. The
reference's kernel does allocate. But such a step is the last of a training, because its loss is not finite.
"""

from __future__ import annotations

import math
from functools import partial

import numpy as np

from minidnn.backends import reference
from minidnn.backends.cpu.layout import address, flat
from minidnn.backends.cpu.onednn import dnnl as d
from minidnn.backends.cpu.recipe import Call, Recipe, Scratch, plain
from minidnn.backends.layout import strides
from minidnn.program import Op, Tensor


def finite(run: np.ndarray) -> bool:
    """Whether all elements are finite. Also False if the largest less the smallest is too large for a float32."""
    with np.errstate(over="ignore", invalid="ignore"):
        return math.isfinite(np.maximum.reduce(run) - np.minimum.reduce(run))


def softmax_forward(dnnl: d.Dnnl, op: Op) -> list[Recipe]:
    """One recipe for x -> y."""
    scratch = Scratch()
    softmax = Softmax(dnnl, op.reads[0], op.attrs, scratch)
    return [scratch.recipe("onednn", lambda reads, writes, ws: [softmax.bind(reads[0], writes[0], ws)])]


class Softmax:
    """oneDNN's softmax for one shape, with the reference's kernel for scores that are not finite."""

    def __init__(self, dnnl: d.Dnnl, x: Tensor, attrs, scratch: Scratch) -> None:
        self.attrs, self.desc = attrs, dnnl.desc(x.shape, strides(x.shape))
        axis = attrs.axis % len(x.shape)
        self.p = dnnl.best("softmax_forward", d.INFERENCE, d.SOFTMAX, self.desc, self.desc, axis, dnnl.attr)
        self.pad = scratch.take(self.p.scratchpad)

    def bind(self, x: np.ndarray, y: np.ndarray, ws: np.ndarray) -> Call:
        """A call of oneDNN's kernel if all scores are finite, else of the reference's. The scores are checked before,
        because y may have their bytes."""
        ends = {d.SRC: (self.desc, address(x)), d.DST: (self.desc, address(y))}
        fast, scores = self.p.bind(ends, self.pad.address(ws)), flat(x)
        slow = partial(reference.KERNELS["softmax.forward"], self.attrs, [x], [y])

        def call() -> None:
            (fast if finite(scores) else slow)()

        return call


def softmax_backward(dnnl: d.Dnnl, op: Op) -> list[Recipe]:
    """One recipe for y dy -> dx."""
    scratch = Scratch()
    axis = op.attrs.axis % len(op.reads[0].shape)
    hint = Softmax(dnnl, op.reads[0], op.attrs, Scratch())
    desc = hint.desc
    p = dnnl.best("softmax_backward", d.SOFTMAX, desc, desc, desc, axis, hint.p.pd, dnnl.attr)
    pad = scratch.take(p.scratchpad)

    def bind(reads, writes, ws):
        y, dy = reads
        arguments = {
            d.DST: (desc, address(y)), d.DIFF_DST: (desc, address(dy)), d.DIFF_SRC: (desc, address(writes[0]))
        }  # fmt: skip
        return [p.bind(arguments, pad.address(ws))]

    return [scratch.recipe("onednn", bind)]


def objective_forward(dnnl: d.Dnnl, op: Op) -> list[Recipe]:
    """One recipe for losses -> objective, their weighted sum, added in the order of the net."""
    weights = op.attrs.weights

    def bind(reads, writes, _):
        losses, result = [flat(r) for r in reads], flat(writes[0])

        def call() -> None:
            result[0] = sum(float(loss[0]) * weight for loss, weight in zip(losses, weights, strict=True))

        return [call]

    return [plain(bind)]


KINDS = {
    "softmax.forward": softmax_forward,
    "softmax.backward": softmax_backward,
    "objective.forward": objective_forward,
}
