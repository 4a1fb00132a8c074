"""Attention (attention.c)."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence

import numpy as np

from minidnn.backends import philox
from minidnn.backends.cpu.layout import address
from minidnn.backends.cpu.native.binding import NAME, Mirrored, Native, bound
from minidnn.backends.cpu.recipe import Call, Recipe, Scratch
from minidnn.program import Op

FLOAT = 4  # bytes
ITEMS, MOST = 64, 1 << 24  # of the gradient of a bias, how many items threads share, and most bytes of their sums


class Geometry(Mirrored):
    twin = "attention"

    _fields_ = (
        *(
            (name, ctypes.c_int64)
            for name in (
                "samples", "queries", "keys", "heads", "kv_heads", "depth", "q_pitch", "kv_pitch", "fresh_pitch",
                "place", "causal", "window", "bias_samples", "bias_heads", "each", "threads",
            )
        ),
        *((name, ctypes.c_uint32) for name in ("seed_low", "seed_high", "key", "limit")),
        *((name, ctypes.c_float) for name in ("kept", "scale")),
    )  # fmt: skip


def forward(native: Native, op: Op) -> list[Recipe]:
    """One recipe for q k v (bias) (iteration) -> y (lse), or for one tensor that has q, k and v."""
    g, scratch, run = _geometry(native, op), Scratch(), native.function("attention_forward")
    space = scratch.take(native.bytes("attention_forward_bytes", g))

    def bind(reads: Sequence[np.ndarray], writes: Sequence[np.ndarray], workspace: np.ndarray) -> list[Call]:
        given, (y, *lse) = (*_three(op, reads), _bias(op, reads, op.attrs.inputs)), map(address, writes)
        return [bound(run, g, *given, _iteration(op, reads), y, *(lse or [0]), space.address(workspace))]

    return [scratch.recipe(NAME, bind)]


def forward_kept(native: Native, op: Op) -> list[Recipe]:
    """One recipe for q k v, or one tensor that has all three, keys values places -> y keys values."""
    g, scratch, run = _geometry(native, op), Scratch(), native.function("attention_forward_kept")
    g.kv_pitch = op.attrs.kv_heads * op.attrs.depth
    space = scratch.take(native.bytes("attention_forward_bytes", g))

    def bind(reads: Sequence[np.ndarray], writes: Sequence[np.ndarray], workspace: np.ndarray) -> list[Call]:
        ends = _three(op, reads), address(reads[-1]), map(address, writes)
        return [bound(run, g, *ends[0], ends[1], *ends[2], space.address(workspace))]

    return [scratch.recipe(NAME, bind)]


def backward(native: Native, op: Op) -> list[Recipe]:
    """One recipe for q k v y lse dy (bias) (iteration) -> dq dk dv dbias, those that are wanted, or for packed ones."""
    g, scratch, run = _geometry(native, op), Scratch(), native.function("attention_backward")
    a, behind = op.attrs, op.attrs.inputs + 3
    if a.bias_gradient:
        g.each = _each(op)
    space = scratch.take(native.bytes("attention_backward_bytes", g))
    sums = scratch.take(native.bytes("attention_bias_bytes", g) if a.bias_gradient else 0)

    def bind(reads: Sequence[np.ndarray], writes: Sequence[np.ndarray], workspace: np.ndarray) -> list[Call]:
        places = map(address, writes)
        given = *_three(op, reads), *map(address, reads[a.inputs : behind]), _bias(op, reads, behind)
        three = _three(op, writes) if a.packed and a.gradients[0] else [next(places) if w else 0 for w in a.gradients]
        to = *three, address(writes[-1]) if a.bias_gradient else 0
        scratches = space.address(workspace), sums.address(workspace)
        return [bound(run, g, *given, _iteration(op, reads), *to, *scratches)]

    return [scratch.recipe(NAME, bind)]


def _geometry(native: Native, op: Op) -> Geometry:
    a, x = op.attrs, op.reads[0]
    both = (a.heads + 2 * a.kv_heads) * a.depth
    pitches = (both, both) if a.packed else (a.heads * a.depth, a.kv_heads * a.depth)
    seed = a.seed & 0xFFFFFFFF, a.seed >> 32 & 0xFFFFFFFF, a.key & 0xFFFFFFFF
    return Geometry(
        x.shape[0], a.queries, a.keys, a.heads, a.kv_heads, a.depth, *pitches, pitches[1], a.keys - a.queries,
        a.causal, a.window or 0, *(a.bias or (1, 1)), 1, native.threads,
        *seed, philox.threshold(a.ratio), 1 / (1 - a.ratio), a.scale,
    )  # fmt: skip


def _each(op: Op) -> int:
    """The number of samples in a piece, of those that share a bias. There are enough pieces and heads for many threads,
    and the pieces' sums stay small."""
    a, samples = op.attrs, op.reads[0].shape[0]
    sharing, size = samples // a.bias[0], FLOAT * math.prod((*a.bias, a.queries, a.keys))
    size *= a.kv_heads if a.bias[1] == 1 else 1
    pieces = max(1, min(-(-ITEMS // (a.bias[0] * a.kv_heads)), MOST // size))
    return max(1, -(-sharing // pieces))


def _bias(op: Op, reads: Sequence[np.ndarray], place: int) -> int:
    return address(reads[place]) if op.attrs.bias else 0


def _three(op: Op, arrays: Sequence[np.ndarray]) -> list[int]:
    """The addresses of q, k and v, or of their gradients."""
    a = op.attrs
    if not a.packed:
        return [address(t) for t in arrays[:3]]
    first, behind = address(arrays[0]), FLOAT * a.depth
    return [first, first + behind * a.heads, first + behind * (a.heads + a.kv_heads)]


def _iteration(op: Op, reads: Sequence[np.ndarray]) -> int:
    return address(reads[-1]) if op.attrs.ratio else 0


FIRST = {"attention.forward": forward, "attention.forward_kept": forward_kept, "attention.backward": backward}
