"""Dropout by NumPy: Philox's words, some blocks at a time in the workspace, then the mask in logical order.

The mask is a function of (seed, iteration, layer, position), so backward computes the same one again.
"""

from __future__ import annotations

import numpy as np

from minidnn.backends import philox
from minidnn.backends.cpu.layout import flat
from minidnn.backends.cpu.onednn import dnnl as d
from minidnn.backends.cpu.recipe import Recipe, Scratch
from minidnn.program import Op

AT_ONCE = 1 << 12  # Philox blocks at a time, so that the generator's scratch stays in cache


def dropout(dnnl: d.Dnnl, op: Op) -> list[Recipe]:
    """One recipe for x iteration -> y, the same forward and backward."""
    x, a = op.reads[0], op.attrs
    total = philox.blocks_of(x.size)
    at_once = min(total, AT_ONCE)
    scratch = Scratch()
    mask, count = scratch.take(total * 4), scratch.take(at_once * 8)
    work = scratch.take(philox.WORK_ROWS * at_once * 8)
    limit, scale = np.uint64(philox.threshold(a.ratio)), np.float32(1 / (1 - a.ratio))
    seed = a.seed & 0xFFFFFFFF, a.seed >> 32 & 0xFFFFFFFF

    def bind(reads, writes, ws):
        iteration, source, target = flat(reads[1]), flat(reads[0]), flat(writes[0])
        dropped = mask.array(ws, "bool").reshape(-1, 4)  # a row per block, in logical order
        where = dropped.reshape(-1)[: x.size].reshape(x.shape)
        numbers = count.array(ws, "uint64")
        state = work.array(ws, "uint64").reshape(philox.WORK_ROWS, at_once)

        def call() -> None:
            step = int(iteration[0])
            state[0].fill(1)
            state[0, 0] = 0
            np.add.accumulate(state[0], out=numbers)  # 0, 1, 2, ...
            for start in range(0, total, at_once):
                rows = dropped[start : start + at_once]
                part = state[:, : len(rows)]
                np.add(numbers[: len(rows)], np.uint64(start), out=part[0])
                part[1].fill(0)  # 32 bits count the blocks of up to 64 GiB of float32
                part[2].fill(step & 0xFFFFFFFF)
                part[3].fill(a.key & 0xFFFFFFFF)
                philox.rounds(part, seed)
                for word in range(4):
                    np.less(part[word], limit, out=rows[:, word])
            np.multiply(source, scale, out=target)
            np.copyto(writes[0], 0, where=where)

        return [call]

    return [scratch.recipe("numpy", bind)]


KINDS = {"dropout.forward": dropout, "dropout.backward": dropout}
