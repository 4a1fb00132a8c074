"""Pooling."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tests.support.op_examples.maker import Example, Maker, attrs


def poolings(m: Maker) -> Iterator[Example]:
    geometries = [  # n, c, h, w, kernel, stride, pad
        (2, 7, 8, 8, (2, 2), (2, 2), (0, 0)),
        (2, 16, 11, 10, (3, 3), (2, 2), (0, 0)),
        (2, 5, 12, 13, (3, 2), (2, 3), (1, 1)),
        (3, 4, 7, 5, (7, 5), (1, 1), (0, 0)),
        (2, 3, 9, 9, (3, 3), (1, 1), (1, 1)),
        (1, 3, 10, 10, (5, 5), (3, 3), (2, 2)),
        (1, 3, 19, 20, (16, 16), (2, 2), (0, 0)),  # 256 positions: still a byte to us, an int32 to the library
        (1, 3, 20, 20, (17, 17), (2, 2), (0, 0)),
        (2, 3, 9, 9, (2, 2), (3, 3), (0, 0)),
        (2, 64, 28, 28, (3, 3), (2, 2), (0, 0)),
    ]
    for n, c, h, w, k, s, p in geometries:
        o = tuple(ceil_mode(*axis) for axis in zip((h, w), k, s, p, strict=True))
        x, dy = m.normal(n, c, h, w), m.normal(n, c, *o)
        note = f"kernel {k} stride {s} pad {p}"
        a = attrs(method="AVE", kernel=k, stride=s, pad=p, saved=None)
        yield m.example("pooling.forward", [x], [dy.shape], a, note=f"AVE {note}")
        yield m.example("pooling.backward", [dy], [x.shape], a, note=f"AVE {note}")
        a = attrs(method="MAX", kernel=k, stride=s, pad=p, saved="index")
        x = np.round(x * 4) / 4  # ties
        dtype = "uint8" if k[0] * k[1] <= 256 else "int32"
        yield m.example("pooling.forward", [x], [dy.shape], a, note=f"MAX {note}", exact=True)
        yield m.example("pooling.forward", [x], [dy.shape] * 2, a, dtypes={1: dtype}, note=f"MAX {note}", exact=True)
        index = some_index(m, (h, w), o, k, s, p, dy.shape, dtype)
        yield m.example("pooling.backward", [index, dy], [x.shape], a, note=f"MAX {note}")


def ceil_mode(h: int, k: int, s: int, p: int) -> int:
    o = -(-(h + 2 * p - k) // s) + 1
    return o - 1 if (p > 0 and (o - 1) * s >= h + p) or (o - 1) * s >= h + p else o


def some_index(m: Maker, size, o, k, s, p, shape, dtype) -> np.ndarray:
    """Random positions within windows, as MAX pooling's index, that lie on the image and not in its padding."""
    index = np.empty(shape, dtype)
    for i in range(o[0]):
        for j in range(o[1]):
            on = [
                y * k[1] + x
                for y in range(k[0])
                for x in range(k[1])
                if 0 <= i * s[0] - p[0] + y < size[0] and 0 <= j * s[1] - p[1] + x < size[1]
            ]
            index[:, :, i, j] = m.random.choice(on, shape[:2])
    return index
