"""Filters of one channel each, factors and constants that span some axes, images in another size."""

from __future__ import annotations

from collections.abc import Iterator

from tests.support.op_examples.maker import Example, Maker, attrs


def depthwise(m: Maker) -> Iterator[Example]:
    for n, c, size, k, s, p, d in [
        (2, 7, (9, 10), (3, 3), (1, 1), (1, 1), (1, 1)),
        (2, 33, (7, 5), (3, 3), (2, 2), (1, 1), (1, 1)),
        (1, 20, (6, 11), (4, 2), (2, 3), (2, 0), (1, 2)),
        (4, 64, (28, 28), (3, 3), (1, 1), (1, 1), (1, 1)),
    ]:
        a = attrs(kernel=k, stride=s, pad=p, dilation=d, group=c)
        out = ((x + 2 * q - (e * (f - 1) + 1)) // t + 1 for x, q, e, f, t in zip(size, p, d, k, s, strict=True))
        x, w, b, dy = m.normal(n, c, *size), m.normal(c, 1, *k), m.normal(c), m.normal(n, c, *out)
        note = f"depthwise, stride {s} pad {p} dilation {d}"
        yield m.example("convolution.forward", [x, w], [dy.shape], a, note=note)
        yield m.example("convolution.forward_relu", [x, w, b], [dy.shape], a, note=note)
        yield m.example("convolution.backward_filter", [x, dy], [w.shape], a, note=note)
        yield m.example("convolution.backward_data", [w, dy], [x.shape], a, note=note)


def broadcasts(m: Maker) -> Iterator[Example]:
    for shape, axis, count in [
        ((3, 5, 6, 7), 0, 2),  # the factor of a squeeze-and-excitation block
        ((3, 5, 6, 7), 1, 1),
        ((3, 5, 6, 7), 1, 3),  # in another order than the images
        ((3, 5, 6, 7), 2, 1),
        ((3, 5, 6, 7), 3, 1),
        ((2, 17, 4, 3), 0, 4),
        ((2, 3, 4, 3, 5), 1, 4),  # a factor in the order of images, a tensor that is not
        ((2, 3, 2, 4, 3, 2), 1, 4),
        ((2, 1, 4, 1), 1, 2),
        ((5,), 0, 1),
        ((1,), 0, 1),
        ((4, 37), 0, 1),
        ((3, 40, 9), 1, 1),
        ((2, 3, 5), 0, 0),  # one element for all
        ((8, 40, 30, 12), 0, 2),
        ((4, 3, 90, 90), 0, 0),
        ((70, 1000), 0, 1),
        ((70, 1000), 1, 1),
    ]:
        over = shape[axis : axis + count] or (1,)
        x, dy, f, b, a = m.normal(*shape), m.normal(*shape), m.normal(*over), m.normal(*over), attrs(axis=axis)
        note = f"axis {axis}"
        yield m.example("broadcast.multiply", [x, f], [shape], a, inplace=[(0, 0)], note=note)
        yield m.example("broadcast.multiply", [x, f, b], [shape], a, inplace=[(0, 0)], note=note)
        yield m.example("broadcast.add", [x, b], [shape], a, inplace=[(0, 0)], note=note)
        yield m.example("broadcast.sum", [dy], [over], a, note=note)
        yield m.example("broadcast.sum_products", [x, dy], [over], a, note=note)


def resizes(m: Maker) -> Iterator[Example]:
    for n, c, size, out, begin, end in [
        (2, 3, (5, 7), (9, 13), 0, 0),
        (2, 17, (9, 6), (4, 11), 0, 0),
        (1, 5, (7, 8), (3, 5), 2, 1),
        (3, 1, (1, 4), (5, 1), 0, 0),
        (1, 9, (6, 6), (6, 6), 0, 0),
        (2, 40, (33, 30), (65, 59), 0, 0),
        (8, 64, (12, 12), (45, 50), 0, 0),
    ]:
        old = tuple(h - begin - end for h in size)
        step = tuple(h - 1 if o > 1 else 0 for h, o in zip(old, out, strict=True))
        a = attrs(method="BILINEAR", step=step, over=tuple(max(1, o - 1) for o in out), begin=(begin, begin),
                  size=old)  # fmt: skip
        yield m.example("resize.forward", [m.normal(n, c, *size)], [(n, c, *out)], a, note=f"to {out}")
        yield m.example("resize.backward", [m.normal(n, c, *out)], [(n, c, *size)], a, note=f"to {out}")
    for n, c, h, w, scale in [(2, 3, 5, 4, 2), (1, 20, 3, 7, 3), (2, 4, 1, 1, 5), (4, 50, 20, 20, 2)]:
        a = attrs(method="NEAREST", step=(1, 1), over=(scale, scale), begin=(0, 0), size=(0, 0))
        x, dy = m.normal(n, c, h, w), m.normal(n, c, h * scale, w * scale)
        yield m.example("resize.forward", [x], [dy.shape], a, note=f"by {scale}", exact=True)
        yield m.example("resize.backward", [dy], [x.shape], a, note=f"by {scale}")
