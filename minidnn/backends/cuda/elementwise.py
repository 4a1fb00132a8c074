"""Kernels that treat each element by itself (kernels/elementwise.cu): sums, products and maxima of tensors of one
shape, and copies. All permit the output on the bytes of any input, with the same result as apart."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from minidnn.backends.cuda.recipe import Argument, Launch, Pointer, Read, Recipe, Scratch, Write, by_fours, plain
from minidnn.program import Op

AT_ONCE = 4  # operands of one pass of an Eltwise


def _launch(op: Op, kernel: str, *arguments: Argument) -> Launch:
    return by_fours("elementwise", kernel, op.writes[0].size, *arguments)


def add(op: Op) -> list[Recipe]:
    """a b -> c"""
    return [plain(_launch(op, "add", Read(0), Read(1), Write(0)))]


def cast(op: Op) -> list[Recipe]:
    """x (scale) -> y: x or y is float32. Only an x in float32 has a scale, which is float32 too."""
    if len(op.reads) > 1:
        return [plain(_launch(op, "cast_scaled", Read(0), Read(1), Write(0)))]
    return [plain(_launch(op, "cast_to" if op.reads[0].dtype == "float32" else "cast_from", Read(0), Write(0)))]


def copy(op: Op) -> list[Recipe]:
    """x -> y"""
    return [plain(_launch(op, "copy", Read(0), Write(0)))]


def eltwise_forward(op: Op) -> list[Recipe]:
    """x1 .. xn -> y (which)"""
    a = op.attrs
    if a.operation == "MAX":
        return [_maximum(op)]
    return [_folded(op, "sum", a.coeff) if a.operation == "SUM" else _folded(op, "product")]


def eltwise_backward(op: Op) -> list[Recipe]:
    """SUM: dy; PROD: the other bottoms and dy; MAX: which dy -> dx"""
    a = op.attrs
    if a.operation == "SUM":
        return [plain(_launch(op, "multiply", Read(0), Write(0), np.float32(a.coeff[a.index])))]
    if a.operation == "MAX":
        return [plain(_launch(op, "choose", Read(0), Read(1), Write(0), np.int32(a.index)))]
    if len(op.reads) == 1:  # of a product of one
        return copy(op)
    return [_folded(op, "product")]


def _passes(count: int) -> list[tuple[int, int]]:
    """Ranges of the operands that each pass adds. All passes but the first also read the result so far."""
    ranges, start = [], 0
    while start < count:
        end = min(count, start + (AT_ONCE if start == 0 else AT_ONCE - 1))
        ranges.append((start, end))
        start = end
    return ranges


def _filled(values: Sequence[Argument], fill: Argument) -> tuple[Argument, ...]:
    return (*values, *(fill,) * (AT_ONCE - len(values)))


def _folded(op: Op, kernel: str, coefficients: Sequence[float] = ()) -> Recipe:
    """All operands, pass after pass, by the kernels `sum` (with a coefficient for each operand) or `product`.

    The result so far lies in the workspace, not in y: y may have the bytes of an operand that a later pass reads."""
    scratch, ranges = Scratch(), _passes(len(op.reads))
    partial: Pointer = scratch.take(op.writes[0].nbytes) if len(ranges) > 1 else Write(0)
    launches = []
    for start, end in ranges:
        xs: list[Argument] = [*([partial] if start else []), *(Read(i) for i in range(start, end))]
        factors = [*([1.0] if start else []), *coefficients[start:end]] if coefficients else []
        numbers = _filled([np.float32(c) for c in factors], np.float32(0)) if coefficients else ()
        y = Write(0) if end == len(op.reads) else partial
        launches.append(_launch(op, f"{kernel}_{len(xs)}", *_filled(xs, xs[0]), *numbers, y))
    return scratch.recipe("default", *launches)


def _maximum(op: Op) -> Recipe:
    """Pass after pass likewise. If the op writes `which`, the index so far lies in the workspace, too."""
    scratch, size = Scratch(), op.writes[0].size
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
        launches.append(_launch(op, kernel, *arguments, np.int32(start)))
    return scratch.recipe("default", *launches)


KINDS = {
    "identity.forward": copy,
    "cast.forward": cast,
    "cast.backward": cast,
    "eltwise.forward": eltwise_forward,
    "eltwise.backward": eltwise_backward,
    "gradient.add": add,
}
