"""Batch normalization on the cpu, alone and fused with Scale and ReLU: near to float64 also where x is far from 0,
the same bits for any number of threads, backward sure of what forward let through.

That they equal the reference's wherever their tensors lie, allocate nothing and hide nothing that is not finite,
test_kernels.py shows of every algorithm; what is fused, test_fusion.py.
"""

from __future__ import annotations

import numpy as np
import pytest

from minidnn.backends.cpu import CpuDevice
from minidnn.backends.cpu.native.binding import NAME
from minidnn.programs.fusion import kinds
from minidnn.programs.fusion.normalization import KINDS
from tests.support.cpu_step import feed, machine, persistent
from tests.support.differences import check_differences
from tests.support.op_examples import Example, Maker, attrs, compiled, run, scaled

EPS = 1e-5
ROWS = (1, 5, 127, 1024, 1025, 3000)  # where pieces are one row, and where they end


@pytest.fixture(scope="module")
def device() -> CpuDevice:
    return compiled()


def ours(device: CpuDevice, e: Example, **how) -> list[np.ndarray]:
    first = device.algorithms(e.op)[0]
    assert first.name == NAME
    return run(device, e, first, **how)


def moments(m: Maker, x: np.ndarray) -> Example:
    return m.example("batch_norm.moments", [x], [x.shape[1:2]] * 2, attrs(eps=EPS))


def normalize(m: Maker, *reads: np.ndarray, relu: str = "_relu") -> Example:
    return m.example(f"batch_norm.normalize_scale{relu}", list(reads), [reads[0].shape], attrs(eps=EPS))


def forward(
    device: CpuDevice, x: np.ndarray, gamma: np.ndarray, beta: np.ndarray, relu: str = "_relu"
) -> list[np.ndarray]:
    """y, mean and variance."""
    statistics = ours(device, moments(Maker(0), x))
    return [*ours(device, normalize(Maker(0), x, *statistics, gamma, beta, relu=relu)), *statistics]


def backward(m: Maker, *reads: np.ndarray, relu: str = "_relu") -> Example:
    x, mean = reads[:2]
    return m.example(f"batch_norm.backward_scale{relu}", list(reads), [x.shape, mean.shape, mean.shape], attrs(eps=EPS))


def test_ours_where_channels_are_innermost(device):
    found = list(scaled(Maker(0)))
    assert {e.op.kind for e in found} == KINDS
    for e in found:
        innermost = len(e.op.reads[0].shape) in (2, 4)
        assert device.fuses(e.op) == innermost
        assert [a.name for a in device.algorithms(e.op)] == [NAME if innermost else "reference"], e.name


@pytest.mark.parametrize("rows", ROWS)
def test_moments_are_near_to_float64_however_far_from_zero(device, rows):
    """Also from where a piece's sums begin, if that is its first row's fault: then less near."""
    m = Maker(rows)
    gamma, beta = m.normal(11), m.normal(11)
    for offset, outlier, near in ((0, 0, 1e-6), (1e3, 0, 1e-6), (-3e4, 0, 5e-6), (0, 1e4, 5e-4), (5, -1e6, 5e-4)):
        x = m.normal(rows, 11) + np.float32(offset)
        x[0] += np.float32(outlier)
        y, mean, variance = forward(device, x, gamma, beta, relu="")
        exact = x.astype(np.float64)
        wanted_mean, wanted = exact.mean(0), exact.var(0)
        assert np.abs(mean - wanted_mean).max() <= 2e-7 * np.abs(exact).max()  # a float32's last bit
        assert np.all(np.abs(variance - wanted) <= near * wanted), (offset, outlier)
        u = (exact - wanted_mean) / np.sqrt(wanted + EPS)
        blurred = near * np.abs(u) + 2e-7 * np.abs(exact).max() / np.sqrt(wanted + EPS) + 1e-6
        assert np.all(np.abs(y - (u * gamma + beta)) <= blurred * (np.abs(gamma) + np.abs(beta) + 1))


@pytest.mark.parametrize("relu", ["", "_relu"])
def test_the_gradients_are_forward_s_differences(device, relu):
    """Of the sum of dy y in float64, by central differences: nothing of the reference is asked."""
    m = Maker(3)
    x, dy, gamma, beta = m.normal(40, 3) * 2 + 1, m.normal(40, 3), m.normal(3), m.normal(3)
    _, mean, variance = forward(device, x, gamma, beta, relu)
    got = ours(device, backward(m, x, mean, variance, gamma, beta, dy, relu=relu))

    def objective(values: list[np.ndarray]) -> float:
        x, gamma, beta = values
        u = (x - x.mean(0)) / np.sqrt(x.var(0) + EPS) * gamma + beta
        return float((dy * (np.maximum(u, 0) if relu else u)).sum())

    check_differences(objective, (x, gamma, beta), got)


def test_backward_is_sure_of_what_forward_let_through(device):
    """Of x that forward makes 0, or nearly: dbeta of ones counts the positive."""
    m = Maker(5)
    for c in (3, 8, 21):
        x, gamma = np.round(m.normal(900, c) * 3) / 3, m.normal(c)
        _, mean, variance = forward(device, x, gamma, np.zeros_like(gamma))
        u = ((x - mean) * (gamma / np.sqrt(variance + np.float32(EPS)))).astype(np.float32)
        for beta in (-u[0], -u[17], np.nextafter(-u[450], np.float32(0)), np.zeros_like(gamma)):
            y, *_ = forward(device, x, gamma, beta)
            ones = np.ones_like(x)
            dx, dgamma, dbeta = ours(device, backward(m, x, mean, variance, gamma, beta, ones))
            positive = y > 0
            assert np.array_equal(dbeta, positive.sum(0)) and 0 < positive.sum() < x.size
            masked = backward(m, x, mean, variance, gamma, beta, positive.astype(np.float32), relu="")
            for a, b in zip((dx, dgamma, dbeta), ours(device, masked), strict=True):
                assert a.tobytes() == b.tobytes()


def test_same_bits_for_any_number_of_threads(device):
    m = Maker(7)
    for shape in [(2, 64, 28, 28), (5000, 17), (70, 1100), (3, 5, 6, 7)]:
        c = shape[1]
        x, dy, gamma, beta = m.normal(*shape), m.normal(*shape), m.normal(c), m.normal(c)
        _, mean, variance = forward(device, x, gamma, beta)
        inference = m.example(
            "batch_norm.inference_scale", [x, mean, variance, np.float32([2]), gamma, beta], [shape], attrs(eps=EPS)
        )
        each = [
            moments(m, x), normalize(m, x, mean, variance, gamma, beta),
            backward(m, x, mean, variance, gamma, beta, dy), inference,
        ]  # fmt: skip
        want = [ours(device, e) for e in each]
        for threads in (2, 3, 5):
            other = CpuDevice(threads=threads)
            for e, outputs in zip(each, want, strict=True):
                for a, b in zip(outputs, ours(other, e), strict=True):
                    assert a.tobytes() == b.tobytes(), (e.name, threads)


def test_trains_as_without_fusion(device):
    """Three steps of a residual net; rounding differs."""
    ends = []
    for fuse in (True, False):
        with machine("residual", device, "liveness:m", fuse=fuse) as made:
            program = made.arrangement.schedules["TRAIN"].program
            assert bool(KINDS & set(kinds(program))) == fuse
            for iteration in range(1, 4):
                made.step("TRAIN")
                feed(made, iteration)
            ends.append(persistent(made))
    for name, want in ends[1].items():
        assert np.abs(ends[0][name] - want).max() <= 1e-4 * max(1e-2, np.abs(want).max()), name
