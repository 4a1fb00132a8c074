"""Kernels of elements alone: activations, sums, copies; dropout."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np

from minidnn.layers.dropout import DropoutAttrs
from tests.support.op_examples.maker import Example, Maker, attrs

SHAPES = [(3, 5, 6, 7), (4, 13), (2, 16, 5, 5), (1, 1, 1, 1), (2, 3, 4), (70001,), (2, 64, 28, 28)]


def elementwise(m: Maker) -> Iterator[Example]:
    for shape in SHAPES:
        x, y, z = m.normal(*shape), m.normal(*shape), m.normal(*shape)
        for slope in (0.0, 0.1):
            a = attrs(negative_slope=slope, saved="y")
            yield m.example("relu.forward", [x], [shape], a, inplace=[(0, 0)], note=f"slope {slope}")
            yield m.example("relu.backward", [y, z], [shape], a, inplace=[(1, 0)], note=f"slope {slope}")
        mask = (x > 0).astype(np.uint8)
        for slope in (0.0, 0.1):
            a = attrs(negative_slope=slope, saved="mask")
            yield m.example(
                "relu.forward", [x], [shape] * 2, a, inplace=[(0, 0)], dtypes={1: "uint8"}, note=f"mask, slope {slope}"
            )
            yield m.example("relu.backward", [mask, z], [shape], a, inplace=[(1, 0)], note=f"mask, slope {slope}")
        a = attrs(negative_slope=-0.1, saved="xy")
        yield m.example("relu.backward", [x, y, z], [shape], a, inplace=[(2, 0)], note="saved xy")
        for i in (0, 1):
            yield m.example("gradient.add", [x, y], [shape], inplace=[(i, 0)], note=f"over operand {i}")
        yield m.example("identity.forward", [x], [shape], inplace=[(0, 0)], exact=True)
        yield m.example("cast.forward", [x], [shape], exact=True)
        yield m.example("cast.backward", [x], [shape], exact=True)
        yield m.example("cast.backward", [x, np.float32([8, 3])], [shape], exact=True, note="scaled")
        three = [x, y, z]
        for i in range(3):
            for coeff in ((1.0, 1.0, 1.0), (1.0, -2.0, 0.5)):
                a = attrs(operation="SUM", coeff=coeff, index=None)
                yield m.example("eltwise.forward", three, [shape], a, inplace=[(i, 0)], note=f"SUM {coeff} over {i}")
        a = attrs(operation="PROD", coeff=(1.0, 1.0, 1.0), index=None)
        yield m.example("eltwise.forward", three, [shape], a, note="PROD")
        ties = [np.round(t) for t in three]
        a = attrs(operation="MAX", coeff=(1.0, 1.0, 1.0), index=None)
        yield m.example("eltwise.forward", ties, [shape, shape], a, dtypes={1: "uint8"}, note="MAX", exact=True)
        yield m.example("eltwise.forward", ties, [shape], a, note="MAX", exact=True)
        which = m.random.integers(0, 3, shape).astype(np.uint8)
        for i in (0, 2):
            a = attrs(operation="SUM", coeff=(0.5, 1.0, -2.0), index=i)
            yield m.example("eltwise.backward", [x], [shape], a, note=f"SUM {i}")
            a = attrs(operation="PROD", coeff=(1.0, 1.0, 1.0), index=i)
            yield m.example("eltwise.backward", three, [shape], a, note=f"PROD {i}")
            a = attrs(operation="MAX", coeff=(1.0, 1.0, 1.0), index=i)
            yield m.example("eltwise.backward", [which, x], [shape], a, note=f"MAX {i}", exact=True)


def dropouts(m: Maker) -> Iterator[Example]:
    for shape in [(4, 13), (3, 5, 6, 7), (70001,), (2, 40000), (2, 3, 1, 1)]:
        for iteration, block in ((0, 0), (7, (3 << 32) - 1), ((1 << 40) + 3, 5)):
            x, at = m.normal(*shape), np.array([iteration], np.int64)
            a = DropoutAttrs(0.4, 5, 0x12345678, block)
            note = f"iteration {iteration}"
            yield m.example("dropout.forward", [x, at], [shape], a, inplace=[(0, 0)], note=note)
            yield m.example("dropout.backward", [x, at], [shape], a, inplace=[(0, 0)], note=note)
            yield m.example("dropout.factors", [at], [shape[:1]], a, note=note)


def sums(m: Maker, shapes=SHAPES) -> Iterator[Example]:
    """More fused ops: sums of gradients, alone or with a ReLU's backward, and an Eltwise with its ReLU."""
    for shape, count in product(shapes, (2, 3, 4)):
        xs, y = [m.normal(*shape) for _ in range(count)], np.maximum(m.normal(*shape), 0)
        for over in {0, count - 1}:
            note = f"of {count} over {over}"
            if count > 2:
                yield m.example("gradient.sum", xs, [shape], inplace=[(over, 0)], note=note, exact=True)
            pair = [(over + 1, 0)]
            yield m.example("gradient.sum_relu", [y, *xs], [shape], inplace=pair, note=note, exact=True)
        for coeff in ((1.0,) * count, (1.0, -2.0, 0.5, 0.25)[:count]):
            a, pair = attrs(operation="SUM", coeff=coeff, index=None), [(count - 1, 0)]
            yield m.example("eltwise.forward_relu", xs, [shape], a, inplace=pair, note=f"SUM {coeff}")
