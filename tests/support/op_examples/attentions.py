"""Attention: every way to mask, group and pack, around the ends of blocks, panels and vectors."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from minidnn.backends.reference.attention import KINDS
from minidnn.layers.attention import AttentionAttrs
from minidnn.layers.rotary import RotaryAttrs
from tests.support.op_examples.maker import Example, Maker

GEOMETRIES = [  # samples, queries, keys, heads, heads of k and v, depth; what differs
    (1, 1, 1, 1, 1, 1, {}),
    (2, 5, 5, 2, 2, 3, {"packed": True}),
    (1, 1, 9, 2, 1, 8, {"causal": True}),
    (2, 7, 7, 4, 2, 16, {"packed": True, "causal": True}),
    (1, 33, 47, 2, 1, 20, {"gradients": (True, False, True)}),
    (1, 40, 40, 1, 1, 33, {"causal": True, "window": 5, "gradients": (False, True, False)}),
    (1, 130, 137, 2, 2, 64, {"window": 17}),
    (2, 197, 197, 3, 3, 32, {"packed": True}),
    (1, 300, 300, 4, 2, 17, {"causal": True}),
    (1, 260, 260, 2, 1, 48, {"causal": True, "window": 129, "packed": True}),
    (2, 30, 31, 2, 2, 8, {"ratio": 0.25, "seed": 2**40 + 5, "key": 9}),
    (1, 140, 140, 2, 1, 16, {"ratio": 0.5, "seed": 3, "key": 2**31 + 1, "causal": True, "packed": True}),
]


BIASED = [  # as these, and the samples and heads of the bias
    (1, 1, 1, 1, 1, 1, (1, 1), {"bias_gradient": True}),
    (6, 9, 9, 3, 3, 4, (1, 3), {"packed": True, "bias_gradient": True}),
    (6, 10, 10, 2, 1, 5, (3, 2), {"bias_gradient": True, "causal": True}),
    (4, 33, 47, 4, 2, 20, (2, 1), {"bias_gradient": True, "gradients": (False, False, False)}),
    (3, 130, 137, 2, 2, 16, (3, 1), {"window": 17}),
    (2, 197, 197, 4, 2, 32, (1, 1), {"bias_gradient": True, "packed": True, "ratio": 0.25, "seed": 5, "key": 3}),
    (150, 12, 12, 1, 1, 8, (1, 1), {"bias_gradient": True, "packed": True, "gradients": (False, False, False)}),
]

KEPT = [  # samples, the first place, queries, keys, heads, heads of k and v, depth; what differs
    (1, 0, 1, 1, 1, 1, 1, {}),
    (2, 8, 1, 12, 2, 1, 8, {"packed": True}),
    (1, 150, 1, 300, 4, 2, 17, {"packed": True, "window": 129}),
    (2, 3, 5, 9, 2, 2, 3, {}),
    (1, 120, 140, 300, 2, 2, 20, {"window": 17}),
]


def cached(m: Maker) -> Iterator[Example]:
    for samples, first, queries, keys, heads, kv_heads, depth, how in KEPT:
        a = AttentionAttrs(queries, keys, heads, kv_heads, depth, scale=depth**-0.5, causal=True, **how)
        widths = [(heads + 2 * kv_heads) * depth] if a.packed else [heads * depth, *[kv_heads * depth] * 2]
        given = [m.normal(samples, queries, width) for width in widths]
        given += [m.normal(samples, keys, kv_heads * depth) for _ in range(2)]
        places = np.arange(first, first + queries, dtype=np.int32)
        writes = [(samples, queries, heads * depth), len(widths), len(widths) + 1]
        yield m.example("attention.forward_kept", [*given, places], writes, a, note=", ".join(how))


def rotations(m: Maker) -> Iterator[Example]:
    for samples, a in [
        (1, RotaryAttrs(1, 2, 1, 2)), (2, RotaryAttrs(7, 24, 3, 8, first=9)),
        (3, RotaryAttrs(5, 70, 2, 34, interleaved=True)),
        (2, RotaryAttrs(130, 100, 1, 64, 500.0)), (2, RotaryAttrs(300, 40, 4, 10, interleaved=True)),
    ]:  # fmt: skip
        x = m.normal(samples, a.tokens, a.width)
        for kind in ("rotary.forward", "rotary.backward"):
            yield m.example(kind, [x], [x.shape], a, [(0, 0)])
        places = np.arange(17, 17 + a.tokens, dtype=np.int32)
        yield m.example("rotary.forward", [x, places], [x.shape], a, [(0, 0)], note="at places")


def hides(e: Example) -> bool:
    """Whether queries do not see all keys. Of a key that is not finite, 0 times it is not finite either, and so it may
    reach queries of the same block that do not see it."""
    return e.op.family == "attention" and (e.op.attrs.causal or e.op.attrs.window is not None)


def attentions(m: Maker) -> Iterator[Example]:
    for samples, queries, keys, heads, kv_heads, depth, how in GEOMETRIES:
        a = AttentionAttrs(queries, keys, heads, kv_heads, depth, scale=depth**-0.5, **how)
        shapes = [(samples, queries, heads * depth)] + [(samples, keys, kv_heads * depth)] * 2
        if a.packed:
            shapes = [(samples, queries, (heads + 2 * kv_heads) * depth)]
        given, iteration = [m.normal(*shape) for shape in shapes], [np.array([11])] * bool(a.ratio)
        y, lse, dy = (np.empty((samples, queries, n), np.float32) for n in (heads * depth, heads, heads * depth))
        note = ", ".join(how)
        yield m.example("attention.forward", [*given, *iteration], [y.shape, lse.shape], a, note=note)
        KINDS["attention.forward"](a, [*given, *iteration], [y, lse])
        dy[...] = m.normal(*dy.shape)
        outs = shapes if a.packed else [s for s, wanted in zip(shapes, a.gradients, strict=True) if wanted]
        yield m.example("attention.backward", [*given, y, lse, dy, *iteration], outs, a, note=note)
        if not a.ratio:
            yield m.example("attention.forward", given, [y.shape], a, note=f"{note} alone")
    yield from biased(m)


def biased(m: Maker) -> Iterator[Example]:
    for samples, queries, keys, heads, kv_heads, depth, bias, how in BIASED:
        a = AttentionAttrs(queries, keys, heads, kv_heads, depth, scale=depth**-0.5, bias=bias, **how)
        shapes = [(samples, queries, heads * depth)] + [(samples, keys, kv_heads * depth)] * 2
        if a.packed:
            shapes = [(samples, queries, (heads + 2 * kv_heads) * depth)]
        given, iteration = [m.normal(*shape) for shape in shapes], [np.array([11])] * bool(a.ratio)
        added = m.normal(*bias, queries, keys).reshape(-1, queries, keys)
        y, lse, dy = (np.empty((samples, queries, n), np.float32) for n in (heads * depth, heads, heads * depth))
        note = ", ".join(how)
        yield m.example("attention.forward", [*given, added, *iteration], [y.shape, lse.shape], a, note=note)
        KINDS["attention.forward"](a, [*given, added, *iteration], [y, lse])
        dy[...] = m.normal(*dy.shape)
        outs = shapes[: a.gradients[0]] if a.packed else [s for s, w in zip(shapes, a.gradients, strict=True) if w]
        outs = [*outs, added.shape] if a.bias_gradient else outs
        yield m.example("attention.backward", [*given, y, lse, dy, added, *iteration], outs, a, note=note)
