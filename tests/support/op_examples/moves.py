"""Moves of elements, and slices."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from minidnn.program import Slice
from tests.support.op_examples.maker import Example, Maker, attrs


def joins(m: Maker) -> Iterator[Example]:
    for axis, shapes in [
        (1, [(2, 3, 4, 5), (2, 16, 4, 5), (2, 1, 4, 5)]),
        (0, [(2, 3, 4, 5), (1, 3, 4, 5)]),
        (2, [(2, 3, 4, 5), (2, 3, 1, 5)]),
        (1, [(3, 4), (3, 7)]),
        (1, [(2, 64, 28, 28), (2, 48, 28, 28)]),
    ]:
        xs = [m.normal(*s) for s in shapes]
        y = np.concatenate(xs, axis)
        yield m.example("concat.forward", xs, [y.shape], attrs(axis=axis), exact=True)
        starts = tuple(int(s) for s in np.cumsum([0] + [s[axis] for s in shapes])[:-1])
        a = attrs(axis=axis, starts=starts)
        yield m.example("concat.backward", [y], shapes, a, exact=True)
        yield m.example("concat.backward", [y], shapes[1:2], attrs(axis=axis, starts=starts[1:2]), exact=True)
    for shape, to in [((3, 5, 6, 7), (3, 210)), ((2, 3, 4), (2, 12)), ((4, 5), (4, 5)), ((2, 3, 1, 4), (6, 4)),
                      ((2, 3, 4, 5), (2, 3, 20)), ((2, 3, 4, 5, 2), (2, 3, 4, 10))]:  # fmt: skip
        yield m.example("flatten.forward", [m.normal(*shape)], [to], exact=True)
        yield m.example("flatten.backward", [m.normal(*to)], [shape], exact=True)


def slices(m: Maker) -> Iterator[Example]:
    """Fused ops of which some reads are slices of images with more channels."""
    for (n, c, h, w), whole, start in [
        ((2, 3, 4, 5), 8, 2), ((2, 3, 4, 5), 3, 0), ((1, 1, 1, 1), 2, 1), ((3, 8, 5, 2), 20, 8), ((3, 8, 5, 2), 20, 3),
        ((3, 8, 5, 2), 21, 13), ((2, 40, 3, 1), 41, 1), ((5, 17, 3, 3), 40, 20), ((2, 48, 28, 28), 144, 64),
        ((4, 6, 31, 30), 9, 3), ((8, 96, 27, 27), 200, 100), ((8, 33, 28, 28), 64, 31),
    ]:  # fmt: skip
        for of_y in {whole, c}:
            y, dy = np.maximum(m.normal(n, of_y, h, w), 0), m.normal(n, whole, h, w)
            note = f"from {start}"
            yield m.example("relu.backward_bias_slice", [y, dy], [(n, c, h, w), (c,)], Slice(start), note=note)
        x, b = m.normal(n, whole, h, w), m.normal(n, c, h, w)
        a, note = Slice(start), f"from {start}"
        yield m.example("gradient.add_slice", [x, b], [b.shape], a, inplace=[(1, 0)], note=note, exact=True)
        note = f"from {start}, without y"
        yield m.example("relu.backward_bias_slice", [dy], [(n, c, h, w), (c,)], Slice(start), note=note)


def samples(m: Maker) -> Iterator[Example]:
    for n, sample, crop, mean, scale in [
        (3, (3, 9, 11), (7, 7), (104.5, 117.25, 123.125), 0.017),
        (2, (1, 8, 8), (8, 8), (), 1.0),
        (2, (4, 6, 5), (5, 5), (1.5, 2.5, 3.5, 4.5), 0.3),
        (2, (6, 5, 5), (3, 3), (7.7,), 1 / 3),
        (5, (1, 1, 13), None, (0.3,), 0.1),
        (40, (3, 40, 36), (33, 33), (104.0, 117.0, 123.0), 0.0078125),
    ]:
        channels, height, width = sample
        shape = (n, width) if crop is None else (n, channels, *crop)
        rows, columns = (0, 0) if crop is None else (height - crop[0], width - crop[1])
        windows = np.stack([m.random.integers(0, most + 1, n) for most in (rows, columns, 1)], 1).astype(np.int32)
        bytes_ = m.random.integers(0, 256, (n, channels * height * width)).astype(np.uint8)
        for raw in (bytes_, m.normal(*bytes_.shape) * 100):
            a = attrs(sample=sample, mean=mean, scale=scale)
            yield m.example("input.transform", [raw, windows], [shape], a, note=f"of {raw.dtype}", exact=True)
