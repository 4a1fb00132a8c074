"""Bias: y = x + beta. beta is learned, or is the second bottom; it spans some axes of x, by default the channels. A
learned beta is float32 in every net, as Scale's. With `places`, beta has a row for each place of a token, and in TEST
the tokens of a step take the rows of their places."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from minidnn.layers.base import Layer, Parameter, Shape, ShapeError, Site, text
from minidnn.layers.broadcast import BroadcastAttrs, spanned
from minidnn.program import Op, Pass, Role


class Bias(Layer):
    """Caffe's Bias. The gradient of x is dy itself, without an op or a copy."""

    type = "Bias"
    field_name = "bias_param"
    bottoms = (1, 2)
    in_place = True

    def shapes(self, bottoms: Sequence[Shape]) -> list[Shape]:
        axis, shape = spanned(self.param, bottoms)
        places = self.param.places
        if places is not None and (len(bottoms) > 1 or axis != 1 or not 1 <= shape[0] <= places):
            raise ShapeError(
                f"places {places}: expected one bottom (N, T, ...) of at most {places} tokens, and axis 1, got "
                f"{' and '.join(map(text, bottoms))} and axis {axis}"
            )
        return [bottoms[0]]

    def parameters(self, bottoms: Sequence[Shape]) -> list[Parameter]:
        if len(bottoms) > 1:
            return []
        shape = spanned(self.param, bottoms)[1]
        if self.param.places is not None:
            shape = (self.param.places, *shape[1:])
        return [Parameter("beta", shape, self.param.filler, *self.mults(0), float32=True)]

    def forward(self, s: Site) -> Iterable[Op]:
        (x, *constant), (y,), attrs = s.x, s.y, BroadcastAttrs(self.place(s)[0])
        constant += s.p.values()
        if self.param.places is not None:
            (beta,) = constant
            constant = [s.extra("rows", (x.shape[1], *beta.shape[1:]), beta.dtype, Role.ACTIVATION)]
            yield s.op("batch_reindex.forward", [beta, s.places(x.shape[1])], constant, flops=x.size, name="rows")
        reads = [x, *constant]
        yield s.op("broadcast.add", reads, [y], attrs, [(x, y)], x.size, name="forward", during=Pass.FORWARD)

    def backward(self, s: Site) -> Iterable[Op]:
        (dy,), (axis, shape) = s.arriving, self.place(s)
        if self.param.places is not None:
            raise ValueError("places: only steps of phase TEST know the places of their tokens; leave it out to train")
        gradient = s.dx[1] if len(s.x) > 1 else s.dp["beta"]
        if gradient is not None and axis == 1 and len(shape) == 1:
            yield s.op("scale.backward_bias", [dy], [gradient], flops=dy.size)
        elif gradient is not None:
            attrs, during = BroadcastAttrs(axis), Pass.BACKWARD
            yield s.op("broadcast.sum", [dy], [gradient], attrs, flops=dy.size, name="backward_bias", during=during)
        if s.dx[0] is not None:
            s.pass_through(0, dy)

    def place(self, s: Site) -> tuple[int, Shape]:
        """The constant's first axis and its shape."""
        return spanned(self.param, [x.shape for x in s.x])
