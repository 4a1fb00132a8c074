"""Examples besides those of tests/support/op_examples: ops of the cuda kernels alone, and sizes at which their
vectors, threads and blocks end."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import numpy as np

from minidnn.backends.philox import words
from minidnn.backends.reference.pooling import maximum
from minidnn.programs.sum_tree import SumAttrs
from tests.support.op_examples import Example, Maker, attrs, examples, once, sums
from tests.support.op_examples.windows import ceil_mode


@cache
def all_examples() -> tuple[Example, ...]:
    """The examples of all kinds that the cuda backend has kernels for."""
    return *examples(), *once(more())


def more(seed: int = 1) -> Iterator[Example]:
    m = Maker(seed)
    yield from _elementwise(m)
    yield from sums(m, [(size,) for size in SIZES])
    yield from _poolings(m)
    yield from _joins(m)
    yield from _dropouts(m)


SIZES = (1, 3, 4, 5, 255, 256, 1023, 1024, 1027, 3001)  # around the ends of groups of four, threads and blocks


def _elementwise(m: Maker) -> Iterator[Example]:
    for size in SIZES:
        x, y = np.round(m.normal(size) * 2) / 2, m.normal(size)  # some are zero
        a = attrs(negative_slope=0.25, saved="mask")
        dtypes = {1: "uint8"}
        yield m.example("relu.forward", [x], [(size,)] * 2, a, inplace=[(0, 0)], dtypes=dtypes, note="mask", exact=True)
        mask = (x > 0).astype(np.uint8)
        yield m.example("relu.backward", [mask, y], [(size,)], a, inplace=[(1, 0)], note="saved mask", exact=True)
        yield m.example("gradient.add", [x, y], [(size,)], inplace=[(0, 0)], exact=True)
        waiting, micro = m.normal(2 * size), np.array([4 * 7 + 1], np.int64)
        yield m.example("gradient.accumulate", [waiting, y, micro], [0], SumAttrs(4), exact=True)
        yield m.example("gradient.total", [waiting, y], [(size,)], SumAttrs(4), inplace=[(1, 0)], exact=True)
        yield m.example("identity.forward", [x], [(size,)], inplace=[(0, 0)], exact=True)
        for count in (2, 3, 4, 5, 7, 8, 20) if size in (5, 1027) else (2, 5):  # operands
            xs = [m.normal(size) for _ in range(count)]
            coeff = tuple(float(c) for c in m.random.integers(-3, 4, count) / 2)
            ties = [np.round(t) for t in xs]
            for over in {0, 1, count - 1}:
                pairs = [(over, 0)]
                a = attrs(operation="SUM", coeff=coeff, index=None)
                yield m.example("eltwise.forward", xs, [(size,)], a, inplace=pairs, note=f"SUM of {count} over {over}")
                yield m.example("eltwise.forward_relu", xs, [(size,)], a, inplace=pairs, note=f"{count} over {over}")
                a = attrs(operation="PROD", coeff=(1.0,) * count, index=None)
                yield m.example("eltwise.forward", xs, [(size,)], a, inplace=pairs, note=f"PROD of {count}")
            a = attrs(operation="MAX", coeff=(1.0,) * count, index=None)
            note = f"MAX of {count}"
            yield m.example("eltwise.forward", ties, [(size,)] * 2, a, dtypes=dtypes, note=note, exact=True)
            yield m.example("eltwise.forward", ties, [(size,)], a, inplace=[(count - 1, 0)], note=note, exact=True)
            a = attrs(operation="PROD", coeff=(1.0,) * count, index=count - 1)
            yield m.example("eltwise.backward", xs, [(size,)], a, inplace=[(count - 1, 0)], note=f"PROD of {count}")
    for shape in [(3, 4, 5), (2, 3, 2, 2, 2), (5, 1), (2, 5, 4, 4), (2, 12, 3, 3), (1, 2048)]:  # channels last or not
        c = shape[1]
        x, gamma, beta = m.normal(*shape), m.normal(c), m.normal(c)
        yield m.example("scale.forward", [x, gamma, beta], [shape], inplace=[(0, 0)])
        yield m.example("scale.forward", [x, gamma], [shape], inplace=[(0, 0)])
        yield m.example("scale.backward_data", [gamma, x], [shape], inplace=[(1, 0)])


def _poolings(m: Maker) -> Iterator[Example]:
    for n, c, size, k, s, p in [
        ((2, 8, (9, 7), (3, 3), (2, 2), (1, 1))),
        ((1, 4, (1, 1), (1, 1), (1, 1), (0, 0))),
        ((2, 5, (7, 7), (3, 3), (2, 2), (0, 0))),
        ((1, 12, (6, 9), (2, 3), (1, 1), (0, 2))),
        ((1, 4, (20, 20), (17, 17), (3, 2), (8, 8))),
        ((1, 2, (12, 5), (2, 2), (5, 1), (1, 0))),  # some places of x are in no window
    ]:
        x = np.round(m.normal(n, c, *size) * 4) / 4
        for out in {tuple(ceil_mode(*axis) for axis in zip(size, k, s, p, strict=True)),
                    tuple((h + 2 * q - f) // t + 1 for h, f, t, q in zip(size, k, s, p, strict=True))}:  # fmt: skip
            dy = m.normal(n, c, *out)
            geometry = dict(kernel=k, stride=s, pad=p)
            note = f"kernel {k} stride {s} pad {p} out {out}"
            a = attrs(method="MAX", saved="index", **geometry)
            y, index = maximum(x, a, out)
            index = index.astype("uint8" if k[0] * k[1] <= 256 else "int32")
            yield m.example("pooling.forward", [x], [dy.shape], a, note=f"MAX {note}", exact=True)
            dtypes = {1: str(index.dtype)}
            yield m.example("pooling.forward", [x], [dy.shape] * 2, a, dtypes=dtypes, note=f"MAX {note}", exact=True)
            yield m.example("pooling.backward", [index, dy], [x.shape], a, note=f"MAX {note}")
            for saved, reads in (("x", [x, dy]), ("xy", [x, y, dy])):
                a = attrs(method="MAX", saved=saved, **geometry)
                yield m.example("pooling.forward", [x], [dy.shape], a, note=f"MAX {note} for {saved}", exact=True)
                yield m.example("pooling.backward", reads, [x.shape], a, note=f"MAX {note} from {saved}")
            a = attrs(method="AVE", saved=None, **geometry)
            yield m.example("pooling.forward", [x], [dy.shape], a, note=f"AVE {note}")
            yield m.example("pooling.backward", [dy], [x.shape], a, note=f"AVE {note}")


def _joins(m: Maker) -> Iterator[Example]:
    for axis, shapes in [
        (1, [(2, c, 3, 3) for c in (4, 8, 12, 4)]),  # all starts are multiples of four
        (1, [(2, c, 3, 3) for c in (4, 6, 8)]),  # one start is not a multiple of four
        (3, [(2, 3, 4, w) for w in (1, 5, 2)]),
        (0, [(n, 8, 2, 2) for n in (1, 2)]),
        (1, [(3, 4), (3, 8)]),
        (0, [(3, 4), (2, 4)]),
        (0, [(5,), (9,)]),
        (1, [(2, 3, 4), (2, 1, 4)]),
        (2, [(2, 3, 4), (2, 3, 3)]),
        (3, [(2, 3, 2, 2, 2), (2, 3, 2, 1, 2)]),
        (1, [(2, c, 1, 1) for c in range(1, 14)]),
        (1, [(2, 1 + c % 3, 3, 1) for c in range(230)]),  # more than one launch takes
        (1, [(7, 4 * c, 9, 13) for c in (1, 5, 2)]),  # several pieces
    ]:
        xs = [m.normal(*s) for s in shapes]
        y = np.concatenate(xs, axis)
        starts = tuple(int(s) for s in np.cumsum([0] + [s[axis] for s in shapes])[:-1])
        a = attrs(axis=axis, starts=starts)
        yield m.example("concat.forward", xs, [y.shape], a, note=f"axis {axis}", exact=True)
        yield m.example("concat.backward", [y], shapes, a, note=f"axis {axis}", exact=True)
        a = attrs(axis=axis, starts=starts[1:2])
        yield m.example("concat.backward", [y], shapes[1:2], a, note=f"axis {axis}, second", exact=True)
    for shape, to in [
        ((2, 3, 4, 5), (2, 12, 1, 5)),
        ((2, 3, 4, 5), (6, 4, 5, 1)),
        ((2, 16, 10, 10), (4, 20, 8, 5)),
        ((2, 3, 4, 5), (120,)),
        ((2, 64, 7, 7), (2, 3136)),
        ((2, 5, 1, 1), (2, 5)),
        ((2, 1, 3, 4), (2, 12)),
        ((12,), (12,)),
    ]:
        yield m.example("flatten.forward", [m.normal(*shape)], [to], note=f"to {to}", exact=True)
        yield m.example("flatten.backward", [m.normal(*to)], [shape], note=f"to {shape}", exact=True)


def _dropouts(m: Maker) -> Iterator[Example]:
    for shape in [(1,), (2, 3), (5,), (2, 8, 3, 3), (2, 6, 2, 2), (2, 3, 4), (1, 4, 1, 1), (4, 20, 13, 11)]:
        for ratio, seed, key, block in (
            (0.5, (1 << 40) + 7, 0xFFFFFFFF, (3 << 32) - 1),
            (0.999, 0, 0, 0),
            (0.0, -3, 5, 1),
        ):
            x, at = m.normal(*shape), np.array([(1 << 31) + 1], np.int64)
            a = attrs(ratio=ratio, seed=seed, key=key, block=block)
            for kind in ("dropout.forward", "dropout.backward"):
                yield m.example(kind, [x, at], [shape], a, inplace=[(0, 0)], note=f"ratio {ratio}", exact=True)
        word = int(words(int(np.prod(shape)), 5, 3, 9)[-1])
        # the last value's random word equals the limit: it is kept
        a = attrs(ratio=word / 2**32, seed=5, key=9, block=0)
        reads = [m.normal(*shape), np.array([3], np.int64)]
        yield m.example("dropout.forward", reads, [shape], a, note="at the limit", exact=True)
