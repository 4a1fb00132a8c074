"""Winograd's convolutions on the cpu: near to float64 in every geometry, the same bits for any number of threads,
nothing that is not finite lost.

That they equal the reference's wherever their tensors lie, and allocate nothing, test_kernels.py shows of every
algorithm.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from minidnn.backends.cpu import CpuDevice
from minidnn.backends.cpu.native import winograd
from minidnn.program import Algorithm, Op, Pass
from tests.support.convolutions import example
from tests.support.op_examples import Example, Maker, attrs, compiled, guarded, run

TOLERANCE = 2e-5  # of the largest value
PASSES = ("forward", "backward_data", "backward_filter")


@pytest.fixture(scope="module")
def device() -> CpuDevice:
    return compiled()


def by_winograd(device: CpuDevice, e: Example, **how) -> np.ndarray:
    return run(device, e, offered(device, e.op), **how)[0]


def offered(device: CpuDevice, op: Op) -> Algorithm:
    (found,) = (a for a in device.algorithms(op) if a.name == winograd.THREE.name)
    return found


def exact(e: Example) -> np.ndarray:
    """By the definition, in float64."""
    first, second = (e.data[t].astype(np.float64) for t in e.op.reads[:2])
    (result,), (ph, pw) = e.op.writes, e.op.attrs.pad
    taps = list(itertools.product(range(3), range(3)))
    which = e.op.kind.split(".")[1]
    if which == "backward_data":
        n, c, h, w = result.shape
        wide = np.zeros((n, c, h + 2 * ph, w + 2 * pw))
        oh, ow = second.shape[2:]
        for i, j in taps:
            wide[:, :, i : i + oh, j : j + ow] += np.einsum("nohw,oc->nchw", second, first[:, :, i, j], optimize=True)
        return wide[:, :, ph : ph + h, pw : pw + w]
    wide = np.pad(first, ((0, 0), (0, 0), (ph, ph), (pw, pw)))
    oh, ow = (second if which == "backward_filter" else np.empty(result.shape)).shape[2:]
    parts = {(i, j): wide[:, :, i : i + oh, j : j + ow] for i, j in taps}
    if which == "backward_filter":
        out = np.empty(result.shape)
        for i, j in taps:
            out[:, :, i, j] = np.einsum("nohw,nchw->oc", second, parts[i, j], optimize=True)
        return out
    y = sum(np.einsum("nchw,oc->nohw", parts[i, j], second[:, :, i, j], optimize=True) for i, j in taps)
    return y + e.data[e.op.reads[2]].reshape(1, -1, 1, 1) if len(e.op.reads) == 3 else y


GEOMETRIES = [  # n, c, h, w, o, pad: images of one tile and less, odd channels, sizes that no tile divides
    (1, 1, 3, 3, 1, (0, 0)),
    (1, 1, 1, 1, 1, (1, 1)),
    (1, 3, 5, 6, 7, (0, 0)),
    (2, 16, 8, 8, 16, (1, 1)),
    (3, 33, 13, 7, 65, (2, 2)),
    (2, 17, 10, 11, 31, (0, 2)),
    (5, 5, 9, 4, 3, (2, 1)),
    (1, 64, 14, 15, 48, (1, 1)),
    (7, 2, 30, 29, 5, (1, 0)),
    (4, 128, 12, 12, 130, (1, 1)),
    (2, 512, 7, 7, 40, (1, 1)),
    (2, 24, 6, 6, 512, (1, 1)),
    (2, 150, 9, 11, 200, (1, 1)),
]


@pytest.mark.slow
@pytest.mark.parametrize("which", PASSES)
@pytest.mark.parametrize("geometry", GEOMETRIES, ids=str)
def test_is_near_to_float64(device, geometry, which):
    m = Maker(1)
    for bias in (False, True) if which == "forward" else (False,):
        e = example(m, which, *geometry, bias=bias)
        want = exact(e)
        error = np.abs(by_winograd(device, e) - want).max() / np.abs(want).max()
        assert error <= TOLERANCE, f"{e.name}: {error:.1e} of the largest value"


def test_is_near_to_float64_where_values_are_positive_and_many(device):
    """As behind a ReLU: sums do not cancel, what is transformed does."""
    m = Maker(2)
    for which in PASSES:
        e = example(m, which, 2, 256, 16, 16, 64, (1, 1))
        e = Example(e.name, e.op, {t: np.abs(x) for t, x in e.data.items()})
        want = exact(e)
        assert np.abs(by_winograd(device, e) - want).max() <= TOLERANCE * want.max(), e.name


@pytest.mark.parametrize("which", PASSES)
def test_same_bits_for_any_number_of_threads(device, which):
    geometries = (
        (3, 33, 23, 27, 65, (2, 2)),
        (2, 16, 5, 5, 16, (1, 1)),
        (9, 40, 31, 30, 24, (1, 1)),
        (2, 150, 9, 11, 200, (1, 1)),  # few tiles: 2 and 3 threads share channels, 5 share tiles
    )
    for geometry in geometries:
        e = example(Maker(3), which, *geometry)
        want = by_winograd(device, e)
        for threads in (2, 3, 5):
            got = by_winograd(compiled(threads), e)
            assert got.tobytes() == want.tobytes(), f"{e.name} on {threads} threads"


@pytest.mark.parametrize("which", PASSES)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_reaches_all_it_should(device, which, value):
    e = example(Maker(4), which, 2, 9, 11, 10, 18, (1, 1))
    for bad in e.op.reads:
        for at in ((0, 0, 0, 0), tuple(s - 1 for s in bad.shape), tuple(s // 2 for s in bad.shape)):
            data = {t: x.copy() for t, x in e.data.items()}
            data[bad][at] = value
            ones = {t: np.isnan(np.where(np.isfinite(x), 0, np.nan)) * 1.0 if t is bad else np.ones(t.shape)
                    for t, x in data.items()}  # fmt: skip
            reached = exact(Example(e.name, e.op, ones)) > 0
            got = by_winograd(device, Example(e.name, e.op, data))
            assert reached.any() and not np.isfinite(got[reached]).any(), f"{e.name}: {value} in {bad.name} at {at}"


def test_is_offered_where_it_fits_and_first_where_it_pays(device):
    m = Maker(5)
    for which in PASSES:
        for n, channels, place in ((2, 64, 0), (1, 64, -1), (8, 8, -1)):
            e = example(m, which, n, channels, 14, 14, channels, (1, 1))
            names = [a.name for a in device.algorithms(e.op)]
            assert len(names) > 1 and names.count(winograd.THREE.name) == 1 and names[place] == winograd.THREE.name
        for change in ({"stride": (2, 2)}, {"dilation": (2, 2)}, {"pad": (3, 1)}, {"kernel": (3, 5)}):
            a = attrs(**{**vars(e.op.attrs), **change})
            op = Op("conv", e.op.kind, "conv", Pass.FORWARD, e.op.reads, e.op.writes, a)
            assert winograd.recipes(device.native, op) == []


@pytest.mark.parametrize("which", PASSES)
def test_stays_within_its_workspace(device, which):
    """And within its tensors: guards around them stay as they were."""
    for geometry in GEOMETRIES[2:9]:
        e = example(Maker(6), which, *geometry)
        for each in (device, compiled(2)):
            algorithm = offered(each, e.op)
            assert guarded(each, e, algorithm), e.name


def test_workspace_is_what_the_transforms_need(device):
    """For 64 filters of 64 channels: 36 points of 64x64, and of each thread's tiles."""
    e = example(Maker(7), "forward", 3, 64, 28, 28, 64, (1, 1))
    filters = 36 * 64 * 64 * 4
    one, two = (offered(compiled(n), e.op).workspace for n in (1, 2))
    assert filters < one < two < filters + 4 * (one - filters)
