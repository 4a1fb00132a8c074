"""Pooling by our own kernels (kernels/pooling.cu). cuDNN's pooling rounds sizes down where Caffe rounds up, and its
backward needs x and y, where ours needs one byte per output.
"""

from __future__ import annotations

import math

import numpy as np

from minidnn.backends.cuda.recipe import (
    Argument,
    Launch,
    Read,
    Recipe,
    Scratch,
    Table,
    Write,
    divisor,
    int32,
    over,
    plain,
)
from minidnn.program import Op

ADDRESSABLE = 256  # most positions of a window whose index is a byte


def forward(op: Op) -> list[Recipe]:
    """One recipe for x -> y (index)."""
    (x,), (y, *index) = op.reads, op.writes
    name = "ave_forward" if op.attrs.method == "AVE" else "max_forward"
    if index:
        name += f"_{index[0].dtype}"
    arguments: list[Argument] = [Read(0), *(Write(i) for i in range(len(op.writes)))]
    return [plain(_launch(op, name, arguments, x.shape, y.shape, y.shape))]


def backward(op: Op) -> list[Recipe]:
    """One recipe for dx. It reads dy (AVE); or index dy, x dy, or x y dy (MAX)."""
    a, dy, dx = op.attrs, op.reads[-1].shape, op.writes[0].shape
    if a.method == "AVE":
        return [plain(_launch(op, "ave_backward", [Read(0), Write(0)], dx, dy, dx))]
    if a.saved == "index":
        name = f"max_backward_{op.reads[0].dtype}"
        return [plain(_launch(op, name, [Read(0), Read(1), Write(0)], dx, dy, dx))]
    # From x: compute the index again. Otherwise every place of dx would search each of its windows for the maximum.
    scratch, dtype = Scratch(), "uint8" if math.prod(a.kernel) <= ADDRESSABLE else "int32"
    index = scratch.take(math.prod(dy) * np.dtype(dtype).itemsize)
    last = Read(len(op.reads) - 1)
    return [
        scratch.recipe(
            "default",
            _launch(op, f"max_index_{dtype}", [Read(0), index], dx, dy, dy),
            _launch(op, f"max_backward_{dtype}", [index, last, Write(0)], dx, dy, dx),
        )
    ]


def backward_relu(op: Op) -> list[Recipe]:
    """One recipe for index y dy -> dx, where y is the pooling's top."""
    dy, dx, reads = op.reads[2].shape, op.writes[0].shape, [Read(i) for i in range(3)]
    return [plain(_launch(op, f"max_backward_relu_{op.reads[0].dtype}", [*reads, Write(0)], dx, dy, dx))]


def _launch(
    op: Op, name: str, arguments: list[Argument], x: tuple[int, ...], y: tuple[int, ...], writes: tuple[int, ...]
) -> Launch:
    """The launch of a kernel with one thread for each item that it writes; an item is four channels, or one."""
    a, (_, c, h, w) = op.attrs, x
    int32(math.prod(a.kernel))  # an index is a place of the window
    width = 4 if c % 4 == 0 else 1
    items = math.prod(writes) // width
    sizes = (int32(v) for v in (h, w, *y[2:], c, *a.kernel, *a.stride, *a.pad))
    divisors = (number for by in (c // width, writes[3], writes[2], *a.stride) for number in divisor(by))
    geometry = Table(1, tuple((number,) for number in (*sizes, *divisors)))
    return Launch("pooling", f"{name}_{width}", (*arguments, np.int64(items), geometry), over(items))


KINDS = {"pooling.forward": forward, "pooling.backward": backward, "pooling.backward_relu": backward_relu}
