"""InnerProduct: y = x w' + b; each output depends on all inputs of its row."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

from minidnn.layers.base import Layer, Parameter, Shape, Site, parametric_backward, positive_axis
from minidnn.layers.matmul import MatMulAttrs
from minidnn.layers.reshaping import move, other
from minidnn.program import Op, Pass, Role


class InnerProduct(Layer):
    """Caffe's InnerProduct. The axes from `axis` on are flattened to a row of K inputs; the axes before it stay. (N, T,
    C) with axis 2 becomes (N, T, O). With `transpose` the weights have shape (K, O) instead of (O, K).

    For images, with axis 1, the weights have shape (O, C, H, W), so that a backend may give x and w the same layout. In
    files their shape is (O, C*H*W). With another axis, images are first copied row by row (layers/reshaping.py).
    """

    type = "InnerProduct"
    field_name = "inner_product_param"

    def axis(self, shape: Shape) -> int:
        return positive_axis(self.param.axis, shape)

    def shapes(self, bottoms: Sequence[Shape]) -> list[Shape]:
        return [(*bottoms[0][: self.axis(bottoms[0])], self.param.num_output)]

    def parameters(self, bottoms: Sequence[Shape]) -> list[Parameter]:
        o, inner = self.param.num_output, bottoms[0][self.axis(bottoms[0]) :]
        if self.param.transpose:
            w, *bias = self.weight_and_bias((o, math.prod(inner)))
            return [replace(w, shape=w.shape[::-1]), *bias]
        blob = (o, math.prod(inner))
        return self.weight_and_bias((o, *inner) if self._as_images(bottoms[0]) else blob, blob)

    def forward(self, s: Site) -> Iterable[Op]:
        rows = self._rows(s)
        (x,), (y,) = rows.x, rows.y
        yield from move(s, s.x[0], x)
        if self.param.transpose:
            yield s.op("matmul.forward", [x, *s.p.values()], [y], self._product(s), flops=_flops(s), name="forward")
        else:
            yield s.op("inner_product.forward", [x, *s.p.values()], [y], flops=_flops(s))
        yield from move(s, y, s.y[0])

    def backward(self, s: Site) -> Iterable[Op]:
        rows = self._rows(s)
        (dy,), (dx,) = rows.dy, rows.dx
        assert s.dy[0] is not None and dy is not None, f"{s.layer}: its only top has a gradient"
        yield from move(s, s.dy[0], dy, "backward")
        if self.param.transpose:
            yield from self._transposed_backward(rows)
        else:
            yield from parametric_backward(rows, "inner_product", None, _flops(s))
        if dx is not None and s.dx[0] is not None:
            yield from move(s, dx, s.dx[0], "backward")

    def _transposed_backward(self, s: Site) -> Iterable[Op]:
        """dw = x' dy, db, dx = dy w'."""
        (x,), (dy,), (dx,) = s.x, s.arriving, s.dx
        a, flops = self._product(s), _flops(s)
        if (dw := s.dp["w"]) is not None:
            of = replace(a, rows=a.depth, depth=a.rows, transpose_a=True)
            yield s.op("matmul.forward", [x, dy], [dw], of, (), flops, "backward_filter", Pass.BACKWARD)
        if (db := s.dp.get("b")) is not None:
            yield s.op("inner_product.backward_bias", [dy], [db], flops=dy.size)
        if dx is not None:
            of = replace(a, depth=a.columns, columns=a.depth, transpose_b=True)
            yield s.op("matmul.forward", [dy, s.p["w"]], [dx], of, (), flops, "backward_data", Pass.BACKWARD)

    def _product(self, s: Site) -> MatMulAttrs:
        """y = x w, where x is one matrix of all rows."""
        inputs, o = s.p["w"].shape
        return MatMulAttrs(1, s.x[0].size // inputs, inputs, o)

    def _as_images(self, shape: Shape) -> bool:
        """Whether x and w lie alike as images."""
        return len(shape) == 4 and self.axis(shape) == 1 and not self.param.transpose

    def _rows(self, s: Site) -> Site:
        """The site with x, y and their gradients as matrices of rows, wherever the layout may order them otherwise."""
        x, y = s.x[0].shape, s.y[0].shape
        if self._as_images(x) or 4 not in (len(x), len(y)):
            return s
        count = math.prod(x[: self.axis(x)])
        wide, narrow = (count, math.prod(x) // count), (count, y[-1])
        return replace(
            s,
            x=[other(s, s.x[0], wide, "x.rows")],
            y=[other(s, s.y[0], narrow, "y.rows", Role.ACTIVATION)],
            dy=[t and other(s, t, narrow, "dy.rows", Role.GRADIENT) for t in s.dy],
            dx=[t and other(s, t, wide, "dx.rows", Role.GRADIENT) for t in s.dx],
        )


def _flops(s):
    return 2 * s.y[0].size * (s.p["w"].size // s.y[0].shape[-1])
