"""Moves of elements, and slices."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from minidnn.layers.relative_position_bias import RelativeBiasAttrs
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
        starts = tuple(int(s) for s in np.cumsum([0] + [s[axis] for s in shapes])[:-1])
        a = attrs(axis=axis, starts=starts)
        yield m.example("concat.forward", xs, [y.shape], a, exact=True)
        yield m.example("concat.backward", [y], shapes, a, exact=True)
        yield m.example("concat.backward", [y], shapes[1:2], attrs(axis=axis, starts=starts[1:2]), exact=True)
    for shape, to in [((3, 5, 6, 7), (3, 210)), ((2, 3, 4), (2, 12)), ((4, 5), (4, 5)), ((2, 3, 1, 4), (6, 4)),
                      ((2, 3, 4, 5), (2, 3, 20)), ((2, 3, 4, 5, 2), (2, 3, 4, 10))]:  # fmt: skip
        yield m.example("flatten.forward", [m.normal(*shape)], [to], exact=True)
        yield m.example("flatten.backward", [m.normal(*to)], [shape], exact=True)


def moves(m: Maker) -> Iterator[Example]:
    """Parts that do not cover the whole, boxes, axes in another order, tiles; of floats and of labels."""
    for axis, shape, parts in [
        (1, (2, 12, 3, 5), [(4, 4)]), (1, (2, 7, 3, 5), [(1, 2), (4, 1)]), (2, (3, 5, 9, 2), [(0, 2), (8, 1)]),
        (0, (6, 3), [(5, 1)]), (1, (3, 4, 6), [(1, 1), (2, 1)]), (1, (4, 96, 40, 40), [(32, 48)]),
    ]:  # fmt: skip
        lengths, a = [n for _, n in parts], attrs(axis=axis, starts=tuple(start for start, _ in parts))
        xs = [m.normal(*shape[:axis], n, *shape[axis + 1 :]) for n in lengths]
        yield m.example("concat.forward", xs, [shape], a, note="with gaps", exact=True)
    labels = m.random.integers(0, 1 << 31, 12).astype(np.int32)
    a = attrs(axis=0, starts=(0, 4))
    yield m.example("concat.backward", [labels], [(4,), (8,)], a, dtypes={0: "int32", 1: "int32"}, exact=True)
    for shape, to in [
        ((2, 3, 4, 5), (4, 3, 2, 5)), ((3, 1, 4, 6), (3, 2, 2, 6)), ((2, 15, 64, 7), (2, 7, 64, 15)),
        ((2, 6, 4, 5), (2, 2, 12, 5)), ((2, 64, 12, 12), (2, 9216)), ((2, 3, 4, 5), (2, 3, 2, 2, 5)),
    ]:  # fmt: skip
        yield m.example("flatten.forward", [m.normal(*shape)], [to], note=f"to {to}", exact=True)
        yield m.example("flatten.backward", [m.normal(*to)], [shape], note=f"to {shape}", exact=True)
    yield m.example("flatten.forward", [m.normal(6, 8, 2)], [(3, 32)], inplace=[(0, 0)], note="in place", exact=True)
    for shape, start, size in [
        ((2, 3, 9, 11), (0, 0, 2, 3), (2, 3, 5, 7)), ((2, 5, 6, 4), (1, 1, 1, 1), (1, 3, 2, 3)),
        ((2, 3, 4, 5), (0, 0, 0, 0), (2, 3, 4, 5)), ((5, 6, 7), (0, 2, 0), (5, 3, 7)), ((9,), (4,), (5,)),
        ((3, 2, 4, 3, 2), (1, 0, 1, 1, 0), (2, 2, 2, 1, 2)), ((2, 1, 6, 6), (0, 0, 5, 5), (2, 1, 1, 1)),
        ((2, 64, 40, 40), (0, 16, 3, 4), (2, 32, 32, 32)), ((2, 48, 45, 45), (0, 0, 1, 2), (2, 48, 43, 43)),
    ]:  # fmt: skip
        a = attrs(start=start)
        yield m.example("crop.forward", [m.normal(*shape)], [size], a, note=f"from {start}", exact=True)
        yield m.example("crop.backward", [m.normal(*size)], [shape], a, note=f"to {shape}", exact=True)
    for shape, order in [
        ((2, 3, 4, 5), (0, 2, 3, 1)), ((2, 3, 4, 5), (3, 2, 1, 0)), ((2, 3, 4, 5), (0, 1, 2, 3)),
        ((2, 1, 4, 5), (0, 3, 1, 2)), ((3, 17, 5), (0, 2, 1)), ((37, 41), (1, 0)), ((1, 6, 1, 5), (2, 3, 0, 1)),
        ((2, 3, 2, 4, 3), (4, 1, 3, 0, 2)), ((2, 16, 32, 3), (0, 2, 1, 3)), ((4, 5, 3), (2, 0, 1)),
        ((4, 36, 38, 40), (0, 2, 3, 1)), ((3, 64, 33, 35), (0, 3, 1, 2)), ((2, 8, 24, 20, 15), (0, 2, 1, 4, 3)),
    ]:  # fmt: skip
        x, a = m.normal(*shape), attrs(order=order)
        for kind in ("permute.forward", "permute.backward"):
            yield m.example(kind, [x], [tuple(shape[i] for i in order)], a, note=f"{order}", exact=True)
    for shape, axis, tiles in [
        ((2, 3, 4, 5), 1, 3), ((2, 3, 4, 5), 0, 2), ((2, 3, 4, 5), 2, 2), ((2, 3, 4, 5), 3, 4), ((3, 1), 1, 70),
        ((3, 7), 0, 2), ((2, 3, 5), 1, 1), ((6, 2, 1, 1), 3, 5), ((2, 17, 3, 2), 1, 5), ((2, 48, 28, 28), 1, 3),
        ((3, 8, 40, 30), 2, 4),
    ]:  # fmt: skip
        y, a = [n * tiles if i == axis else n for i, n in enumerate(shape)], attrs(axis=axis, tiles=tiles)
        yield m.example("tile.forward", [m.normal(*shape)], [tuple(y)], a, note=f"axis {axis}", exact=True)
        yield m.example("tile.backward", [m.normal(*y)], [shape], a, note=f"axis {axis}")

    for shape, axis, shift in [
        ((2, 3, 4, 5), 1, 2), ((2, 3, 4, 5), 2, 0), ((2, 3, 4, 5), 3, 4), ((2, 3, 4, 5), 0, 1), ((9, 7), 1, 3),
        ((5,), 0, 4), ((3, 4, 5, 2, 3), 2, 1), ((2, 56, 56 * 24), 1, 3), ((40, 56, 24), 1, 53),
    ]:  # fmt: skip
        a = attrs(axis=axis, shift=shift)
        yield m.example("roll.forward", [m.normal(*shape)], [shape], a, note=f"{axis} by {shift}", exact=True)


def gathers(m: Maker) -> Iterator[Example]:
    """Windows as columns, rows by their numbers, and by how far two places are apart."""
    for a in [
        RelativeBiasAttrs(1, 1), RelativeBiasAttrs(3, 2), RelativeBiasAttrs(4, 3, 2, 3, 1),
        RelativeBiasAttrs(7, 3, 4, 4, 3), RelativeBiasAttrs(2, 5, 1, 1, 1),
    ]:  # fmt: skip
        w, y = m.normal((2 * a.side - 1) ** 2, a.heads), (a.down * a.across * a.heads, a.side**2, a.side**2)
        yield m.example("relative_bias.forward", [w], [y], a, exact=True)
        yield m.example("relative_bias.backward", [m.normal(*y)], [w.shape], a)
    for shape, k, s, p, d in [
        ((2, 3, 9, 11), (3, 2), (2, 3), (1, 0), (1, 2)), ((1, 1, 1, 1), (1, 1), (1, 1), (0, 0), (1, 1)),
        ((2, 5, 4, 4), (3, 3), (1, 1), (2, 2), (2, 2)), ((2, 2, 7, 3), (2, 1), (3, 2), (0, 1), (1, 1)),
        ((2, 24, 32, 30), (3, 3), (1, 1), (1, 1), (1, 1)),
    ]:  # fmt: skip
        o = [(shape[2 + i] + 2 * p[i] - d[i] * (k[i] - 1) - 1) // s[i] + 1 for i in range(2)]
        y, a = (shape[0], shape[1] * k[0] * k[1], *o), attrs(kernel=k, stride=s, pad=p, dilation=d)
        yield m.example("im2col.forward", [m.normal(*shape)], [y], a, note=f"kernel {k}", exact=True)
        yield m.example("im2col.backward", [m.normal(*y)], [shape], a, note=f"kernel {k}")
    for shape, n in [((3, 4, 2, 5), 7), ((5, 6), 1), ((4,), 9), ((1, 33), 3), ((9, 16, 20, 24), 6)]:
        index = m.random.integers(0, shape[0], n).astype(np.int32)
        yield m.example("batch_reindex.forward", [m.normal(*shape), index], [(n, *shape[1:])], exact=True)
        yield m.example("batch_reindex.backward", [index, m.normal(n, *shape[1:])], [shape])


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
