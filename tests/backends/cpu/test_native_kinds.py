"""Our own kernels, kind by kind, beyond what test_kernels.py and test_threads.py show of every algorithm: nothing
outside of the workspace that they declare."""

from __future__ import annotations

import numpy as np
import pytest

from minidnn.backends.cpu import CpuDevice
from minidnn.backends.cpu.native import (
    activation,
    attention,
    bias,
    broadcast,
    distance,
    dropout,
    elementwise,
    gather,
    group_norm,
    join,
    loss,
    lrn,
    matmul,
    move,
    norms,
    pooling,
    recurrent,
    resize,
    rotary,
    row_norm,
    summary,
    update,
)
from minidnn.backends.cpu.native.binding import NAME
from minidnn.backends.reference import KERNELS
from tests.support.cpu_kinds import close, spoiled
from tests.support.op_examples import Example, Maker, attrs, compiled, examples, expected, guarded, place, run
from tests.support.slow import usual_are

ALL = examples()
FAMILIES = (
    activation, attention, bias, broadcast, distance, dropout, elementwise, gather, group_norm, join, loss, lrn, matmul,
    move, norms, pooling, recurrent, resize, rotary, row_norm, summary, update,
)  # fmt: skip


def devices(*threads: int) -> list[CpuDevice]:
    return [compiled(n) for n in threads]


def native(device: CpuDevice, e: Example):
    return [a for a in device.algorithms(e.op) if a.name == NAME]


def test_stays_within_its_workspace():
    """And within its tensors: guards around them stay as they were."""
    for device in devices(1, 3):
        for e in ALL:
            for algorithm in native(device, e):
                assert guarded(device, e, algorithm), e.name


def test_a_call_may_be_repeated():
    """What is in the workspace from the last time does not matter."""
    (device,) = devices(2)
    for e in ALL:
        if {t for t in e.op.reads} & {t for t in e.op.writes}:
            continue
        for algorithm in native(device, e):
            call, views = place(device, e, algorithm)
            call()
            first = [views[t].tobytes() for t in e.op.writes]
            call()
            assert [views[t].tobytes() for t in e.op.writes] == first, e.name


def test_softmax_is_near_to_float64():
    """Of each probability that a float32 holds, not of the largest alone: backward divides by nothing, a loss does."""
    (device,) = devices(1)
    m = Maker(1)
    for spread in (0.1, 1, 10, 40):
        e = m.example("softmax.forward", [m.normal(50, 37) * spread], [(50, 37)], attrs(axis=1))
        (x,) = e.data.values()
        want = np.exp((x - x.max(1, keepdims=True)).astype(np.float64))
        want /= want.sum(1, keepdims=True)
        (got,) = run(device, e, native(device, e)[0])
        normal = want > 2 * np.finfo(np.float32).tiny
        assert (np.abs(got - want)[normal] <= 1e-6 * want[normal]).all() and (got[~normal] < 1e-37).all(), spread


@pytest.mark.parametrize(
    "kind", ["softmax_loss.forward", "softmax_loss.backward", "accuracy.forward", "accuracy.by_class"]
)
def test_a_wrong_label_is_named_by_all_that_read_it(kind):
    (device,) = devices(1)
    e = next(e for e in ALL if e.op.kind == kind and e.op.attrs.ignore_label is None)
    label = e.op.reads[1]
    for wrong in (-1, e.op.reads[0].shape[1]):
        data = {**e.data, label: e.data[label].copy()}
        data[label][2] = wrong
        for algorithm in device.algorithms(e.op):
            with pytest.raises(ValueError, match=rf"label {wrong} \(number 2 of the batch\) names none of"):
                run(device, Example(e.name, e.op, data), algorithm)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("family", FAMILIES, ids=lambda f: f.__name__.split(".")[-1])
@pytest.mark.parametrize("every", usual_are([False], [False, True]))
def test_what_is_not_finite_stands_where_the_reference_says(family, every):
    """NaN, inf and -inf each where they should be, and nowhere else."""
    (device,) = devices(1)
    for kind in family.FIRST:
        for e, _ in spoiled(kind, every):
            want = expected(KERNELS, e)
            for algorithm in native(device, e):
                for t, g, w in zip(e.op.writes, run(device, e, algorithm), want, strict=True):
                    finite = np.isfinite(w)
                    assert np.array_equal(np.isfinite(g), finite), f"{e.name}: {t.name}"
                    assert close(np.where(finite, g, 0), np.where(finite, w, 0), e.exact), f"{e.name}: {t.name}"
