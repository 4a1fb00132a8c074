"""Products of our own on the cpu: near to float64 in every geometry, the same bits for any number of threads, within
the workspace they declare.

That they equal the reference's wherever their tensors lie, hide nothing that is not finite and allocate nothing,
test_kernels.py shows of every algorithm.
"""

from __future__ import annotations

import numpy as np
import pytest

from minidnn.backends.cpu import CpuDevice
from minidnn.backends.cpu.device import LAST
from minidnn.backends.cpu.native import depthwise, gemm, implicit_gemm, inner_product, matmul, winograd
from minidnn.backends.reference import KERNELS
from minidnn.program import Algorithm, Op
from tests.support.op_examples import Example, Maker, attrs, compiled, examples, guarded, run

TOLERANCE = 2e-5  # of the largest value


@pytest.fixture(scope="module")
def one() -> CpuDevice:
    return compiled()


def ours(device: CpuDevice, e: Example, table) -> Algorithm:
    """The family's algorithm for an example's op, which must be offered. Its lean one is not it."""
    found, *_ = table[e.op.kind](device.native, e.op)
    assert found.algorithm in device.algorithms(e.op) or found.algorithm.name == "native"
    return found.algorithm


PRODUCTS = [  # n, inputs, outputs: few rows and many, ends of panels, more than one block, deep
    (1, 1, 1),
    (1, 70, 3),
    (4, 33, 9),
    (5, 300, 17),
    (7, 16, 64),
    (11, 40, 5),
    (12, 4200, 20),
    (13, 4200, 20),
    (2, 8200, 7),
    (64, 800, 500),
    (150, 37, 300),
    (300, 1100, 9),
    (200, 600, 41),
    (1030, 7, 5),
    (1700, 40, 12),
    (2100, 33, 70),
]


def products(m: Maker, n: int, k: int, o: int) -> list[tuple[Example, np.ndarray]]:
    """Each pass, with its result in float64."""
    x, w, b, dy = m.normal(n, k), m.normal(o, k), m.normal(o), m.normal(n, o)
    wide = [a.astype(np.float64) for a in (x, w, b, dy)]
    y = wide[0] @ wide[1].T
    return [
        (m.example("inner_product.forward", [x, w], [(n, o)]), y),
        (m.example("inner_product.forward", [x, w, b], [(n, o)]), y + wide[2]),
        (m.example("inner_product.forward_relu", [x, w, b], [(n, o)]), np.maximum(y + wide[2], 0)),
        (m.example("inner_product.backward_data", [w, dy], [x.shape]), wide[3] @ wide[1]),
        (m.example("inner_product.backward_filter", [x, dy], [w.shape]), wide[3].T @ wide[0]),
    ]


@pytest.mark.parametrize("geometry", PRODUCTS, ids=str)
def test_inner_products_are_near_to_float64(one, geometry):
    for e, want in products(Maker(1), *geometry):
        (got,) = run(one, e, ours(one, e, inner_product.FIRST))
        error = np.abs(got - want).max()
        assert error <= TOLERANCE * max(1e-3, np.abs(want).max()), f"{e.name}: {error:.1e}"


@pytest.mark.slow
@pytest.mark.parametrize("geometry", PRODUCTS, ids=str)
def test_inner_products_have_the_same_bits_for_any_number_of_threads(one, geometry):
    for e, _ in products(Maker(2), *geometry):
        (want,) = run(one, e, ours(one, e, inner_product.FIRST))
        for threads in (2, 3, 5):
            other = compiled(threads)
            (got,) = run(other, e, ours(other, e, inner_product.FIRST))
            assert got.tobytes() == want.tobytes(), f"{e.name} on {threads} threads"


def test_a_row_has_the_same_bits_with_few_rows_and_with_many(one):
    m = Maker(4)
    x, w, b = m.normal(50, 2100), m.normal(41, 2100), m.normal(41)

    def forward(n: int) -> np.ndarray:
        e = m.example("inner_product.forward_relu", [x[:n], w, b], [(n, 41)])
        return run(one, e, ours(one, e, inner_product.FIRST))[0]

    every = forward(50)
    for n in (1, 7, 12):
        assert forward(n).tobytes() == every[:n].tobytes(), n


@pytest.mark.parametrize("geometry", PRODUCTS, ids=str)
def test_inner_products_stay_within_their_bytes(one, geometry):
    for each in (one, compiled(3)):
        for e, _ in products(Maker(3), *geometry):
            assert guarded(each, e, ours(each, e, inner_product.FIRST)), e.name


LARGE = (2, 2112, 2048)  # a gradient of weights that is stored past the caches


