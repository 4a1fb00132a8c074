"""Inner product by oneDNN's matrix product, without reordering.

A 4-D bottom and its weights both have channels innermost, so the elements of their rows are in the same order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from minidnn.backends.cpu.layout import address, product_sizes
from minidnn.backends.cpu.onednn import dnnl as d
from minidnn.backends.cpu.recipe import Recipe, Scratch
from minidnn.program import Op


@dataclass(frozen=True)
class Matrix:
    """A row-major matrix in memory. `transposed`: the product uses its transpose, on the same bytes."""

    rows: int
    columns: int
    transposed: bool = False

    def desc(self, dnnl: d.Dnnl) -> d.Desc:
        if self.transposed:
            return dnnl.desc((self.columns, self.rows), (1, self.columns))
        return dnnl.desc((self.rows, self.columns))


@dataclass(frozen=True)
class Product:
    """out = left right (+ bias)"""

    left: Matrix
    right: Matrix
    out: Matrix
    swapped: bool  # the op reads the right matrix before the left one

    def operands(self, reads: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
        """Left, right, and the bias if there is one."""
        return reads[::-1] if self.swapped else reads


def product(op: Op) -> Product | None:
    """The op as a product: y (n, o) = x (n, k) w' (k, o) (+ b), dx = dy w, or dw = dy' x. None if the elements of x's
    and w's rows are in different orders."""
    if op.kind == "inner_product.backward_data":
        x, w = op.writes[0], op.reads[0]
    elif op.kind == "inner_product.backward_filter":
        x, w = op.reads[0], op.writes[0]
    else:
        x, w = op.reads[:2]
    if (sizes := product_sizes(x, w)) is None:
        return None
    n, o, k = sizes
    if op.kind == "inner_product.backward_data":
        return Product(Matrix(n, o), Matrix(o, k), Matrix(n, k), swapped=True)
    if op.kind == "inner_product.backward_filter":
        return Product(Matrix(n, o, transposed=True), Matrix(n, k), Matrix(o, k), swapped=True)
    return Product(Matrix(n, k), Matrix(o, k, transposed=True), Matrix(n, o), swapped=False)


def recipes(dnnl: d.Dnnl, op: Op) -> list[Recipe]:
    """One recipe for x w (b) -> y, w dy -> dx, or x dy -> dw. None below AVX-512, where oneDNN 3.2 has only its
    reference, many times slower than any other way; and none if `product` finds none."""
    if (result := product(op)) is None:
        return []
    a, b, c = (matrix.desc(dnnl) for matrix in (result.left, result.right, result.out))
    bias = dnnl.desc((1, result.out.columns)) if len(op.reads) == 3 else None
    p = next((p for p in dnnl.implementations("matmul", a, b, bias, c, dnnl.attr) if d.usable(p.name)), None)
    if p is None:
        return []
    scratch = Scratch()
    pad = scratch.take(p.scratchpad)

    def bind(reads, writes, workspace):
        left, right, *row = result.operands(reads)
        arguments = {d.SRC: (a, address(left)), d.WEIGHTS: (b, address(right)), d.DST: (c, address(writes[0]))}
        if bias is not None:
            arguments[d.BIAS] = (bias, address(row[0]))
        return [p.bind(arguments, pad.address(workspace))]

    return [scratch.recipe(f"matmul.{p.name.split(':')[0]}", bind)]


KINDS = {
    "inner_product.forward": recipes,
    "inner_product.backward_data": recipes,
    "inner_product.backward_filter": recipes,
}
