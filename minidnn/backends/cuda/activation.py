"""ReLU (kernels/activation.cu), in the order of memory. y may have the bytes of x, and dx those of dy."""

from __future__ import annotations

import numpy as np

from minidnn.backends.cuda.recipe import Read, Recipe, Write, by_fours, plain
from minidnn.program import Op


def relu_forward(op: Op) -> list[Recipe]:
    """One recipe for x -> y (mask)."""
    slope, n = np.float32(op.attrs.negative_slope), op.writes[0].size
    if len(op.writes) > 1:
        return [plain(by_fours("activation", "relu_mask", n, Read(0), Write(0), Write(1), slope))]
    return [plain(by_fours("activation", "relu", n, Read(0), Write(0), slope))]


def relu_backward(op: Op) -> list[Recipe]:
    """One recipe for y dy -> dx, x y dy -> dx, or mask dy -> dx."""
    kernel = "relu_backward_mask" if op.attrs.saved == "mask" else "relu_backward"
    ends = Read(0), Read(len(op.reads) - 1), Write(0)
    return [plain(by_fours("activation", kernel, op.writes[0].size, *ends, np.float32(op.attrs.negative_slope)))]


KINDS = {"relu.forward": relu_forward, "relu.backward": relu_backward}
