"""LRN across channels, by oneDNN.

Backward uses x and dy, not y. Chunk by chunk, it repeats the library's forward, which fills the workspace that the
library's backward reads.
"""

from __future__ import annotations

import ctypes

from minidnn.backends.cpu.layout import address
from minidnn.backends.cpu.onednn import dnnl as d
from minidnn.backends.cpu.recipe import Call, Recipe, Scratch
from minidnn.backends.layout import strides
from minidnn.program import Op

_f = ctypes.c_float
CHUNK = 1 << 18  # elements of x that backward takes at a time


def lrn_forward(dnnl: d.Dnnl, op: Op) -> list[Recipe]:
    """One recipe for x -> y; none for LRN within a channel, or if x is not 4-D."""
    (x,), a = op.reads, op.attrs
    if a.region != "ACROSS_CHANNELS" or len(x.shape) != 4:
        return []
    desc = dnnl.desc(x.shape, strides(x.shape))
    p = dnnl.best("lrn_forward", d.INFERENCE, d.LRN_ACROSS, desc, desc, *_lrn(a), dnnl.attr)
    scratch = Scratch()
    pad = scratch.take(p.scratchpad)

    def bind(reads, writes, ws):
        arguments = {d.SRC: (desc, address(reads[0])), d.DST: (desc, address(writes[0]))}
        return [p.bind(arguments, pad.address(ws))]

    return [scratch.recipe("nhwc", bind)]


def _lrn(a) -> tuple:
    return ctypes.c_int64(a.size), _f(a.alpha), _f(a.beta), _f(a.k)


def lrn_backward(dnnl: d.Dnnl, op: Op) -> list[Recipe]:
    """One recipe for x (y) dy -> dx; none as in `lrn_forward`."""
    x, a = op.reads[0], op.attrs
    if a.region != "ACROSS_CHANNELS" or len(x.shape) != 4:
        return []
    n, c, h, w = x.shape
    positions = n * h * w
    chunk = min(positions, max(1, CHUNK // c))
    lengths = {chunk, positions % chunk} - {0}
    passes = {length: _LrnChunk(dnnl, a, c, length) for length in lengths}
    scratch = Scratch()
    y, kept, pad = (scratch.take(max(getattr(p, need) for p in passes.values())) for need in ("y", "kept", "pad"))

    def bind(reads, writes, ws):
        given, dy, dx = address(reads[0]), address(reads[-1]), address(writes[0])
        steps: list[Call] = []
        for start in range(0, positions, chunk):
            length, at = min(chunk, positions - start), start * c * 4
            places = (given + at, dy + at, dx + at, y.address(ws), kept.address(ws), pad.address(ws))
            steps += passes[length].bind(*places)
        return steps

    return [scratch.recipe("nhwc", bind)]


class _LrnChunk:
    """oneDNN's forward and backward over `length` positions; the sizes of their scratch are in bytes."""

    def __init__(self, dnnl: d.Dnnl, a, c: int, length: int) -> None:
        shape = (1, c, length, 1)
        self.desc = x = dnnl.desc(shape, strides(shape))
        self.forward = f = dnnl.best("lrn_forward", d.TRAINING, d.LRN_ACROSS, x, x, *_lrn(a), dnnl.attr)
        self.backward = b = dnnl.best("lrn_backward", d.LRN_ACROSS, x, x, x, *_lrn(a), f.pd, dnnl.attr)
        self.y, self.kept, self.pad = x.nbytes, b.desc(d.WORKSPACE).nbytes, max(f.scratchpad, b.scratchpad)

    def bind(self, x: int, dy: int, dx: int, y: int, kept: int, pad: int) -> list[Call]:
        workspace = {d.WORKSPACE: (self.backward.desc(d.WORKSPACE), kept)} if self.kept else {}
        once = {d.SRC: (self.desc, x), d.DST: (self.desc, y), **workspace}
        back = {d.SRC: (self.desc, x), d.DIFF_DST: (self.desc, dy), d.DIFF_SRC: (self.desc, dx), **workspace}
        # The slow implementation has no workspace, so then forward need not be repeated.
        return ([self.forward.bind(once, pad)] if self.kept else []) + [self.backward.bind(back, pad)]


KINDS = {"lrn.forward": lrn_forward, "lrn.backward": lrn_backward}
