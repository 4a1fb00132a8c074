"""Attention: each query's mean of the values, weighted by the softmax of its products with the keys."""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from minidnn.layers.base import Layer, Parameter, Shape, ShapeError, Site, text
from minidnn.layers.reshaping import move, other
from minidnn.program import Op, Pass, Role, Tensor

TILE, SPREAD = 64, 1024  # of a bias's gradient on a GPU: the side of a block's tile; so many blocks keep it busy


@dataclass(frozen=True)
class AttentionAttrs:
    """`heads` heads of queries, of `depth` numbers each; `kv_heads` of keys and values. Each of the latter serves
    heads / kv_heads of the former, which follow each other.

    packed:   whether q, k and v are one tensor, one behind the other for each token
    causal:   whether a query sees no key behind its own place. The last query's place is that of the last key; where
              keys are kept, an op reads the places
    window:   how many tokens away a key must be not to be seen; None: all are seen
    scale:    of the products of queries and keys
    ratio:    the share of probabilities that are dropped; 0: none
    seed, key: of the random numbers, as of a Dropout
    bias:     (samples, heads) of the numbers that are added to the scores: sample n has those of n modulo `samples`,
              and `heads` is 1 if all heads share them; None: there are none
    gradients: of backward, which of dq, dk and dv it writes; of a packed tensor all or none
    bias_gradient: whether backward also writes the bias's
    """

    queries: int
    keys: int
    heads: int
    kv_heads: int
    depth: int
    packed: bool = False
    causal: bool = False
    window: int | None = None
    scale: float = 1.0
    ratio: float = 0.0
    seed: int = 0
    key: int = 0
    bias: tuple[int, int] | None = None
    gradients: tuple[bool, bool, bool] = (True, True, True)
    bias_gradient: bool = False

    @property
    def inputs(self) -> int:
        """How many tensors have q, k and v."""
        return 1 if self.packed else 3

    def sharing(self, samples: int) -> int:
        """How many of so many samples share a matrix of the bias; where their heads share it, how many heads do."""
        assert self.bias is not None
        return samples // self.bias[0] * (self.heads if self.bias[1] == 1 else 1)

    def pieces(self, samples: int) -> int:
        """In how many pieces a GPU sums the bias's gradient over these."""
        assert self.bias is not None
        sharing, tiles = self.sharing(samples), math.prod(self.bias) * -(-self.queries // TILE) * -(-self.keys // TILE)
        return min(sharing, -(-SPREAD // tiles))

    def seen(self, query: Any, key: Any, first: int | None = None) -> Any:
        """Whether queries see keys: of bool, numbers or arrays like the arguments.

        first: the place of query 0, if it is told"""
        away = query + (self.keys - self.queries if first is None else first) - key
        return ((away >= 0) | (not self.causal)) & (self.window is None or abs(away) < self.window)

    @property
    def pairs(self) -> int:
        """How many pairs of a query and a key that it sees a head has."""
        if self.window is None and not self.causal:
            return self.queries * self.keys
        window = self.keys if self.window is None else self.window
        before = _sum(self.keys - self.queries + 1, self.queries, window)  # keys up to the query's place, itself too
        return before if self.causal else before + _sum(0, self.queries, window - 1)


def _sum(first: int, count: int, most: int) -> int:
    """The sum of min(i, most) over `count` numbers i from `first` on."""
    rising = max(0, min(count, most - first))
    return rising * (2 * first + rising - 1) // 2 + (count - rising) * most


class Attention(Layer):
    """Ours, after Vaswani et al., "Attention Is All You Need" (2017): y = softmax(scale * q k' + bias) v, for each of
    `num_heads` heads.

    The bottoms are q (N, T, heads * d), k and v (N, S, kv_heads * d), or a single bottom with the three concatenated
    (N, T, (heads + 2 kv_heads) * d). The top is (N, T, heads * d). With fewer `num_kv_heads` than heads, queries are
    grouped (Ainslie et al., "GQA", 2023). With `causal`, a query sees the keys up to its own position; with `window`,
    only keys less than that many tokens away. The last query has the position of the last key. `scale` defaults to
    d^-0.5. `dropout_ratio` drops probabilities in TRAIN.

    The last of 2 or 4 bottoms is the bias, which may be learned. Its shape is (T, S) for all heads and samples, (heads,
    T, S) for all samples, or (B, heads or 1, T, S), where B divides N and sample n uses entry n modulo B. So
    consecutive windows may have one bias each, and B = N gives each sample its own, such as a padding mask. With three
    axes, (B * heads, T, S) means the same. A score with a bias of -inf has no weight.

    With `places`, the layer caches keys and values from step to step in TEST, each as (N, places, kv_heads * d). A step
    writes the keys and values of its tokens at their positions, and a query sees the keys up to its own position. So a
    step may consist of a single token after all earlier ones. A query's result does not depend on the number of other
    queries, bit for bit.

    Memory grows linearly with the number of tokens. Besides y, forward keeps the logarithm of each query's sum (N, T,
    heads), and backward recomputes the probabilities (Dao et al., "FlashAttention", 2022).
    """

    type = "Attention"
    field_name = "attention_param"
    needs = ("num_heads",)
    bottoms = (1, 4)

    def attrs(self, bottoms: Sequence[Shape]) -> AttentionAttrs:
        p, given = self.param, bottoms
        heads, kv_heads = p.num_heads, p.num_kv_heads or p.num_heads
        bottoms, bias = given[: 3 if len(given) > 2 else 1], given[3 if len(given) > 2 else 1 :]
        if any(len(shape) != 3 for shape in bottoms):
            raise ShapeError(
                "expected one bottom (N, T, q and k and v), or three: q (N, T, heads * d), "
                "k and v (N, S, kv_heads * d); and maybe a bias behind these; "
                f"got {' and '.join(map(text, given))}"
            )
        if heads % kv_heads:
            raise ShapeError(f"num_kv_heads {kv_heads} does not divide num_heads {heads}")
        (_, queries, width), *others = bottoms
        all_heads = heads if others else heads + 2 * kv_heads
        if width % all_heads:
            what = f"{heads} heads" if others else f"{all_heads} heads (of q {heads}, of k and v {kv_heads} each)"
            raise ShapeError(f"{what} do not divide the {width} numbers of a token of the bottom {text(bottoms[0])}")
        depth, keys = width // all_heads, others[0][1] if others else queries
        wanted = (bottoms[0][0], keys, kv_heads * depth)
        if any(shape != wanted for shape in others):
            raise ShapeError(
                f"{kv_heads} heads of {depth} numbers need k and v of {text(wanted)}, "
                f"got {' and '.join(map(text, others))}"
            )
        if keys < queries and (p.causal or p.window is not None):
            raise ShapeError(
                f"{queries} queries have {keys} keys: the first queries would see none, for the last query's place is "
                "that of the last key; leave out causal and window, or give as many keys"
            )
        shares = _shares(bias[0], bottoms[0][0], heads, queries, keys) if bias else None
        if p.places is not None:
            if bias:
                raise ShapeError(f"places {p.places}: keys and values are kept for an attention without a bias")
            keys = self._kept(queries, keys)
        scale = depth**-0.5 if p.scale is None else p.scale
        window = None if p.window is None or p.window >= keys else p.window  # nothing is farther away
        return AttentionAttrs(queries, keys, heads, kv_heads, depth, not others, p.causal, window, scale, bias=shares)

    def _kept(self, queries: int, keys: int) -> int:
        """The number of keys that are kept. Raises ShapeError if they cannot be."""
        places, causal = self.param.places, self.param.causal
        if not causal or keys != queries or queries > places:
            raise ShapeError(
                f"places {places}: expected causal: true, and as many keys as queries, at most {places}; got "
                f"{queries} queries, {keys} keys and causal: {str(causal).lower()}"
            )
        return places

    def shapes(self, bottoms: Sequence[Shape]) -> list[Shape]:
        a = self.attrs(bottoms)
        return [(*bottoms[0][:2], a.heads * a.depth)]

    def parameters(self, bottoms: Sequence[Shape]) -> list[Parameter]:
        if self.param.places is None:
            return []
        a = self.attrs(bottoms)
        shape = bottoms[0][0], a.keys, a.kv_heads * a.depth
        return [Parameter(name, shape, None, 0.0, 0.0, learnable=False, kept=True) for name in ("keys", "values")]

    def forward(self, s: Site) -> Iterable[Op]:
        a, reads, (y,) = *self._given(s), s.y
        if kept := list(s.p.values()):
            reads += [*kept, s.places(a.queries)]
            flops = 4 * self._products(s, a)
            yield s.op("attention.forward_kept", reads, [y, *kept], a, flops=flops, name="forward", during=Pass.FORWARD)
            return
        if a.bias is not None:
            yield from move(s, s.x[-1], reads[a.inputs])
        kept = [self._sums(s, a)] if s.train else []
        yield s.op("attention.forward", reads, [y, *kept], a, flops=4 * self._products(s, a))

    def backward(self, s: Site) -> Iterable[Op]:
        if s.p:
            raise ValueError(
                "places: keys and values are kept from step to step only in phase TEST; leave it out to train"
            )
        (a, reads), (dy,) = self._given(s), s.arriving
        wanted = [dx is not None for dx in s.dx[: a.inputs]]
        q, k, v = wanted * 3 if a.packed else wanted
        writes, to_bias = [dx for dx in s.dx[: a.inputs] if dx is not None], (*s.dx[a.inputs :], None)[0]
        if to_bias is not None:
            writes.append(_rows(s, a, to_bias, "dbias.rows", Role.GRADIENT))
        reads[a.inputs : a.inputs] = [s.y[0], self._sums(s, a), dy]
        a = replace(a, gradients=(q, k, v), bias_gradient=to_bias is not None)
        flops = (4 + 2 * (q + k + v)) * self._products(s, a)
        yield s.op("attention.backward", reads, writes, a, flops=flops)
        if to_bias is not None:
            yield from move(s, writes[-1], to_bias, "backward")

    def _given(self, s: Site) -> tuple[AttentionAttrs, list[Tensor]]:
        """What both passes compute, and their first reads; behind these the bias, and with dropout at last the number
        of the step."""
        a = self.attrs([t.shape for t in s.x])
        reads = list(s.x)
        if a.bias is not None:
            reads[-1] = _rows(s, a, s.x[-1], "bias.rows", Role.ACTIVATION)
        if not s.train or not self.param.dropout_ratio:
            return a, reads
        key = zlib.crc32(self.name.encode())
        return replace(a, ratio=self.param.dropout_ratio, seed=s.seed, key=key), [*reads, s.iteration]

    def _sums(self, s: Site, a: AttentionAttrs) -> Tensor:
        """The logarithm of the sum of e^score over the keys, for each query and head."""
        return s.extra("lse", (s.x[0].shape[0], a.queries, a.heads))

    def _products(self, s: Site, a: AttentionAttrs) -> int:
        return math.prod((s.x[0].shape[0], a.heads, a.depth, a.pairs))


def _shares(shape: Shape, samples: int, heads: int, queries: int, keys: int) -> tuple[int, int]:
    """(samples, heads) of a bias of this shape. Raises ShapeError."""
    lead, shares = shape[:-2], (1, 1)
    if len(lead) == 1 and lead[0] != 1:
        shares = (lead[0] // heads, heads) if lead[0] % heads == 0 else (0, 0)
    if len(lead) == 2:
        shares = lead[0], lead[1] if lead[1] in (1, heads) else 0
    if len(lead) > 2 or shape[-2:] != (queries, keys) or not all(shares) or samples % shares[0]:
        own = text((queries, keys))
        raise ShapeError(
            f"expected a bias of {own}, {heads}x{own}, or Bx{heads}x{own} or Bx1x{own} where B divides the {samples} "
            f"samples; got {text(shape)}"
        )
    return shares


def _rows(s: Site, a: AttentionAttrs, t: Tensor, name: str, role: Role) -> Tensor:
    """A bias as matrices in the order of its axes; of images, a tensor of three axes."""
    assert a.bias is not None
    return other(s, t, (a.bias[0] * a.bias[1], a.queries, a.keys), name, role) if len(t.shape) == 4 else t
