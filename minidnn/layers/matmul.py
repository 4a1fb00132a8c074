"""MatMul: y = scale * a b, a product of the matrices of two bottoms."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from minidnn.layers.base import Layer, Shape, ShapeError, Site, text
from minidnn.layers.reshaping import move, other
from minidnn.program import Op, Pass, Role, Tensor


@dataclass(frozen=True)
class MatMulAttrs:
    """`batch` products of a matrix of rows x depth and one of depth x columns. Matrices lie one after another, row
    after row. A transposed one lies as its transpose: a as depth x rows, b as columns x depth."""

    batch: int
    rows: int
    depth: int
    columns: int
    transpose_a: bool = False
    transpose_b: bool = False
    scale: float = 1.0


class MatMul(Layer):
    """Ours: y = scale * a b, for each pair of matrices in the last two axes of two bottoms. Their other axes must be
    equal.

    Two MatMul with a Softmax between them compute attention, with a matrix of all weights in memory; the layer
    Attention needs no such matrix. Tensors with 4 axes are stored like images, with channels innermost, and are copied
    first.
    """

    type = "MatMul"
    field_name = "matmul_param"
    bottoms = (2, 2)

    def attrs(self, a: Shape, b: Shape) -> MatMulAttrs:
        p = self.param
        (rows, depth), (deep, columns) = _turned(a, p.transpose_a), _turned(b, p.transpose_b)
        if depth != deep:
            raise ShapeError(
                f"{rows}x{depth} times {deep}x{columns}: the first matrix needs as many columns as the second has "
                "rows; transpose_a and transpose_b turn them"
            )
        return MatMulAttrs(math.prod(a[:-2]), rows, depth, columns, p.transpose_a, p.transpose_b, p.scale)

    def shapes(self, bottoms: Sequence[Shape]) -> list[Shape]:
        a, b = bottoms
        if len(a) < 2 or len(a) != len(b) or a[:-2] != b[:-2]:
            raise ShapeError(
                f"expected two bottoms (..., rows, columns) whose other axes are equal, got {text(a)} and {text(b)}"
            )
        g = self.attrs(a, b)
        return [(*a[:-2], g.rows, g.columns)]

    def forward(self, s: Site) -> Iterable[Op]:
        (y,), g = s.y, self.attrs(*(t.shape for t in s.x))
        x = [self._matrices(s, t, f"x{i}") for i, t in enumerate(s.x)]
        for given, t in zip(s.x, x, strict=True):
            yield from move(s, given, t)
        product = self._matrices(s, y, "y", Role.ACTIVATION)
        yield s.op("matmul.forward", x, [product], g, flops=_flops(g))
        yield from move(s, product, y)

    def backward(self, s: Site) -> Iterable[Op]:
        """With A and B as they are multiplied, dA = scale dy B' and dB = scale A' dy; of a transposed bottom, the
        transpose of that."""
        a, b = (self._matrices(s, t, f"x{i}") for i, t in enumerate(s.x))
        (given,), g = s.arriving, self.attrs(*(t.shape for t in s.x))
        dy = self._matrices(s, given, "dy", Role.GRADIENT)
        yield from move(s, given, dy, "backward")
        of_a = [(b, g.transpose_b), (dy, True)] if g.transpose_a else [(dy, False), (b, not g.transpose_b)]
        of_b = [(dy, True), (a, g.transpose_a)] if g.transpose_b else [(a, not g.transpose_a), (dy, False)]
        for i, (dx, ((left, turn), (right, turn_right))) in enumerate(zip(s.dx, (of_a, of_b), strict=True)):
            if dx is None:
                continue
            into = self._matrices(s, dx, f"dx{i}", Role.GRADIENT)
            (rows, depth), (_, columns) = _turned(left.shape, turn), _turned(right.shape, turn_right)
            each = MatMulAttrs(g.batch, rows, depth, columns, turn, turn_right, g.scale)
            name = f"backward_{'ab'[i]}"
            yield s.op("matmul.forward", [left, right], [into], each, (), _flops(g), name, Pass.BACKWARD)
            yield from move(s, into, dx, "backward")

    def _matrices(self, s: Site, t: Tensor, name: str, role: Role = Role.EXTRA) -> Tensor:
        """The tensor whose matrices lie row after row: of 3 axes, if the tensor has 4."""
        shape = (math.prod(t.shape[:-2]), *t.shape[-2:]) if len(t.shape) == 4 else t.shape
        return other(s, t, shape, f"{name}.matrices", role)


def _turned(shape: Shape, transposed: bool) -> tuple[int, int]:
    """(rows, columns) of the matrices in the last two axes."""
    return (shape[-1], shape[-2]) if transposed else (shape[-2], shape[-1])


def _flops(g: MatMulAttrs) -> int:
    return 2 * g.batch * g.rows * g.depth * g.columns
