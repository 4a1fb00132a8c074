"""Element-wise kernels (kernels/elementwise.cu): sums, products and maxima of tensors of one shape, and copies.

An output may have the bytes of any input: the result is the same as with bytes of its own."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from minidnn.backends.cuda.multi_tensor import batches, by_pieces, places
from minidnn.backends.cuda.recipe import (
    Argument,
    Launch,
    Pointer,
    Read,
    Recipe,
    Scratch,
    Write,
    by_fours,
    int32,
    over,
    plain,
)
from minidnn.program import Op

AT_ONCE = 4  # most operands of one pass of an Eltwise
CASTS = 128  # most tensors that one launch casts


def _launch(op: Op, kernel: str, *arguments: Argument) -> Launch:
    return by_fours("elementwise", kernel, op.writes[0].size, *arguments)


def add(op: Op) -> list[Recipe]:
    """One recipe for a b -> c = a + b."""
    return [plain(_launch(op, "add", Read(0), Read(1), Write(0)))]


def fill(op: Op) -> list[Recipe]:
    """One recipe for (scale) -> dx: the value in each element, times the scale if there is one."""
    scale: tuple[Argument, ...] = (Read(0),) if op.reads else ()
    kernel = "fill_scaled" if op.reads else "fill"
    return [plain(_launch(op, kernel, *scale, Write(0), np.float32(op.attrs.value)))]


def add_slice(op: Op) -> list[Recipe]:
    """One recipe for a b -> c = a + b, where a is a slice of images with more channels than b. c may have b's bytes."""
    (a, b), start, n = op.reads, op.attrs.start, op.writes[0].size
    width, pitch = b.shape[1], a.shape[1]
    four = all(k % 4 == 0 for k in (width, pitch, start))
    arguments = Read(0, start * a.itemsize), Read(1), Write(0), np.int64(n), int32(width), int32(pitch)
    return [plain(Launch("elementwise", f"add_slice_{4 if four else 1}", arguments, over(-(-n // 4))))]


def add_all(op: Op) -> list[Recipe]:
    """One recipe for dx1 .. dxn -> dx, or for y dx1 .. dxn -> dx, the sum where y > 0, else 0. n is at most AT_ONCE."""
    relu = op.kind.endswith("_relu")
    kernel = f"add_relu_{len(op.reads) - 1}" if relu else f"add_{len(op.reads)}"
    return [plain(_launch(op, kernel, *map(Read, range(len(op.reads))), Write(0)))]


def cast(op: Op) -> list[Recipe]:
    """One recipe for x (scale) -> y, where x or y is float32. There is a scale, in float32, only if x is float32."""
    if len(op.reads) > 1:
        return [plain(_launch(op, "cast_scaled", Read(0), Read(1), Write(0)))]
    return (
        cast_multi_tensor(op)
        if op.reads[0].dtype == "float32"
        else [plain(_launch(op, "cast_from", Read(0), Write(0)))]
    )


def cast_multi_tensor(op: Op) -> list[Recipe]:
    """One recipe for x1 .. xn -> y1 .. yn, where each x is float32."""
    read, write = places(op)
    launches = []
    for part in batches([(one.reads[0], one.writes[0]) for one in op.members], CASTS):
        columns = tuple(read[x] for x, _ in part), tuple(write[y] for _, y in part)
        launches.append(by_pieces("elementwise", "cast_to", CASTS, [x for x, _ in part], columns))
    return [plain(*launches)]


def copy(op: Op) -> list[Recipe]:
    """One recipe for x -> y = x."""
    return [plain(_launch(op, "copy", Read(0), Write(0)))]


def eltwise_forward(op: Op) -> list[Recipe]:
    """One recipe for x1 .. xn -> y (which), by the op's SUM, PROD or MAX."""
    a = op.attrs
    if a.operation == "MAX":
        return [_maximum(op)]
    return [_folded(op, "sum", a.coeff) if a.operation == "SUM" else _folded(op, "product")]


def eltwise_forward_relu(op: Op) -> list[Recipe]:
    """One recipe for x1 .. xn -> y: the sum with coefficients, then the ReLU."""
    return [_folded(op, "sum", op.attrs.coeff, "_relu")]


def eltwise_backward(op: Op) -> list[Recipe]:
    """One recipe for the gradient dx of one bottom. It reads dy (SUM), the other bottoms and dy (PROD), or which and dy
    (MAX)."""
    a = op.attrs
    if a.operation == "SUM":
        return [plain(_launch(op, "multiply", Read(0), Write(0), np.float32(a.coeff[a.index])))]
    if a.operation == "MAX":
        return [plain(_launch(op, "choose", Read(0), Read(1), Write(0), int32(a.index)))]
    if len(op.reads) == 1:  # a product of one bottom
        return copy(op)
    return [_folded(op, "product")]


def _passes(count: int) -> list[tuple[int, int]]:
    """The operands, as ranges, that each pass takes. All passes but the first also read the result so far."""
    ranges, start = [], 0
    while start < count:
        end = min(count, start + (AT_ONCE if start == 0 else AT_ONCE - 1))
        ranges.append((start, end))
        start = end
    return ranges


def _filled(values: Sequence[Argument], fill: Argument) -> tuple[Argument, ...]:
    return (*values, *(fill,) * (AT_ONCE - len(values)))


def _folded(op: Op, kernel: str, coefficients: Sequence[float] = (), last: str = "") -> Recipe:
    """The recipe for all operands, pass after pass, by the kernels `sum` (with a coefficient for each) or `product`.
    `last` is appended to the last pass's kernel.

    The result so far is kept in the workspace, because y may have the bytes of an operand that a later pass reads."""
    scratch, ranges = Scratch(), _passes(len(op.reads))
    partial: Pointer = scratch.take(op.writes[0].nbytes) if len(ranges) > 1 else Write(0)
    launches = []
    for start, end in ranges:
        xs: list[Argument] = [*([partial] if start else []), *(Read(i) for i in range(start, end))]
        factors = [*([1.0] if start else []), *coefficients[start:end]] if coefficients else []
        numbers = _filled([np.float32(c) for c in factors], np.float32(0)) if coefficients else ()
        name, y = (f"{kernel}{last}", Write(0)) if end == len(op.reads) else (kernel, partial)
        launches.append(_launch(op, f"{name}_{len(xs)}", *_filled(xs, xs[0]), *numbers, y))
    return scratch.recipe("default", *launches)


def _maximum(op: Op) -> Recipe:
    """The recipe for the maximum, in passes like `_folded`. If the op writes `which`, the index so far is in the
    workspace, too."""
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
        launches.append(_launch(op, kernel, *arguments, int32(start)))
    return scratch.recipe("default", *launches)


KINDS = {
    "identity.forward": copy,
    "cast.forward": cast,
    "cast.forward_multi_tensor": cast_multi_tensor,
    "cast.backward": cast,
    "eltwise.forward": eltwise_forward,
    "eltwise.forward_relu": eltwise_forward_relu,
    "eltwise.backward": eltwise_backward,
    "gradient.add": add,
    "gradient.add_slice": add_slice,
    "gradient.fill": fill,
    "gradient.sum": add_all,
    "gradient.sum_relu": add_all,
}
