"""Products of rows and of pairs of matrices, normalized rows, rows by their numbers, sums and largest elements."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from tests.support.op_examples.maker import Example, Maker, attrs


def algebra(m: Maker) -> Iterator[Example]:
    yield from _rows_of_products(m)
    yield from _matrices(m)
    yield from _normalized(m)
    yield from _grouped(m)
    yield from _embedded(m)
    yield from _summed(m)
    yield from _largest(m)


def _rows_of_products(m: Maker) -> Iterator[Example]:
    """Inner products of tensors with several axes of rows."""
    for rows, k, o in [((2, 5), 9, 4), ((3, 7, 2, 2), 6, 5), ((), 33, 17), ((4, 50), 64, 96)]:
        x, w, b, dy = m.normal(*rows, k), m.normal(o, k), m.normal(o), m.normal(*rows, o)
        yield m.example("inner_product.forward", [x, w, b], [dy.shape])
        yield m.example("inner_product.forward_relu", [x, w, b], [dy.shape])
        yield m.example("inner_product.backward_filter", [x, dy], [w.shape])
        yield m.example("inner_product.backward_data", [w, dy], [x.shape])
        yield m.example("inner_product.backward_bias", [dy], [(o,)])


def _matrices(m: Maker) -> Iterator[Example]:
    """Every way to transpose, around the ends of tiles, panels and blocks."""
    geometries = [  # batch, rows, depth, columns
        ((), 1, 1, 1), ((2, 1, 3), 7, 5, 9), ((5,), 12, 33, 16), ((2,), 65, 17, 70), ((3,), 33, 130, 31),
        ((), 70, 300, 270), ((2,), 13, 64, 65), ((8,), 49, 32, 49),
    ]  # fmt: skip
    for lead, rows, depth, columns in geometries:
        batch = math.prod(lead)
        for turn_a, turn_b in [(False, False), (False, True), (True, False), (True, True)]:
            a = m.normal(*lead, *((depth, rows) if turn_a else (rows, depth)))
            b = m.normal(*lead, *((columns, depth) if turn_b else (depth, columns)))
            scale = 1.0 if turn_a else 0.375
            sizes = dict(batch=batch, rows=rows, depth=depth, columns=columns)
            g = attrs(**sizes, transpose_a=turn_a, transpose_b=turn_b, scale=scale)
            note = f"{'a' if turn_a else ''}{'b' if turn_b else ''} transposed"
            yield m.example("matmul.forward", [a, b], [(*lead, rows, columns)], g, note=note)
            if batch == 1:
                yield m.example("matmul.forward", [a, b, m.normal(columns)], [(*lead, rows, columns)], g, note=note)


def _normalized(m: Maker) -> Iterator[Example]:
    layouts = [  # shape, axes of a row
        ((3, 5), (1, 2)), ((2, 3, 70), (2, 3)), ((2, 5, 4, 3), (1, 4)), ((2, 5, 4, 3), (2, 4)), ((2, 5, 4, 3), (3, 4)),
        ((2, 5, 4, 3), (1, 2)), ((2, 3, 4), (1, 2)), ((2, 3, 2, 2, 3), (3, 5)), ((4,), (0, 1)), ((3, 4), (2, 2)),
        ((70, 3, 33), (2, 3)), ((2, 37, 21, 20), (2, 4)), ((2, 21, 20, 20), (1, 4)), ((64, 200), (1, 2)),
    ]  # fmt: skip
    for shape, (first, last) in layouts:
        x, dy = m.normal(*shape) + 3, m.normal(*shape)
        kept = tuple(1 if first <= i < last else n for i, n in enumerate(shape))
        length = math.prod(shape[first:last])
        # the parameters of a row that is a whole image lie as an image
        gamma_shape = (1, *shape[1:]) if len(shape) == 4 and (first, last) == (1, 4) else (length,)
        gamma, beta = m.normal(*gamma_shape), m.normal(*gamma_shape)
        rows = tuple(range(first, last))
        mean = x.mean(rows, keepdims=True, dtype=np.float32)
        inverse = (1 / np.sqrt(((x - mean) ** 2).mean(rows, keepdims=True) + 0.01)).astype(np.float32)
        for divisor, centred in [
            ("VARIANCE", True),
            ("DEVIATION", True),
            ("NONE", True),
            ("NORM", False),
            ("VARIANCE", False),
        ]:
            a, note = attrs(first=first, last=last, centred=centred, divisor=divisor, eps=0.01), f"by {divisor}"
            outs = [shape] if divisor == "NONE" else [shape, kept]
            yield m.example("row_norm.forward", [x], outs, a, inplace=[(0, 0)], note=note)
            y = (x - mean) * inverse if centred else x * inverse / 2
            reads = [dy] if divisor == "NONE" else [y.astype(np.float32), dy, inverse]
            pairs = [(len(reads) > 1, 0)]
            yield m.example("row_norm.backward_data", reads, [shape], a, inplace=pairs, note=note)
        a = attrs(first=first, last=last, centred=True, divisor="VARIANCE", eps=0.01)
        yield m.example("row_norm.forward", [x, gamma, beta], [shape, kept, kept], a, inplace=[(0, 0)], note="scaled")
        reads, pairs = [x, dy, inverse, mean, gamma], [(1, 0), (0, 0)]
        yield m.example("row_norm.backward_data", reads, [shape], a, inplace=pairs, note="scaled")
        outs = [gamma.shape] * 2
        yield m.example("row_norm.backward_filter", [x, dy, inverse, mean], outs, a, note="scaled")


def _grouped(m: Maker) -> Iterator[Example]:
    for shape, groups in [
        ((3, 6), 2), ((2, 6, 5), 3), ((2, 6, 4, 3), 3), ((2, 6, 4, 3), 6), ((2, 6, 4, 3), 1), ((3, 4, 2, 3, 3), 2),
        ((2, 37, 21, 20), 37), ((2, 48, 30, 31), 4), ((5, 33, 9, 9), 11), ((2, 3, 9000), 3), ((1, 40, 40, 40), 8),
    ]:  # fmt: skip
        x, dy, gamma, beta = m.normal(*shape) + 3, m.normal(*shape), m.normal(shape[1]), m.normal(shape[1])
        rows = x.reshape(shape[0], groups, -1)
        mean = rows.mean(2, dtype=np.float32)
        inverse = (1 / np.sqrt(rows.var(2) + 0.01)).astype(np.float32)
        a, kept, sums = attrs(groups=groups, eps=0.01), [mean.shape] * 2, [shape[:2]] * 2
        reads, pairs = [x, dy, inverse, mean], [(1, 2), (0, 2)]
        for scale in ([], [gamma, beta]):
            note = f"{groups} groups{', scaled' if scale else ''}"
            yield m.example("group_norm.forward", [x, *scale], [shape, *kept], a, inplace=[(0, 0)], note=note)
            given = [*reads, *scale[:1]]
            yield m.example("group_norm.backward", given, [*sums, shape], a, inplace=pairs, note=note)
        yield m.example("group_norm.backward", reads, sums, a, note="sums alone")


def _embedded(m: Maker) -> Iterator[Example]:
    for shape, rows, columns in [
        ((5,), 3, 4),
        ((2, 3), 9, 5),
        ((7, 1, 3, 1), 4, 3),
        ((40,), 11, 257),
        ((4, 100), 50, 96),
    ]:
        index = m.random.integers(0, rows, shape).astype(np.int32)
        w, dy = m.normal(rows, columns), m.normal(*shape, columns)
        yield m.example("batch_reindex.forward", [w, index], [dy.shape], exact=True)
        yield m.example("batch_reindex.backward", [index, dy], [w.shape], exact=True)


def _summed(m: Maker) -> Iterator[Example]:
    for shape, axis in [
        ((3, 5), 1), ((2, 5, 4, 3), 1), ((2, 5, 4, 3), 2), ((2, 5, 4, 3), 3), ((2, 5, 4, 3), 0), ((2, 3, 2, 2, 3), 3),
        ((7,), 0), ((3, 4, 33), 2), ((9, 1), 1), ((2, 37, 21, 20), 2), ((100, 300), 1), ((3, 70, 60), 0),
    ]:  # fmt: skip
        x = m.normal(*shape)
        lines = len(shape) == 4 and axis == 3
        sums = (*shape[:3], 1) if lines else (shape[:axis] or (1,))
        for operation in ("SUM", "ASUM", "SUMSQ"):
            a = attrs(operation=operation, coeff=0.25, axis=axis)
            yield m.example("reduction.forward", [x], [sums], a, note=f"{operation} from axis {axis}")
            saved = [] if operation == "SUM" else [x]
            note, pairs = f"{operation} from axis {axis}", [] if operation == "SUM" else [(0, 0)]
            reads = [*saved, m.normal(*sums)]
            yield m.example("reduction.backward", reads, [shape], a, inplace=pairs, note=note, exact=True)


def _largest(m: Maker) -> Iterator[Example]:
    for shape, axis, k in [
        ((3, 9), 1, 2), ((2, 5, 4, 3), 1, 3), ((2, 5, 4, 3), 2, 1), ((2, 5, 4, 3), 3, 3), ((2, 5, 4, 3), 0, 2),
        ((2, 3, 70), 2, 5), ((2, 37, 21, 20), 1, 1), ((64, 200), 1, 5), ((2, 3, 2, 2, 3), 1, 3),
    ]:  # fmt: skip
        x = np.round(m.normal(*shape) * 2) / 2  # some are equal
        for values in (False, True):
            a, note = attrs(top_k=k, out_max_val=values, axis=axis), f"{'values' if values else ''} axis {axis} top {k}"
            top = (*shape[:axis], k, *shape[axis + 1 :])
            yield m.example("argmax.forward", [x], [top], a, note=note, exact=True)
    for shape, top in [
        ((3, 9), (3, 1, 4)),
        ((3, 2, 5), (3, 1, 4)),
        ((3, 9), (3, 1, 4, 1)),
        ((3, 2, 2, 2, 2), (3, 1, 4, 1, 1)),
    ]:
        x = np.round(m.normal(*shape))
        for values in (False, True):
            a = attrs(top_k=4, out_max_val=values, axis=None)
            outs = [(top[0], 2 if values else 1, *top[2:])]
            yield m.example("argmax.forward", [x], outs, a, note=f"{'values' if values else ''} of samples", exact=True)
