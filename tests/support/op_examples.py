"""Ops of every kind in odd geometries, with data, for tests of the backends.

At least one example of each kind is large, so that a temporary array would be noticed where allocations are counted. An
Example does not depend on a device; `place` puts its tensors into an arena as a machine does.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, make_dataclass, replace
from functools import cache
from itertools import product

import numpy as np

from minidnn.backends.reference.pooling import maximum
from minidnn.program import Algorithm, Op, Pass, Slice, Tensor
from minidnn.programs.fusion.each import joined


@cache
def _attrs_class(fields: tuple[str, ...]) -> type:
    return make_dataclass("Attrs", fields, frozen=True)


def attrs(**values):
    """Attributes of an op by name, hashable like a layer's."""
    return _attrs_class(tuple(values))(**values)


@dataclass(frozen=True, eq=False)
class Example:
    name: str
    op: Op
    data: dict[Tensor, np.ndarray]  # the values of the tensors that the op reads
    exact: bool = False  # results must have the same bits, as indices and copies do


class Maker:
    """Makes examples from one stream of random numbers."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)

    def normal(self, *shape: int) -> np.ndarray:
        return self.random.standard_normal(shape).astype(np.float32)

    def example(
        self,
        kind: str,
        reads: list[np.ndarray],
        writes: list[tuple[int, ...] | int],  # a shape, or which read is updated in place
        a=None,
        inplace: list[tuple[int, int]] = (),
        dtypes: dict[int, str] | None = None,
        note: str = "",
        exact: bool = False,
    ) -> Example:
        r = [Tensor(f"r{i}", x.shape, str(x.dtype)) for i, x in enumerate(reads)]
        w = [
            r[s] if isinstance(s, int) else Tensor(f"w{i}", s, (dtypes or {}).get(i, "float32"))
            for i, s in enumerate(writes)
        ]
        name = f"{kind}({', '.join('x'.join(map(str, x.shape)) for x in reads)}) {note}".strip()
        pairs = tuple((r[i], w[j]) for i, j in inplace)
        op = Op(kind, kind, "layer", Pass.FORWARD, tuple(r), tuple(w), a, pairs)
        return Example(name, op, dict(zip(r, reads, strict=True)), exact)


def place(
    device,
    example: Example,
    algorithm: Algorithm,
    shift: int = 0,
    together: bool = False,
    poison: int = 0xFF,
    off: int = 0,
):
    """Put the example's tensors into an arena and prepare its op. Returns (call, {tensor: logical view}).

    shift: moves every offset by so many times 256 bytes. together: writes share bytes with reads as far as the op
    permits. poison: the byte that fills the arena before, by default that of NaN. off: moves every offset by so many
    bytes more, off the multiples of 256 that plans have."""
    op = example.op
    taken: dict[Tensor, Tensor] = {}
    if together:
        for read, write in op.inplace:
            if write not in taken and read not in taken.values():
                taken[write] = read
    sizes = {t: -(-t.nbytes // 256) * 256 + 256 * shift for t in op.tensors if t not in taken}
    raw = np.full(sum(sizes.values()) + algorithm.workspace + 256 * shift + 4096, poison, np.uint8)
    at = -raw.ctypes.data % 4096 + 256 * shift + off
    views: dict[Tensor, np.ndarray] = {}
    for t, size in sizes.items():
        views[t] = device.array(raw[at : at + t.nbytes], t)
        at += size
    for write, read in taken.items():
        start = views[read].__array_interface__["data"][0] - raw.ctypes.data
        views[write] = device.array(raw[start : start + write.nbytes], write)
    for t, value in example.data.items():
        views[t][...] = value
    return device.prepare(op, algorithm, views, raw[at : at + algorithm.workspace]), views


@cache
def bare():
    """The cpu device as it is without a C compiler: oneDNN and NumPy alone."""
    from minidnn.backends.cpu import CpuDevice

    device = CpuDevice()
    device.native = None
    return device


def compiled(threads: int = 1):
    """The cpu device with our own kernels. If they cannot be compiled, the test is skipped, with the reason."""
    import pytest

    from minidnn.backends.cpu import CpuDevice

    device = CpuDevice(threads=threads)
    if device.native is None:
        pytest.skip(device.description)
    return device


def guarded(device, e: Example, algorithm: Algorithm) -> bool:
    """Run the example; whether the bytes around each tensor and the workspace stay as they were."""
    room = {t: np.full(t.nbytes + 8192, 0xA5, np.uint8) for t in e.op.tensors}
    workspace = np.full(algorithm.workspace + 8192, 0xA5, np.uint8)
    at = {t: -raw.ctypes.data % 256 + 256 for t, raw in room.items()}
    views = {t: device.array(raw[at[t] : at[t] + t.nbytes], t) for t, raw in room.items()}
    for t, x in e.data.items():
        views[t][...] = x
    start = -workspace.ctypes.data % 256 + 256
    device.prepare(e.op, algorithm, views, workspace[start : start + algorithm.workspace])()
    ends = [(raw, at[t], at[t] + t.nbytes) for t, raw in room.items()]
    ends.append((workspace, start, start + algorithm.workspace))
    return all((raw[:begin] == 0xA5).all() and (raw[end:] == 0xA5).all() for raw, begin, end in ends)


def run(device, example: Example, algorithm: Algorithm, **how) -> list[np.ndarray]:
    call, views = place(device, example, algorithm, **how)
    call()
    return [np.array(views[t]) for t in example.op.writes]


def expected(kernels, example: Example) -> list[np.ndarray]:
    """The example's results by `kernels`, the reference's."""
    arrays = {t: x.copy() for t, x in example.data.items()}
    for t in example.op.writes:
        arrays.setdefault(t, np.zeros(t.shape, t.dtype))
    kernels[example.op.kind](
        example.op.attrs, [arrays[t] for t in example.op.reads], [arrays[t] for t in example.op.writes]
    )
    return [arrays[t] for t in example.op.writes]


def together(of: list[Example], note: str = "", shared: tuple[int, ...] = ()) -> Example:
    """One example of an op that does the ops of all these, which are of one kind. `shared`: the reads that all have in
    common, those of the first."""
    ops, data = [], {}
    for k, e in enumerate(of):
        common = {e.op.reads[i]: of[0].op.reads[i] for i in shared}
        names = {t: replace(t, name=f"{t.name}.{k}") for t in e.op.tensors}
        names |= {t: replace(first, name=f"{first.name}.0") for t, first in common.items()}
        data = {names[t]: x for t, x in e.data.items()} | data
        reads, writes = (tuple(names[t] for t in side) for side in (e.op.reads, e.op.writes))
        ops.append(replace(e.op, name=f"{e.op.name}.{k}", reads=reads, writes=writes, inplace=()))
    op = joined(ops, ops[-1])
    return Example(f"{op.kind} of {len(of)} {note}".strip(), op, data, all(e.exact for e in of))


def examples(seed: int = 0) -> Iterator[Example]:
    """Examples of every kind, in several geometries each."""
    m = Maker(seed)
    yield from samples(Maker(seed + 1))
    yield from convolutions(m)
    yield from poolings(m)
    yield from products(m)
    yield from elementwise(m)
    yield from dropouts(m)
    yield from normalizations(m)
    yield from joins(m)
    yield from losses(m)
    yield from updates(m)
    yield from fused(m)
    yield from scaled(m)
    yield from sums(m)
    yield from channels(m)
    yield from several(m)
    yield from slices(Maker(seed + 2))


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
    for n, c, h, w, o, k, s, p, d, g in geometries:
        a = attrs(kernel=k, stride=s, pad=p, dilation=d, group=g)
        oh, ow = ((x + 2 * q - (e * (f - 1) + 1)) // t + 1 for x, q, e, f, t in zip((h, w), p, d, k, s, strict=True))
        x, weights, bias, dy = m.normal(n, c, h, w), m.normal(o, c // g, *k), m.normal(o), m.normal(n, o, oh, ow)
        note = f"stride {s} pad {p} dilation {d} group {g}"
        yield m.example("convolution.forward", [x, weights, bias], [dy.shape], a, note=note)
        yield m.example("convolution.forward", [x, weights], [dy.shape], a, note=note)
        yield m.example("convolution.backward_filter", [x, dy], [weights.shape], a, note=note)
        yield m.example("convolution.backward_data", [weights, dy], [x.shape], a, note=note)
        yield m.example("convolution.backward_bias", [dy], [bias.shape], a, note=note)


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
        o = tuple(_ceil_mode(*axis) for axis in zip((h, w), k, s, p, strict=True))
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


def _ceil_mode(h: int, k: int, s: int, p: int) -> int:
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


def products(m: Maker) -> Iterator[Example]:
    for x_shape, w_shape in [
        ((4, 33), (9, 33)),
        ((3, 7, 5, 6), (11, 7, 5, 6)),
        ((1, 64), (32, 64)),
        ((17, 3, 1, 1), (5, 3, 1, 1)),
        ((32, 64, 4, 4), (300, 64, 4, 4)),
    ]:
        n, o = x_shape[0], w_shape[0]
        x, w, b, dy = m.normal(*x_shape), m.normal(*w_shape), m.normal(o), m.normal(n, o)
        yield m.example("inner_product.forward", [x, w, b], [(n, o)])
        yield m.example("inner_product.forward", [x, w], [(n, o)])
        yield m.example("inner_product.backward_filter", [x, dy], [w_shape])
        yield m.example("inner_product.backward_data", [w, dy], [x_shape])
        yield m.example("inner_product.backward_bias", [dy], [(o,)])


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
        yield m.example("gradient.accumulate", [x, y], [0])
        yield m.example("gradient.clear", [], [shape], exact=True)
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
        for iteration in (0, 7, (1 << 40) + 3):
            x, at = m.normal(*shape), np.array([iteration], np.int64)
            a = attrs(ratio=0.4, seed=5, key=0x12345678)
            note = f"iteration {iteration}"
            yield m.example("dropout.forward", [x, at], [shape], a, inplace=[(0, 0)], note=note)
            yield m.example("dropout.backward", [x, at], [shape], a, inplace=[(0, 0)], note=note)


def normalizations(m: Maker) -> Iterator[Example]:
    for shape in [(3, 5, 6, 7), (2, 16, 5, 5), (1, 3, 1, 1), (2, 40, 9, 8), (2, 96, 57, 50)]:
        for size, beta, k in ((5, 0.75, 2.0), (3, 0.5, 1.0)):
            for region in ("ACROSS_CHANNELS", "WITHIN_CHANNEL"):
                a = attrs(size=size, alpha=0.1, beta=beta, k=k, region=region, saved="x")
                x, dy = m.normal(*shape), m.normal(*shape)
                if x.size > 1e5 and (beta != 0.75 or region != "ACROSS_CHANNELS"):
                    continue  # the large one is there to be cut into chunks
                yield m.example("lrn.forward", [x], [shape], a, note=f"{region} size {size}")
                yield m.example("lrn.backward", [x, dy], [shape], a, note=f"{region} size {size}")
    for shape in [(3, 5, 6, 7), (2, 16, 5, 5), (7, 13), (2, 64, 9, 8), (2, 64, 28, 28), (64, 500)]:
        c = shape[1]
        count = int(np.prod(shape)) // c
        x, dy = m.normal(*shape) + 1, m.normal(*shape)
        mean, variance, sums, squares = m.normal(c), m.normal(c) ** 2 + 0.1, m.normal(c), m.normal(c) ** 2 + 0.1
        gamma, beta = m.normal(c), m.normal(c)
        a = attrs(eps=1e-5, fraction=0.999, count=count)
        rows = tuple(i for i in range(len(shape)) if i != 1)
        yield m.example("batch_norm.forward", [x], [shape, (c,), (c,)], a)
        real = [x, x.mean(rows), x.var(rows), dy]
        yield m.example("batch_norm.backward", real, [shape], a, inplace=[(3, 0)])
        yield m.example("batch_norm.statistics", [mean, variance, sums, squares, np.float32([2.5])], [2, 3, 4], a)
        for factor in (2.5, 0.0):
            f = np.float32([factor])
            note = f"factor {factor}"
            yield m.example("batch_norm.inference", [x, sums, squares, f], [shape], a, inplace=[(0, 0)], note=note)
            reads = [squares, f, dy]
            yield m.example("batch_norm.inference_backward", reads, [shape], a, inplace=[(2, 0)], note=note)
        yield m.example("scale.forward", [x, gamma, beta], [shape], inplace=[(0, 0)])
        yield m.example("scale.forward", [x, gamma], [shape], inplace=[(0, 0)])
        yield m.example("scale.backward_filter", [x, dy], [(c,)])
        yield m.example("scale.backward_bias", [dy], [(c,)])
        yield m.example("scale.backward_data", [gamma, dy], [shape], inplace=[(1, 0)])


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


def fused(m: Maker) -> Iterator[Example]:
    """Fused ops of programs/fusion/: a forward with its ReLU; a ReLU's backward with a bias gradient or pooling's
    backward."""
    for e in [e for made in (convolutions(m), products(m)) for e in made if e.op.kind.endswith(".forward")]:
        if len(e.op.reads) == 3:
            reads, shapes = [e.data[t] for t in e.op.reads], [t.shape for t in e.op.writes]
            yield m.example(f"{e.op.kind}_relu", reads, shapes, e.op.attrs, note=e.name)
    for shape in SHAPES:
        if len(shape) > 1:
            y, dy = np.maximum(m.normal(*shape), 0), m.normal(*shape)
            yield m.example("relu.backward_bias", [y, dy], [shape, (shape[1],)], inplace=[(1, 0)])
    for e in [e for made in (poolings(m), channels(m)) for e in made if e.op.kind == "pooling.backward"]:
        if e.op.attrs.method == "MAX":
            (was, dy), (dx,), a = e.op.reads, e.op.writes, e.op.attrs
            y, index = maximum(np.maximum(np.round(m.normal(*dx.shape) * 2 - 1) / 2, 0), a, dy.shape[2:])
            reads = [index.astype(was.dtype), y, e.data[dy]]
            yield m.example("pooling.backward_relu", reads, [dx.shape], a, note=e.name, exact=True)


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


def scaled(m: Maker) -> Iterator[Example]:
    """More fused ops: a BatchNorm with the Scale after it, or with the Scale and the ReLU after it."""
    for shape in [(3, 5, 6, 7), (2, 16, 5, 5), (7, 13), (2, 3, 4), (2, 64, 28, 28), (2000, 17)]:
        c, rows = shape[1], tuple(i for i in range(len(shape)) if i != 1)
        x, dy, gamma, beta = m.normal(*shape) + 1, m.normal(*shape), m.normal(c), m.normal(c)
        a = attrs(eps=1e-5, fraction=0.999, count=x.size // c)
        statistics, channels = [x.mean(rows), x.var(rows)], [(c,), (c,)]
        yield m.example("batch_norm.moments", [x], channels, a)
        for relu in ("", "_relu"):
            reads = [x, *statistics, gamma, beta]
            yield m.example(f"batch_norm.normalize_scale{relu}", reads, [shape], a, [(0, 0)])
            reads = [x, *statistics, gamma, beta, dy]
            yield m.example(f"batch_norm.backward_scale{relu}", reads, [shape, *channels], a, [(5, 0), (0, 0)])
            reads = [x, m.normal(c), m.normal(c) ** 2 + 0.1, np.float32([2.5 if relu else 0]), gamma, beta]
            yield m.example(f"batch_norm.inference_scale{relu}", reads, [shape], a, [(0, 0)])


def losses(m: Maker) -> Iterator[Example]:
    for shape, axis in [
        ((4, 10), 1),
        ((2, 5, 3, 4), 1),
        ((2, 3, 4), 1),
        ((2, 3, 4), 2),
        ((64, 1000), -1),
        ((2, 21, 40, 50), 1),
    ]:
        x, dy = m.normal(*shape) * 3, m.normal(*shape)
        e = np.exp(x - x.max(axis, keepdims=True))
        prob = e / e.sum(axis, keepdims=True)
        yield m.example("softmax.forward", [x], [shape], attrs(axis=axis), inplace=[(0, 0)], note=f"axis {axis}")
        yield m.example(
            "softmax.backward", [prob, dy], [shape], attrs(axis=axis), inplace=[(1, 0)], note=f"axis {axis}"
        )
        if axis % len(shape) != 1:
            continue
        labels = (shape[0],) if len(shape) == 2 else (shape[0], *shape[2:])
        for ignore, mode in ((None, "VALID"), (2, "VALID"), (2, "FULL"), (None, "BATCH_SIZE"), (0, "NONE")):
            label = m.random.integers(0, shape[1], labels).astype(np.int32)
            a = attrs(axis=axis, ignore_label=ignore, normalization=mode, loss_weight=0.5)
            note = f"ignore {ignore} {mode}"
            yield m.example("softmax_loss.forward", [x, label], [(1,), shape], a, note=note)
            yield m.example("softmax_loss.backward", [prob, label], [shape], a, inplace=[(0, 0)], note=note)
        for top_k, ignore in ((1, None), (3, None), (1, 1)):
            a = attrs(top_k=top_k, axis=axis, ignore_label=ignore)
            scores = np.round(x)  # ties
            yield m.example("accuracy.forward", [scores, label], [(1,)], a, note=f"top {top_k} ignore {ignore}")
    ones = [np.float32([v]) for v in (0.5, 2.0, -1.0)]
    yield m.example("objective.forward", ones, [(1,)], attrs(weights=(1.0, 0.3, 0.3)))


def channels(m: Maker) -> Iterator[Example]:
    """Ops that are computed by vectors of channels, with fewer channels than lanes and with a few more."""
    for c in (1, 3, 9, 17, 69):
        k, s, p, size = (3, 2), (2, 3), (1, 1), (9, 11)
        o = tuple(_ceil_mode(*axis) for axis in zip(size, k, s, p, strict=True))
        shape, x, dy = (2, c, *o), np.round(m.normal(2, c, *size) * 4) / 4, m.normal(2, c, *o)
        for places, dtype in ((None, "uint8"), ("index", "uint8"), ("index", "int32")):
            a = attrs(method="MAX", kernel=k, stride=s, pad=p, saved="index")
            outs, kinds = ([shape] * 2, {1: dtype}) if places else ([shape], {})
            note = f"MAX, {dtype} {places}"
            yield m.example("pooling.forward", [x], outs, a, dtypes=kinds, note=note, exact=True)
            index = some_index(m, size, o, k, s, p, shape, dtype)
            yield m.example("pooling.backward", [index, dy], [x.shape], a, note=note)
        a = attrs(method="AVE", kernel=k, stride=s, pad=p, saved=None)
        yield m.example("pooling.forward", [x], [shape], a, note="AVE")
        yield m.example("pooling.backward", [dy], [x.shape], a, note="AVE")
        for n, beta in ((5, 0.75), (7, 0.6)):
            a = attrs(size=n, alpha=0.3, beta=beta, k=2.0, region="ACROSS_CHANNELS", saved="x")
            yield m.example("lrn.forward", [dy], [shape], a, note=f"size {n}")
            yield m.example("lrn.backward", [dy, m.normal(*shape)], [shape], a, note=f"size {n}")
        for spread in (1, 60):  # with 60, some probabilities are too small for float32
            rows, a = m.normal(7, c) * spread, attrs(axis=1)
            e = np.exp(rows - rows.max(1, keepdims=True))
            yield m.example("softmax.forward", [rows], [rows.shape], a, inplace=[(0, 0)], note=f"spread {spread}")
            reads = [e / e.sum(1, keepdims=True), m.normal(7, c)]
            yield m.example("softmax.backward", reads, [rows.shape], a, inplace=[(1, 0)], note=f"spread {spread}")
            a = attrs(axis=1, ignore_label=0, normalization="VALID", loss_weight=0.5)
            label = m.random.integers(0, c, 7).astype(np.int32)
            yield m.example("softmax_loss.forward", [rows, label], [(1,), rows.shape], a, note=f"spread {spread}")


def updates(m: Maker) -> Iterator[Example]:
    rate, clip = np.float32([0.1]), np.float32([0.7])
    for shape in [(7,), (5, 3, 3, 3), (70001,)]:
        w, dw, h = m.normal(*shape), m.normal(*shape), m.normal(*shape)
        for objective in (1.0, float("nan"), float("inf")):
            for decay, regularization in ((0.0, "L2"), (0.01, "L2"), (0.01, "L1")):
                for momentum in (0.0, 0.9):
                    for clipped in (False, True):
                        a = attrs(momentum=momentum, decay=decay, regularization=regularization, lr_mult=2.0,
                                  scale=0.5, clipped=clipped)  # fmt: skip
                        reads = [w, dw, rate, np.float32([objective])]
                        reads += ([h] if momentum else []) + ([clip] if clipped else [])
                        note = f"{regularization} {decay} momentum {momentum} clipped {clipped} objective {objective}"
                        yield m.example("sgd.update", reads, [0, 4] if momentum else [0], a, note=note)
    for threshold in (1.0, 1e6):
        dws = [m.normal(70001), m.normal(3, 4, 2, 2), m.normal(5)]
        yield m.example("gradient.clip", dws, [(1,)], attrs(threshold=threshold), note=f"threshold {threshold}")
    for threshold, good in ((-1.0, 3), (1.0, 4), (1e6, 5)):
        dws = [m.normal(70001), m.normal(3, 4, 2, 2), *(m.normal(5) for _ in range(8))]
        a = attrs(threshold=threshold, period=5, most=2.0**24, least=2.0**-24)
        reads = [np.float32([1024, good]), np.float32([0.5]), *dws]
        yield m.example("gradient.unscale", reads, [0, (1,)], a, note=f"threshold {threshold}, {good} good steps")


def several(m: Maker) -> Iterator[Example]:
    """Several small ops in one. Some have more members than one launch of a GPU takes."""
    casts = [m.example("cast.forward", [m.normal(n)], [(n,)], exact=True) for n in (1, 7, 70001, 8, 4096, 4097, 12288)]
    yield together(casts[1:2])
    yield together(casts)
    yield together([m.example("cast.forward", [m.normal(n)], [(n,)], exact=True) for n in range(1, 300)], "many")
    norms = []
    for k, c in enumerate((1, 5, 255, 256, 257, 2048, *range(1, 80))):
        reads = [m.normal(c), m.normal(c) ** 2, m.normal(c), m.normal(c) ** 2, np.float32([k])]
        a = attrs(eps=1e-5, fraction=0.9 + 0.001 * k, count=1 + 7 * k)
        norms.append(m.example("batch_norm.statistics", reads, [2, 3, 4], a))
    yield together(norms[:1])
    yield together(norms)
    for momentum, clipped in ((0.9, False), (0.0, True), (0.9, True)):
        for objective in (1.0, float("nan")):
            ones = []
            for k, n in enumerate((70001, 1, 3, 4, 5, 4096, 4097, 12288, *range(1, 200, 2))):
                reads = [m.normal(n), m.normal(n), np.float32([0.1]), np.float32([objective])]
                reads += ([m.normal(n)] if momentum else []) + ([np.float32([0.7])] if clipped else [])
                a = attrs(momentum=momentum, decay=0.01 * (k % 2), regularization="L2", lr_mult=1.0 + k % 3, scale=0.5,
                          clipped=clipped)  # fmt: skip
                ones.append(m.example("sgd.update", reads, [0, 4] if momentum else [0], a))
            note = f"momentum {momentum} clipped {clipped} objective {objective}"
            shared = (2, 3, -1) if clipped else (2, 3)
            yield together(ones[:3], note, shared)
            yield together(ones, note, shared)
