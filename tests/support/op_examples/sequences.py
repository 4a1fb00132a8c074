"""One sequence, whose tokens may run in parts (memory/parts/kinds.py): every kind that treats each token alike."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from minidnn.layers.broadcast import BroadcastAttrs
from minidnn.layers.dropout import DropoutAttrs
from minidnn.layers.rotary import RotaryAttrs
from tests.support.op_examples.maker import Example, Maker, attrs

SIZES = [(32, 5, 9), (48, 33, 20), (96, 70, 31)]  # tokens, and numbers of one before and behind a product


def sequences(m: Maker) -> Iterator[Example]:
    for tokens, k, o in SIZES:
        yield from _products(m, tokens, k, o)
        yield from _elements(m, (1, tokens, k))
        yield from _rows(m, (1, tokens, k))
        yield from _counted(m, tokens, k)
        yield from _joined(m, tokens, k, o)


def _products(m: Maker, tokens: int, k: int, o: int) -> Iterator[Example]:
    x, w, b, dy = m.normal(1, tokens, k), m.normal(o, k), m.normal(o), m.normal(1, tokens, o)
    yield m.example("inner_product.forward", [x, w, b], [dy.shape])
    yield m.example("inner_product.forward_relu", [x, w, b], [dy.shape])
    yield m.example("inner_product.backward_filter", [x, dy], [w.shape])
    yield m.example("inner_product.backward_data", [w, dy], [x.shape])
    yield m.example("inner_product.backward_bias", [dy], [(o,)])


def _elements(m: Maker, shape: tuple[int, ...]) -> Iterator[Example]:
    x, y, dy = m.normal(*shape), np.maximum(m.normal(*shape), 0), m.normal(*shape)
    total = attrs(operation="SUM", coeff=(0.5, 1.0), index=None)
    gelu = attrs(function="gelu_tanh", numbers=())
    yield m.example("relu.forward", [x], [shape], attrs(negative_slope=0.0, saved="y"))
    yield m.example("relu.backward", [y, dy], [shape], attrs(negative_slope=0.0, saved="y"), [(1, 0)])
    yield m.example("unary.forward", [x], [shape], gelu, [(0, 0)])
    yield m.example("unary.backward", [x, dy], [shape], gelu, [(1, 0)])
    yield m.example("eltwise.forward", [x, dy], [shape], total)
    yield m.example("eltwise.forward_relu", [x, dy], [shape], total)
    yield m.example("eltwise.backward", [dy], [shape], attrs(operation="SUM", coeff=(0.5, 1.0), index=0))
    yield m.example("gradient.add", [x, dy], [shape], None, [(0, 0), (1, 0)])
    yield m.example("gradient.sum", [x, y, dy], [shape], None)
    yield m.example("gradient.sum_relu", [y, x, dy], [shape])
    yield m.example("identity.forward", [x], [shape], None, [(0, 0)])


def _rows(m: Maker, shape: tuple[int, ...]) -> Iterator[Example]:
    """LayerNorm, and factors and constants of the channels, of the tokens, and of both."""
    x, dy, gamma, beta = m.normal(*shape), m.normal(*shape), m.normal(shape[2]), m.normal(shape[2])
    mean = x.mean(2, keepdims=True)
    inverse = 1 / np.sqrt(x.var(2, keepdims=True) + np.float32(0.01))
    a, kept = attrs(first=2, last=3, centred=True, divisor="VARIANCE", eps=0.01), mean.shape
    yield m.example("row_norm.forward", [x, gamma, beta], [shape, kept, kept], a, [(0, 0)])
    yield m.example("row_norm.backward_data", [x, dy, inverse, mean, gamma], [shape], a, [(1, 0), (0, 0)])
    yield m.example("row_norm.backward_filter", [x, dy, inverse, mean], [gamma.shape] * 2, a)
    for axis, last in ((2, 3), (1, 2), (1, 3), (0, 1), (0, 3)):
        of, note = BroadcastAttrs(axis), f"from {axis} to {last}"
        some = shape[axis:last]
        yield m.example("broadcast.multiply", [x, m.normal(*some)], [shape], of, [(0, 0)], note=note)
        yield m.example("broadcast.add", [x, m.normal(*some)], [shape], of, [(0, 0)], note=note)
        yield m.example("broadcast.sum", [dy], [some], of, note=note)
        yield m.example("broadcast.sum_products", [x, dy], [some], of, note=note)


def _counted(m: Maker, tokens: int, k: int) -> Iterator[Example]:
    """Where tokens, and random numbers, are counted."""
    shape, at = (1, tokens, k), np.array([7], np.int64)
    turned = RotaryAttrs(tokens, k, 1, k // 2 * 2)
    for way in ("forward", "backward"):
        yield m.example(f"dropout.{way}", [m.normal(*shape), at], [shape], DropoutAttrs(0.4, 5, 3), [(0, 0)])
        yield m.example(f"rotary.{way}", [m.normal(*shape)], [shape], turned, [(0, 0)])


def _joined(m: Maker, tokens: int, k: int, o: int) -> Iterator[Example]:
    shapes, of = [(1, tokens, k), (1, tokens, o)], attrs(starts=(0, k), axis=2)
    whole = (1, tokens, k + o)
    yield m.example("concat.forward", [m.normal(*shape) for shape in shapes], [whole], of, exact=True)
    yield m.example("concat.backward", [m.normal(*whole)], shapes, of, exact=True)
    index = m.random.integers(0, o, (1, tokens)).astype(np.int32)
    yield m.example("batch_reindex.forward", [m.normal(o, k), index], [(1, tokens, k)], exact=True)
