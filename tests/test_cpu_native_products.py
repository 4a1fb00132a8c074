"""Products of our own on the cpu: near to float64 in every geometry, the same bits for any number of threads, within
the workspace they declare.

That they equal the reference's wherever their tensors lie, hide nothing that is not finite and allocate nothing,
test_cpu_backend.py shows of every algorithm.
"""

from __future__ import annotations

import numpy as np
import pytest

from minidnn.backends.cpu import CpuDevice
from minidnn.backends.cpu.native import inner_product
from minidnn.program import Algorithm
from tests.cpu_ops import Example, Maker, run

TOLERANCE = 2e-5  # of the largest value


def device(threads: int = 1) -> CpuDevice:
    made = CpuDevice(threads=threads)
    if made.native is None:
        pytest.skip(made.description)
    return made


@pytest.fixture(scope="module")
def one() -> CpuDevice:
    return device()


def ours(device: CpuDevice, e: Example, table) -> Algorithm:
    """The family's algorithm for an example's op, which must be among those that are offered."""
    (found,) = table[e.op.kind](device.native, e.op)
    assert found.algorithm in device.algorithms(e.op) or found.algorithm.name == "native"
    return found.algorithm


PRODUCTS = [  # n, inputs, outputs: few rows and many, ends of panels, more than one block of each
    (1, 1, 1),
    (1, 70, 3),
    (4, 33, 9),
    (5, 300, 17),
    (7, 16, 64),
    (12, 4200, 20),
    (13, 4200, 20),
    (2, 8200, 7),
    (64, 800, 500),
    (150, 37, 300),
    (300, 1100, 9),
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
        (got,) = run(one, e, ours(one, e, inner_product.MORE))
        error = np.abs(got - want).max()
        assert error <= TOLERANCE * max(1e-3, np.abs(want).max()), f"{e.name}: {error:.1e}"


@pytest.mark.parametrize("geometry", PRODUCTS, ids=str)
def test_inner_products_have_the_same_bits_for_any_number_of_threads(one, geometry):
    for e, _ in products(Maker(2), *geometry):
        (want,) = run(one, e, ours(one, e, inner_product.MORE))
        for threads in (2, 3, 5):
            other = device(threads)
            (got,) = run(other, e, ours(other, e, inner_product.MORE))
            assert got.tobytes() == want.tobytes(), f"{e.name} on {threads} threads"


def guarded(device: CpuDevice, e: Example, algorithm: Algorithm) -> bool:
    """Whether bytes around each tensor and the workspace stay as they were."""
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


@pytest.mark.parametrize("geometry", PRODUCTS, ids=str)
def test_inner_products_stay_within_their_bytes(one, geometry):
    for each in (one, device(3)):
        for e, _ in products(Maker(3), *geometry):
            assert guarded(each, e, ours(each, e, inner_product.MORE)), e.name
