"""ClassToken: a learned token before the others."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from minidnn.layers.base import Layer, Parameter, Shape, ShapeError, Site, text
from minidnn.layers.concat import ConcatAttrs
from minidnn.layers.tile import TileAttrs
from minidnn.program import Op, Pass, Tensor


class ClassToken(Layer):
    """Ours, after Dosovitskiy et al., "An Image is Worth 16x16 Words" (2021): (N, T, C) -> (N, 1 + T, C). The same
    learned token becomes the first token of each sample. Its gradient is the sum over the samples, in order.

    The layer uses the ops of a Tile, which repeats the token, and of a Concat.
    """

    type = "ClassToken"
    field_name = "class_token_param"

    def shapes(self, bottoms: Sequence[Shape]) -> list[Shape]:
        (shape,) = bottoms
        if len(shape) != 3:
            raise ShapeError(f"expected a bottom of 3 axes (N, T, C), got {text(shape)}")
        n, t, c = shape
        return [(n, t + 1, c)]

    def parameters(self, bottoms: Sequence[Shape]) -> list[Parameter]:
        return [Parameter("token", (1, 1, bottoms[0][2]), self.param.filler, *self.mults(0))]

    def forward(self, s: Site) -> Iterable[Op]:
        (x,), (y,), tokens = s.x, s.y, self._tokens(s, "tokens", s.x[0])
        tiles = TileAttrs(0, x.shape[0])
        yield s.op("tile.forward", [s.p["token"]], [tokens], tiles, flops=tokens.size, name="repeat")
        yield s.op("concat.forward", [tokens, x], [y], ConcatAttrs(1, (0, 1)), flops=y.size)

    def backward(self, s: Site) -> Iterable[Op]:
        """One op cuts dy into what is wanted of it."""
        (dy,), (dx,), token = s.arriving, s.dx, s.dp["token"]
        tokens = None if token is None else self._tokens(s, "tokens.grad", s.x[0])
        wanted = [(start, t) for start, t in ((0, tokens), (1, dx)) if t]
        cuts, writes = ConcatAttrs(1, tuple(start for start, _ in wanted)), [t for _, t in wanted]
        yield s.op("concat.backward", [dy], writes, cuts, flops=sum(t.size for t in writes))
        if token is not None and tokens is not None:
            tiles = TileAttrs(0, tokens.shape[0])
            yield s.op("tile.backward", [tokens], [token], tiles, (), tokens.size, "backward_filter", Pass.BACKWARD)

    def _tokens(self, s: Site, name: str, x: Tensor) -> Tensor:
        """The token of each sample."""
        return s.extra(name, (x.shape[0], 1, x.shape[2]), x.dtype)
