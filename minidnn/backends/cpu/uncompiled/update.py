"""SGD and gradient clipping by NumPy, over blocks that stay in cache, in Caffe's order of operations."""

from __future__ import annotations

import math

import numpy as np

from minidnn.backends.cpu.layout import flat
from minidnn.backends.cpu.onednn import dnnl as d
from minidnn.backends.cpu.recipe import BLOCK, Recipe, Scratch, blocks
from minidnn.program import Op


def sgd_update(dnnl: d.Dnnl, op: Op) -> list[Recipe]:
    """One recipe for w dw rate objective (h) (clip) -> w (h), in place. Nothing is changed if the objective or the
    clipping factor is not finite."""
    a = op.attrs
    has_momentum = a.momentum != 0
    size = min(BLOCK, op.reads[0].size) * 4
    scratch = Scratch()
    pieces = scratch.take(size), scratch.take(size)
    decay, momentum = np.float32(a.decay), np.float32(a.momentum)
    lasso = a.regularization == "L1"

    def bind(reads, writes, ws):
        w, dw, rate, objective, *rest = (flat(r) for r in reads)
        clip = rest[-1] if a.clipped else None
        runs = blocks(w, dw, *rest[: 1 if has_momentum else 0])
        g_all, t_all = (piece.array(ws) for piece in pieces)

        def call() -> None:
            if not math.isfinite(objective[0]) or (clip is not None and not math.isfinite(clip[0])):
                return
            scale = np.float32(a.scale if clip is None else clip[0] * np.float32(a.scale))
            step = np.float32(rate[0] * np.float32(a.lr_mult))
            for w, dw, *history in runs:
                g, t = g_all[: w.size], t_all[: w.size]
                np.multiply(dw, scale, out=g)
                if decay:
                    if lasso:
                        np.sign(w, out=t)
                        np.multiply(t, decay, out=t)
                    else:
                        np.multiply(w, decay, out=t)
                    np.add(g, t, out=g)
                np.multiply(g, step, out=g)
                for h in history:
                    np.multiply(h, momentum, out=h)
                    np.add(h, g, out=h)
                    g = h
                np.subtract(w, g, out=w)

        return [call]

    return [scratch.recipe("numpy", bind)]


def gradient_clip(dnnl: d.Dnnl, op: Op) -> list[Recipe]:
    """One recipe for dw1 .. dwn -> factor: the factor, at most 1, that scales their common L2 norm down to the
    threshold."""
    threshold = op.attrs.threshold
    scratch = Scratch()
    piece = scratch.take(min(BLOCK, max(t.size for t in op.reads)) * 4)

    def bind(reads, writes, ws):
        runs = [run for dw in reads for (run,) in blocks(flat(dw))]
        square, result = piece.array(ws), flat(writes[0])

        def call() -> None:
            total = 0.0
            for run in runs:
                np.multiply(run, run, out=square[: run.size])
                total += float(np.add.reduce(square[: run.size]))
            norm = math.sqrt(total)
            result[0] = threshold / norm if norm > threshold else 1.0

        return [call]

    return [scratch.recipe("numpy", bind)]


KINDS = {"sgd.update": sgd_update, "gradient.clip": gradient_clip}