def test_a_large_gradient_is_right_and_the_same_on_any_threads(one):
    e, want = products(Maker(10), *LARGE)[-1]
    near_and_the_same_on_any_threads(inner_product.backward_filter, one, e, want)


def test_a_large_gradient_may_lie_anywhere(one):
    e, want = products(Maker(10), *LARGE)[-1]
    algorithm = ours(one, e, inner_product.FIRST)
    room = {t: np.zeros(t.nbytes + 512, np.uint8) for t in e.op.tensors}
    starts = {t: -raw.ctypes.data % 256 + 4 for t, raw in room.items()}
    views = {t: one.array(raw[starts[t] : starts[t] + t.nbytes], t) for t, raw in room.items()}
    for t, x in e.data.items():
        views[t][...] = x
    workspace = np.zeros(algorithm.workspace, np.uint8)
    one.prepare(e.op, algorithm, views, workspace)()
    assert np.abs(views[e.op.writes[0]] - want).max() <= TOLERANCE * np.abs(want).max()


CONVOLUTIONS = [  # n, c, (h, w), outputs, kernel, stride, pad, dilation, group: ends of rows, of panels, of blocks
    (1, 1, (1, 1), 1, (1, 1), (1, 1), (0, 0), (1, 1), 1),
    (2, 1, (28, 28), 20, (5, 5), (1, 1), (0, 0), (1, 1), 1),
    (1, 3, (67, 61), 24, (11, 11), (4, 4), (0, 0), (1, 1), 1),
    (2, 3, (23, 30), 17, (7, 7), (2, 2), (3, 3), (1, 1), 1),
    (2, 48, (13, 9), 40, (5, 5), (1, 1), (2, 2), (1, 1), 2),
    (2, 7, (9, 11), 5, (3, 2), (1, 3), (2, 1), (2, 1), 1),
    (1, 6, (12, 10), 9, (3, 3), (1, 1), (2, 2), (2, 2), 3),
    (1, 4, (2, 3), 6, (4, 5), (1, 1), (3, 4), (1, 1), 1),
    (3, 70, (8, 8), 33, (3, 3), (1, 1), (1, 1), (1, 1), 1),
    (1, 2, (3, 300), 16, (3, 3), (1, 1), (0, 1), (1, 1), 1),
    (1, 100, (7, 7), 19, (5, 5), (1, 1), (4, 4), (1, 1), 1),
]


