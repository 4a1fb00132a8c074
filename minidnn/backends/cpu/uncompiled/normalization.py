"""BatchNorm by oneDNN, if channels are innermost; else there is no recipe."""

from __future__ import annotations

import ctypes
from functools import partial

import numpy as np

from minidnn.backends.cpu.layout import address
from minidnn.backends.cpu.onednn import dnnl as d
from minidnn.backends.cpu.onednn.normalization import average
from minidnn.backends.cpu.recipe import Recipe, Scratch
from minidnn.backends.layout import channels_last, four, strides
from minidnn.program import Op, Tensor

_f = ctypes.c_float


class _BatchNorm:
    """oneDNN's BatchNorm of one shape: its primitives, and its arguments by name."""

    def __init__(self, dnnl: d.Dnnl, x: Tensor, eps: float) -> None:
        shape = four(x.shape)
        self.dnnl = dnnl
        self.x, self.c = dnnl.desc(shape, strides(shape)), dnnl.desc((shape[1],))
        self.eps = _f(eps)

    def forward(self, prop: int, flags: int) -> d.Primitive:
        return self.dnnl.best(
            "batch_normalization_forward", prop, self.x, self.x, self.eps, ctypes.c_uint(flags), self.dnnl.attr
        )

    def backward(self) -> d.Primitive:
        hint = self.forward(d.TRAINING, 0).pd
        return self.dnnl.best(
            "batch_normalization_backward", d.BACKWARD, self.x, self.x, self.x, self.eps, ctypes.c_uint(0),
            hint, self.dnnl.attr,
        )  # fmt: skip

    def arguments(self, **places: np.ndarray) -> dict[int, tuple[d.Desc, int]]:
        which = {"x": d.SRC, "y": d.DST, "mean": d.MEAN, "variance": d.VARIANCE, "dy": d.DIFF_DST, "dx": d.DIFF_SRC}
        return {
            which[name]: (self.c if name in ("mean", "variance") else self.x, address(array))
            for name, array in places.items()
        }


def batch_norm_forward(dnnl: d.Dnnl, op: Op) -> list[Recipe]:
    """One recipe for x -> y mean variance."""
    if not channels_last(op.reads[0].shape):
        return []
    g = _BatchNorm(dnnl, op.reads[0], op.attrs.eps)
    p = g.forward(d.TRAINING, 0)
    scratch = Scratch()
    pad = scratch.take(p.scratchpad)

    def bind(reads, writes, ws):
        y, mean, variance = writes
        return [p.bind(g.arguments(x=reads[0], y=y, mean=mean, variance=variance), pad.address(ws))]

    return [scratch.recipe("nhwc", bind)]


def batch_norm_backward(dnnl: d.Dnnl, op: Op) -> list[Recipe]:
    """One recipe for x mean variance dy -> dx."""
    if not channels_last(op.reads[0].shape):
        return []
    g = _BatchNorm(dnnl, op.reads[0], op.attrs.eps)
    p = g.backward()
    scratch = Scratch()
    pad = scratch.take(p.scratchpad)

    def bind(reads, writes, ws):
        x, mean, variance, dy = reads
        arguments = g.arguments(x=x, mean=mean, variance=variance, dy=dy, dx=writes[0])
        return [p.bind(arguments, pad.address(ws))]

    return [scratch.recipe("nhwc", bind)]


def batch_norm_inference(dnnl: d.Dnnl, op: Op) -> list[Recipe]:
    """One recipe for x mean_sum variance_sum factor -> y."""
    if not channels_last(op.reads[0].shape):
        return []
    g = _BatchNorm(dnnl, op.reads[0], op.attrs.eps)
    p = g.forward(d.INFERENCE, d.GLOBAL_STATISTICS)
    scratch = Scratch()
    pad, *pieces = scratch.take(p.scratchpad), *(scratch.take(op.reads[1].nbytes) for _ in range(2))

    def bind(reads, writes, ws):
        x, mean_sum, variance_sum, factor = reads
        mean, variance = (piece.array(ws) for piece in pieces)
        return [
            partial(average, mean_sum, factor, mean),
            partial(average, variance_sum, factor, variance),
            p.bind(g.arguments(x=x, y=writes[0], mean=mean, variance=variance), pad.address(ws)),
        ]

    return [scratch.recipe("nhwc", bind)]


KINDS = {
    "batch_norm.forward": batch_norm_forward,
    "batch_norm.backward": batch_norm_backward,
    "batch_norm.inference": batch_norm_inference,
}
