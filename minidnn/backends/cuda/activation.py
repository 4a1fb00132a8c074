"""Functions of single elements: ReLU and PReLU (kernels/relu.cu), and those of kernels/functions.cuh
(kernels/activation.cu). y may have the bytes of x, and dx those of dy."""

from __future__ import annotations

import math

import numpy as np

from minidnn.backends.cuda.recipe import Launch, Read, Recipe, Write, by_fours, int32, over, plain
from minidnn.backends.cuda.reduction import sums_by_channel
from minidnn.backends.layout import channels_last
from minidnn.program import Op

NUMBERS = 3  # most numbers of a function


def relu_forward(op: Op) -> list[Recipe]:
    """One recipe for x -> y (mask)."""
    slope, n = np.float32(op.attrs.negative_slope), op.writes[0].size
    if len(op.writes) > 1:
        return [plain(by_fours("relu", "relu_mask", n, Read(0), Write(0), Write(1), slope))]
    return [plain(by_fours("relu", "relu", n, Read(0), Write(0), slope))]


def relu_backward(op: Op) -> list[Recipe]:
    """One recipe for y dy -> dx, x y dy -> dx, or mask dy -> dx."""
    kernel = "relu_backward_mask" if op.attrs.saved == "mask" else "relu_backward"
    ends = Read(0), Read(len(op.reads) - 1), Write(0)
    return [plain(by_fours("relu", kernel, op.writes[0].size, *ends, np.float32(op.attrs.negative_slope)))]


def unary_forward(op: Op) -> list[Recipe]:
    """One recipe for x -> y."""
    return [_function(op, "forward", Read(0), Write(0))]


def unary_backward(op: Op) -> list[Recipe]:
    """One recipe for (saved) dy -> dx, where `saved` is x or y."""
    return [_function(op, "backward", Read(0), Read(len(op.reads) - 1), Write(0))]


def _function(op: Op, verb: str, *tensors: Read | Write) -> Recipe:
    numbers = [*op.attrs.numbers, *[0.0] * NUMBERS][:NUMBERS]
    arguments = *tensors, *map(np.float32, numbers)
    return plain(by_fours("activation", f"{op.attrs.function}_{verb}", op.writes[0].size, *arguments))


def prelu(op: Op) -> list[Recipe]:
    """One recipe for x slope -> y, or for x slope dy -> dx. The slope is (C,), or (1,) for all channels."""
    shape, size, c = op.reads[0].shape, op.reads[0].size, op.reads[1].size
    tensors = Read(0), Read(2 if len(op.reads) > 2 else 0), Read(1), Write(0)
    if c == 1:
        return [plain(by_fours("relu", "prelu_shared", size, *tensors))]
    inner = 1 if channels_last(shape) else math.prod(shape[2:])
    if inner == 1 and c % 4 == 0:
        n4 = size // 4
        return [plain(Launch("relu", "prelu_4", (*tensors, np.int64(n4), int32(c // 4)), over(n4)))]
    numbers = np.int64(size), int32(inner), int32(c)
    return [plain(Launch("relu", "prelu_1", (*tensors, *numbers), over(size)))]


def prelu_backward_filter(op: Op) -> list[Recipe]:
    """One recipe for x dy (N, C, ...) -> dslope (C,), or (1,): then all elements belong to one channel."""
    x = op.reads[0]
    shape = (x.size, 1) if op.writes[0].size == 1 else x.shape
    return sums_by_channel(op, "sum_falling", shape, [Read(0), Read(1)])


KINDS = {
    "relu.forward": relu_forward,
    "relu.backward": relu_backward,
    "unary.forward": unary_forward,
    "unary.backward": unary_backward,
    "prelu.forward": prelu,
    "prelu.backward_data": prelu,
    "prelu.backward_filter": prelu_backward_filter,
}