def convolutions(m: Maker, n, c, size, o, kernel, stride, pad, dilation, group) -> list[tuple[Example, np.ndarray]]:
    """Each pass, with its result in float64 by the reference."""
    a = attrs(kernel=kernel, stride=stride, pad=pad, dilation=dilation, group=group)
    to = (
        (x + 2 * p - (d * (k - 1) + 1)) // s + 1
        for x, p, d, k, s in zip(size, pad, dilation, kernel, stride, strict=True)
    )
    x, w, b, dy = m.normal(n, c, *size), m.normal(o, c // group, *kernel), m.normal(o), m.normal(n, o, *to)
    made = [
        m.example("convolution.forward", [x, w], [dy.shape], a),
        m.example("convolution.forward", [x, w, b], [dy.shape], a),
        m.example("convolution.forward_relu", [x, w, b], [dy.shape], a),
        m.example("convolution.backward_filter", [x, dy], [w.shape], a),
        m.example("convolution.backward_data", [w, dy], [x.shape], a),
    ]
    return [(e, in_float64(e)) for e in made]


def in_float64(e: Example) -> np.ndarray:
    out = np.zeros(e.op.writes[0].shape)
    KERNELS[e.op.kind](e.op.attrs, [e.data[t].astype(np.float64) for t in e.op.reads], [out])
    return out


def by(recipes, device: CpuDevice, e: Example) -> Algorithm | None:
    """A way's algorithm for an example, which the device offers; None where it is not for it. A lean one is not it."""
    found = [r.algorithm for r in recipes(device.native, e.op)]
    assert set(found) <= set(device.algorithms(e.op))
    assert all(a.name.endswith(matmul.LEAN) for a in found[1:]) and len(found) <= 2
    return found[0] if found else None


def near_and_the_same_on_any_threads(recipes, one: CpuDevice, e: Example, want: np.ndarray) -> None:
    algorithm = by(recipes, one, e)
    (got,) = run(one, e, algorithm)
    error = np.abs(got - want).max()
    assert error <= TOLERANCE * np.abs(want).max(), f"{e.name}: {error:.1e}"
    assert guarded(one, e, algorithm), e.name
    for threads in (2, 5):
        other = compiled(threads)
        (again,) = run(other, e, by(recipes, other, e))
        assert again.tobytes() == got.tobytes(), f"{e.name} on {threads} threads"
        assert guarded(other, e, by(recipes, other, e)), e.name


@pytest.mark.slow
@pytest.mark.parametrize("geometry", CONVOLUTIONS, ids=str)
def test_implicit_products_are_near_to_float64_and_the_same_for_any_number_of_threads(one, geometry):
    for e, want in convolutions(Maker(4), *geometry):
        for_it = by(implicit_gemm.recipes, one, e) is not None
        if gemm.recipes(one.native, e.op):
            near_and_the_same_on_any_threads(gemm.recipes, one, e, want)
        assert for_it != gemm.of_pixels(e.op.attrs), e.name
        if for_it:
            near_and_the_same_on_any_threads(implicit_gemm.recipes, one, e, want)


@pytest.mark.parametrize("geometry", [(1, 1, (1, 1), 1), (2, 40, (9, 7), 33), (3, 300, (5, 6), 70)], ids=str)
def test_a_1x1_is_a_product(one, geometry):
    for e, want in convolutions(Maker(9), *geometry, (1, 1), (1, 1), (0, 0), (1, 1), 1):
        assert one.algorithms(e.op)[0].name == gemm.NAME
        near_and_the_same_on_any_threads(gemm.recipes, one, e, want)


def test_a_lean_product_has_the_bits_of_the_other_and_less_workspace(one):
    m, seen = Maker(13), set()
    cases = [e for geometry in ((64, 800, 500), (128, 128, 64), (150, 37, 300)) for e, _ in products(m, *geometry)]
    for geometry in ((9, 16, (8, 8), 16, (3, 3)), (8, 32, (4, 4), 32, (3, 3)), (2, 300, (5, 6), 70, (1, 1))):
        *sizes, kernel = geometry
        cases += [e for e, _ in convolutions(m, *sizes, kernel, (1, 1), (kernel[0] // 2,) * 2, (1, 1), 1)]
    a = attrs(batch=3, rows=40, depth=70, columns=50, transpose_a=False, transpose_b=True, scale=0.3)
    cases.append(m.example("matmul.forward", [m.normal(3, 40, 70), m.normal(3, 50, 70)], [(3, 40, 50)], a))
    for e in cases:
        offered = {x.name: x for x in one.algorithms(e.op)}
        for name, its in offered.items():
            if name.endswith(matmul.LEAN):
                other = offered[name.removesuffix(matmul.LEAN)]
                assert its.workspace < other.workspace, e.name
                assert run(one, e, its)[0].tobytes() == run(one, e, other)[0].tobytes(), e.name
                assert guarded(one, e, its), e.name
                seen.add(e.op.kind)
    assert seen == {
        "matmul.forward", "inner_product.forward", "inner_product.forward_relu", "inner_product.backward_data",
        "inner_product.backward_filter", "convolution.forward", "convolution.forward_relu",
        "convolution.backward_data", "convolution.backward_filter",
    }  # fmt: skip


DEPTHWISE = [  # n, c, (h, w), kernel, stride, pad, dilation: fewer channels than lanes, rests of vectors and of tiles
    (2, 3, (5, 4), (3, 3), (1, 1), (1, 1), (1, 1)),
    (2, 32, (9, 7), (3, 3), (1, 1), (1, 1), (1, 1)),
    (1, 40, (7, 9), (3, 3), (2, 2), (1, 1), (1, 1)),
    (3, 17, (8, 6), (3, 3), (2, 1), (0, 2), (1, 1)),
    (2, 24, (3, 2), (3, 3), (1, 1), (1, 1), (1, 1)),
    (1, 9, (11, 13), (3, 3), (1, 2), (2, 2), (2, 2)),
    (1, 21, (9, 8), (4, 4), (2, 2), (1, 1), (1, 1)),
    (1, 33, (10, 12), (5, 2), (3, 4), (4, 1), (1, 3)),
    (2, 2, (1, 1), (1, 1), (2, 2), (0, 0), (1, 1)),
    (2, 16, (64, 40), (3, 3), (1, 1), (1, 1), (1, 1)),
]


@pytest.mark.parametrize("geometry", DEPTHWISE, ids=str)
def test_a_filter_per_channel_has_one_algorithm_near_to_float64_and_the_same_for_any_number_of_threads(one, geometry):
    n, c, size, *window = geometry
    for e, want in convolutions(Maker(11), n, c, size, c, *window, c):
        assert [a.name for a in one.algorithms(e.op)] == ["native"]
        near_and_the_same_on_any_threads(depthwise.recipes, one, e, want)


def test_several_filters_per_channel_are_no_depthwise_convolution(one):
    for e, _ in convolutions(Maker(12), 2, 4, (6, 6), 8, (3, 3), (1, 1), (1, 1), (1, 1), 4):
        assert "native" not in [a.name for a in one.algorithms(e.op)]


FIVES = [  # n, c, (h, w), outputs, pad, group: images of one tile and less, odd channels, sizes that no tile divides
    (1, 1, (5, 5), 1, (0, 0), 1),
    (1, 2, (1, 2), 3, (2, 2), 1),
    (2, 33, (9, 14), 65, (4, 1), 1),
    (3, 96, (13, 13), 64, (2, 2), 2),
    (2, 20, (12, 11), 50, (0, 3), 1),
    (5, 64, (8, 7), 32, (2, 2), 1),
]


@pytest.mark.slow
@pytest.mark.parametrize("geometry", FIVES, ids=str)
@pytest.mark.parametrize("kernel", [(3, 3), (5, 5)], ids=str)
def test_winograd_is_near_to_float64_and_the_same_for_any_number_of_threads(one, kernel, geometry):
    n, c, size, o, pad, group = geometry
    size, pad = tuple(max(a, b) for a, b in zip(size, kernel, strict=True)), tuple(min(p, kernel[0] - 1) for p in pad)
    for e, want in convolutions(Maker(6), n, c, size, o, kernel, (1, 1), pad, (1, 1), group):
        near_and_the_same_on_any_threads(winograd.recipes, one, e, want)


@pytest.mark.slow
def test_winograd_of_5x5_is_near_to_float64_where_values_are_positive_and_many(one):
    """As behind a ReLU: sums do not cancel, what is transformed does."""
    for e, _ in convolutions(Maker(7), 2, 256, (14, 14), 48, (5, 5), (1, 1), (2, 2), (1, 1), 1):
        positive = Example(e.name, e.op, {t: np.abs(x) for t, x in e.data.items()})
        want, (got,) = in_float64(positive), run(one, positive, by(winograd.recipes, one, positive))
        assert np.abs(got - want).max() <= TOLERANCE * want.max(), e.name


def test_winograd_of_5x5_is_offered_where_it_fits_and_first_where_it_pays(one):
    for c, first in ((64, True), (16, False)):
        for e, _ in convolutions(Maker(8), 4, c, (12, 12), c, (5, 5), (1, 1), (2, 2), (1, 1), 1):
            names = [a.name for a in one.algorithms(e.op)]
            assert (names[0] == winograd.FIVE.name) == first and names.count(winograd.FIVE.name) == 1, e.name
    for change in ({"stride": (2, 2)}, {"dilation": (2, 2)}, {"pad": (5, 1)}, {"kernel": (3, 5)}):
        a = attrs(**{**vars(e.op.attrs), **change})
        op = Op("conv", e.op.kind, "conv", e.op.during, e.op.reads, e.op.writes, a)
        assert winograd.recipes(one.native, op) == []


def test_a_last_resort_is_offered_only_where_nothing_else_is(one):
    """Where oneDNN has its reference, or NumPy's BLAS one thread, ours are; without ours, those are."""
    m = Maker(5)
    dilated = convolutions(m, 2, 5, (9, 9), 7, (3, 3), (2, 2), (2, 2), (2, 2), 1)[0][0]
    product = products(m, 4, 33, 9)[0][0]
    assert [a.name for a in one.algorithms(dilated.op)][-1] == implicit_gemm.NAME
    assert not any(a.name in LAST for e in (dilated, product) for a in one.algorithms(e.op))
    bare = CpuDevice(threads=1)
    bare.native = None
    assert bare.algorithms(dilated.op)[0].name != "reference"
    assert [a.name for a in bare.algorithms(product.op)] == ["reference"]
    assert not bare.fuses(convolutions(m, *CONVOLUTIONS[1])[2][0].op)


@pytest.mark.parametrize("kind", ["convolution.forward_relu", "inner_product.forward_relu"])
def test_a_fused_relu_is_the_forward_then_the_relu(one, kind):
    """Of each algorithm of the forward there is one, with the same workspace and the same bits."""
    seen = set()
    for e in (e for e in examples() if e.op.kind == kind):
        plain = Op("plain", kind.removesuffix("_relu"), "", e.op.during, e.op.reads, e.op.writes, e.op.attrs)
        apart = Example(e.name, plain, e.data)
        assert one.fuses(e.op) and one.algorithms(e.op) == one.algorithms(plain), e.name
        for algorithm in one.algorithms(e.op):
            (x,), (y,) = run(one, apart, algorithm), run(one, e, algorithm)
            assert np.where(x > 0, x, np.float32(0)).tobytes() == y.tobytes(), f"{e.name} by {algorithm}"
            seen.add(algorithm.name)
    assert len(seen) > 1 or kind.startswith("inner"), seen
