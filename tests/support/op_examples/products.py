"""Products: convolutions and inner products."""

from __future__ import annotations

from collections.abc import Iterator

from tests.support.op_examples.maker import Example, Maker, attrs


def convolutions(m: Maker) -> Iterator[Example]:
    geometries = [  # n, c, h, w, outputs, (kh, kw), (sh, sw), (ph, pw), (dh, dw), group
        (2, 3, 9, 10, 8, (3, 3), (1, 1), (1, 1), (1, 1), 1),
        (3, 1, 8, 8, 16, (5, 5), (1, 1), (0, 0), (1, 1), 1),
        (2, 16, 12, 7, 32, (3, 3), (2, 2), (1, 1), (1, 1), 1),
        (2, 8, 9, 10, 12, (5, 3), (2, 1), (2, 0), (1, 1), 2),
        (2, 32, 7, 7, 16, (1, 1), (1, 1), (0, 0), (1, 1), 1),
        (2, 5, 9, 9, 7, (3, 3), (2, 2), (2, 2), (2, 2), 1),
        (2, 32, 9, 9, 32, (3, 3), (1, 1), (2, 2), (2, 2), 1),
        (2, 6, 9, 9, 6, (3, 3), (1, 1), (1, 1), (1, 1), 6),
        (1, 3, 31, 29, 24, (11, 11), (4, 4), (0, 0), (1, 1), 1),
        (2, 48, 6, 6, 32, (5, 5), (1, 1), (2, 2), (1, 1), 2),
        (4, 32, 28, 28, 64, (3, 3), (1, 1), (1, 1), (1, 1), 1),
    ]
    for _ in range(6):
        r, g = m.random.integers, int(m.random.integers(1, 4))
        k, s, d = ((int(a), int(b)) for a, b in (r(1, 6, 2), r(1, 4, 2), r(1, 3, 2)))
        p = int(r(0, k[0])), int(r(0, k[1]))
        h, w = (int(r(0, 8)) + d[i] * (k[i] - 1) + 1 for i in range(2))
        geometries.append((int(r(1, 4)), g * int(r(1, 9)), h, w, g * int(r(1, 9)), k, s, p, d, g))
    for geometry in geometries:
        yield from convolution(m, *geometry)


def convolution(m: Maker, n, c, h, w, o, k, s, p, d, g) -> Iterator[Example]:
    """All passes of a convolution of n images with c channels to o outputs: kernel, stride, pad, dilation, group."""
    a = attrs(kernel=k, stride=s, pad=p, dilation=d, group=g)
    oh, ow = ((x + 2 * q - (e * (f - 1) + 1)) // t + 1 for x, q, e, f, t in zip((h, w), p, d, k, s, strict=True))
    x, weights, bias, dy = m.normal(n, c, h, w), m.normal(o, c // g, *k), m.normal(o), m.normal(n, o, oh, ow)
    note = f"stride {s} pad {p} dilation {d} group {g}"
    yield m.example("convolution.forward", [x, weights, bias], [dy.shape], a, note=note)
    yield m.example("convolution.forward", [x, weights], [dy.shape], a, note=note)
    yield m.example("convolution.backward_filter", [x, dy], [weights.shape], a, note=note)
    yield m.example("convolution.backward_data", [weights, dy], [x.shape], a, note=note)
    yield m.example("convolution.backward_bias", [dy], [bias.shape], a, note=note)


def products(m: Maker) -> Iterator[Example]:
    for x_shape, w_shape in [
        ((4, 33), (9, 33)),
        ((3, 7, 5, 6), (11, 7, 5, 6)),
        ((1, 64), (32, 64)),
        ((17, 3, 1, 1), (5, 3, 1, 1)),
        ((32, 64, 4, 4), (300, 64, 4, 4)),
        ((1030, 9), (21, 9)),
    ]:
        n, o = x_shape[0], w_shape[0]
        x, w, b, dy = m.normal(*x_shape), m.normal(*w_shape), m.normal(o), m.normal(n, o)
        yield m.example("inner_product.forward", [x, w, b], [(n, o)])
        yield m.example("inner_product.forward", [x, w], [(n, o)])
        yield m.example("inner_product.backward_filter", [x, dy], [w_shape])
        yield m.example("inner_product.backward_data", [w, dy], [x_shape])
        yield m.example("inner_product.backward_bias", [dy], [(o,)])
