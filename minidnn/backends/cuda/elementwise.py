"""What does the same to every element: ReLU, sums, products, copies (kernels/elementwise.cu, operands.cu, scale.cu).

All of them permit the output on the bytes of any input, with the same result as apart.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from minidnn.backends.cuda.recipe import Argument, Launch, Pointer, Read, Recipe, Scratch, Write, over, plain
from minidnn.backends.layout import channels_last
from minidnn.program import Op

AT_ONCE = 4  # operands of one pass of an Eltwise


def _map(source: str, kernel: str, size: int, *arguments: Argument) -> Launch:
    """A kernel that moves four elements at a time; its last parameter is their number."""
    return Launch(source, kernel, (*arguments, np.int64(size)), over(-(-size // 4)))


def _of(op: Op, kernel: str, *arguments: Argument) -> list[Recipe]:
    return [plain(_map("elementwise", kernel, op.writes[0].size, *arguments))]


def relu_forward(op: Op) -> list[Recipe]:
    """x -> y (mask)"""
    slope = np.float32(op.attrs.negative_slope)
    if len(op.writes) > 1:
        return _of(op, "relu_mask", Read(0), Write(0), Write(1), slope)
    return _of(op, "relu", Read(0), Write(0), slope)


def relu_backward(op: Op) -> list[Recipe]:
    """y dy, x y dy, or mask dy -> dx"""
    kernel = "relu_backward_mask" if op.attrs.saved == "mask" else "relu_backward"
    return _of(op, kernel, Read(0), Read(len(op.reads) - 1), Write(0), np.float32(op.attrs.negative_slope))


def add(op: Op) -> list[Recipe]:
    """a b -> c"""
    return _of(op, "add", Read(0), Read(1), Write(0))


def accumulate(op: Op) -> list[Recipe]:
    """total dw -> total, which is float32"""
    return _of(op, "accumulate", Read(0), Read(1), Write(0))


def cast(op: Op) -> list[Recipe]:
    """x (scale) -> y: x or y is float32; scaled, it is x"""
    if len(op.reads) > 1:
        return _of(op, "cast_scaled", Read(0), Read(1), Write(0))
    return _of(op, "cast_to" if op.reads[0].dtype == "float32" else "cast_from", Read(0), Write(0))


def clear(op: Op) -> list[Recipe]:
    return _of(op, "clear", Write(0))


def copy(op: Op) -> list[Recipe]:
    return _of(op, "copy", Read(0), Write(0))


def eltwise_forward(op: Op) -> list[Recipe]:
    """x1 .. xn -> y (which)"""
    a = op.attrs
    if a.operation == "MAX":
        return [_maximum(op)]
    return [_sum(op)] if a.operation == "SUM" else [_product(op)]


def eltwise_backward(op: Op) -> list[Recipe]:
    """SUM: dy; PROD: the other bottoms and dy; MAX: which dy -> dx"""
    a = op.attrs
    if a.operation == "SUM":
        return _of(op, "multiply", Read(0), Write(0), np.float32(a.coeff[a.index]))
    if a.operation == "MAX":
        return _of(op, "choose", Read(0), Read(1), Write(0), np.int32(a.index))
    if len(op.reads) == 1:  # of a product of one
        return copy(op)
    return [_product(op)]


def _passes(count: int) -> list[tuple[int, int]]:
    """Which operands each pass adds: ranges. All passes but the first also read the result so far."""
    ranges, start = [], 0
    while start < count:
        end = min(count, start + (AT_ONCE if start == 0 else AT_ONCE - 1))
        ranges.append((start, end))
        start = end
    return ranges


def _filled(values: Sequence[Argument], fill: Argument) -> tuple[Argument, ...]:
    return (*values, *(fill,) * (AT_ONCE - len(values)))


def _sum(op: Op) -> Recipe:
    """The result so far lies in the workspace, not in y, whose bytes may be those of an operand yet to come."""
    size, scratch = op.writes[0].size, Scratch()
    ranges = _passes(len(op.reads))
    partial: Pointer = scratch.take(op.writes[0].nbytes) if len(ranges) > 1 else Write(0)
    launches = []
    for start, end in ranges:
        xs: list[Argument] = [*([partial] if start else []), *(Read(i) for i in range(start, end))]
        coeff = [*([1.0] if start else []), *op.attrs.coeff[start:end]]
        cs = _filled([np.float32(c) for c in coeff], np.float32(0))
        y = Write(0) if end == len(op.reads) else partial
        launches.append(_map("operands", f"sum_{len(xs)}", size, *_filled(xs, xs[0]), *cs, y))
    return scratch.recipe("default", *launches)


def _product(op: Op) -> Recipe:
    size, scratch = op.writes[0].size, Scratch()
    ranges = _passes(len(op.reads))
    partial: Pointer = scratch.take(op.writes[0].nbytes) if len(ranges) > 1 else Write(0)
    launches = []
    for start, end in ranges:
        xs: list[Argument] = [*([partial] if start else []), *(Read(i) for i in range(start, end))]
        y = Write(0) if end == len(op.reads) else partial
        launches.append(_map("operands", f"product_{len(xs)}", size, *_filled(xs, xs[0]), y))
    return scratch.recipe("default", *launches)


def _maximum(op: Op) -> Recipe:
    size, scratch = op.writes[0].size, Scratch()
    ranges, which = _passes(len(op.reads)), len(op.writes) > 1
    several = len(ranges) > 1
    best: Pointer = scratch.take(op.writes[0].nbytes) if several else Write(0)
    index: Pointer = scratch.take(size) if several and which else Write(1)
    launches = []
    for start, end in ranges:
        last = end == len(op.reads)
        xs: list[Argument] = [*([best] if start else []), *(Read(i) for i in range(start, end))]
        arguments: list[Argument] = [*_filled(xs, xs[0]), Write(0) if last else best]
        if which:
            arguments += [Write(1) if last else index, index]
        kernel = f"maximum_which_{len(xs)}" if which else f"maximum_{len(xs)}"
        launches.append(_map("operands", kernel, size, *arguments, np.int32(start)))
    return scratch.recipe("default", *launches)


def scale_forward(op: Op) -> list[Recipe]:
    """x gamma (beta) -> y = x * gamma (+ beta), by channel"""
    return [_by_channel(op.reads[0].shape, [Read(i) for i in range(len(op.reads))])]


def scale_backward_data(op: Op) -> list[Recipe]:
    """gamma dy -> dx = dy * gamma"""
    return [_by_channel(op.reads[1].shape, [Read(1), Read(0)])]


def _by_channel(shape: tuple[int, ...], reads: list[Argument]) -> Recipe:
    size, c = math.prod(shape), shape[1]
    name = "scale_shift" if len(reads) == 3 else "scale"
    inner = 1 if channels_last(shape) else math.prod(shape[2:])
    if inner == 1 and c % 4 == 0:
        n4 = size // 4
        return plain(Launch("scale", f"{name}_4", (*reads, Write(0), np.int64(n4), np.int32(c // 4)), over(n4)))
    arguments = (*reads, Write(0), np.int64(size), np.int32(inner), np.int32(c))
    return plain(Launch("scale", f"{name}_1", arguments, over(size)))


KINDS = {
    "relu.forward": relu_forward,
    "relu.backward": relu_backward,
    "gradient.add": add,
    "gradient.accumulate": accumulate,
    "gradient.clear": clear,
    "identity.forward": copy,
    "cast.forward": cast,
    "cast.backward": cast,
    "eltwise.forward": eltwise_forward,
    "eltwise.backward": eltwise_backward,
    "scale.forward": scale_forward,
    "scale.backward_data": scale_backward_data,
}
