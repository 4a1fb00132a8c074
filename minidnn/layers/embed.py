"""Embed: a row of the weights for each index."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from minidnn.layers.base import Layer, Parameter, Shape, ShapeError, Site, text
from minidnn.layers.broadcast import BroadcastAttrs
from minidnn.layers.reshaping import move, other
from minidnn.program import Op, Role


class Embed(Layer):
    """Caffe's Embed: int32 indices (N, ...), each below `input_dim`, become rows (N, ..., num_output) of the weights,
    which have shape (input_dim, num_output), plus a bias."""

    type = "Embed"
    field_name = "embed_param"
    labels = 0
    still = (0,)

    def classes(self, bottoms: Sequence[Shape]) -> int | None:
        return self.param.input_dim

    def shapes(self, bottoms: Sequence[Shape]) -> list[Shape]:
        (shape,) = bottoms
        if len(shape) == 4 and shape[1] > 1 and shape[2] * shape[3] > 1:  # they lie in another order than that of axes
            raise ShapeError(f"expected indices of at most 3 axes, got {text(shape)}; flatten some of its axes before")
        return [(*shape, self.param.num_output)]

    def dtypes(self, bottoms: Sequence[str]) -> list[str]:
        if bottoms[0] != "int32":
            raise ShapeError(
                f"expected int32 indices, got {bottoms[0]}; a top of Input or Data holds integers if only layers that "
                "take labels or indices read it"
            )
        return super().dtypes(bottoms)

    def parameters(self, bottoms: Sequence[Shape]) -> list[Parameter]:
        p = self.param
        result = [Parameter("w", (p.input_dim, p.num_output), p.weight_filler, *self.mults(0))]
        if p.bias_term:
            result.append(Parameter("b", (p.num_output,), p.bias_filler, *self.mults(1)))
        return result

    def forward(self, s: Site) -> Iterable[Op]:
        (index,), (y,) = s.x, s.y
        rows = self._rows(s, y, "y.rows", Role.ACTIVATION)
        chosen = s.extra("chosen", rows.shape, rows.dtype, Role.ACTIVATION) if "b" in s.p else rows
        yield s.op("batch_reindex.forward", [s.p["w"], index], [chosen], flops=y.size)
        if "b" in s.p:
            along, pairs = BroadcastAttrs(len(rows.shape) - 1), [(chosen, rows)]
            yield s.op("broadcast.add", [chosen, s.p["b"]], [rows], along, pairs, y.size, "bias")
        yield from move(s, rows, y)

    def backward(self, s: Site) -> Iterable[Op]:
        (index,), (given,) = s.x, s.arriving
        dy = self._rows(s, given, "dy.rows", Role.GRADIENT)
        yield from move(s, given, dy, "backward")
        if (dw := s.dp["w"]) is not None:
            yield s.op("batch_reindex.backward", [index, dy], [dw], flops=dy.size, name="backward_filter")
        if (db := s.dp.get("b")) is not None:
            yield s.op("inner_product.backward_bias", [dy], [db], flops=dy.size)

    def _rows(self, s: Site, t, name: str, role: Role):
        """The tensor as rows, which lie in the order of the indices."""
        shape = (math.prod(t.shape[:-1]), t.shape[-1]) if len(t.shape) == 4 else t.shape
        return other(s, t, shape, name, role)
