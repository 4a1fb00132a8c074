"""RotaryEmbedding: turns pairs of each head's numbers by angles that grow with the token's place."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from minidnn.layers.base import Layer, Shape, ShapeError, Site, text
from minidnn.program import Op


@dataclass(frozen=True)
class RotaryAttrs:
    """The first `heads` heads of `depth` numbers are turned, of `tokens` tokens of `width` numbers each. Pair i of a
    head at place p is turned by p * base^(-2 i / depth). The first token's place is `first`, unless they are told."""

    tokens: int
    width: int
    heads: int
    depth: int
    base: float = 10000.0
    interleaved: bool = False
    first: int = field(default=0, repr=False)  # not 0 in parts; costs do not depend on it


class RotaryEmbedding(Layer):
    """Ours, after Su et al., "RoFormer: Enhanced Transformer with Rotary Position Embedding" (2021). The bottom is (N,
    T, width). The layer rotates the first `num_heads` heads of `head_dim` numbers and leaves the rest unchanged. So it
    can rotate q and k of a tensor with q, k and v at once, in place.

    A token's position is its index in the sample, from 0. With `places`, each step gives the positions of its tokens in
    TEST.

    A pair consists of a number of a head's first half and the number at the same index in the second half, as in Llama.
    With `interleaved`, a pair is two adjacent numbers. Backward rotates the gradient back, and reads nothing else.
    """

    type = "RotaryEmbedding"
    field_name = "rotary_embedding_param"
    needs = ("num_heads", "head_dim")
    in_place = True

    def attrs(self, shape: Shape) -> RotaryAttrs:
        p = self.param
        if len(shape) != 3:
            raise ShapeError(f"expected a bottom of 3 axes (N, T, width), got {text(shape)}")
        if p.head_dim % 2 or p.num_heads * p.head_dim > shape[2]:
            raise ShapeError(
                f"{p.num_heads} heads of {p.head_dim} numbers: expected an even head_dim, and heads of at most the "
                f"{shape[2]} numbers of a token of the bottom {text(shape)}"
            )
        return RotaryAttrs(*shape[1:], p.num_heads, p.head_dim, p.base, p.interleaved)

    def shapes(self, bottoms: Sequence[Shape]) -> list[Shape]:
        self.attrs(bottoms[0])
        return [bottoms[0]]

    def forward(self, s: Site) -> Iterable[Op]:
        (x,), (y,), a = s.x, s.y, self.attrs(s.x[0].shape)
        told = [] if self.param.places is None else [s.places(a.tokens)]
        yield s.op("rotary.forward", [x, *told], [y], a, [(x, y)], 3 * x.size)

    def backward(self, s: Site) -> Iterable[Op]:
        if self.param.places is not None:
            raise ValueError("places: only steps of phase TEST know the places of their tokens; leave it out to train")
        (dy,), (dx,) = s.arriving, s.bottom_gradients
        yield s.op("rotary.backward", [dy], [dx], self.attrs(dy.shape), [(dy, dx)], 3 * dy.size)
