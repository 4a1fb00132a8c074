"""The softmax loss of an inner product: no bit depends on how many rows of scores live at a time, or on threads."""

from __future__ import annotations

import numpy as np
import pytest

from minidnn.backends.cpu.native.linear_loss import ROWS
from minidnn.backends.reference import KERNELS
from tests.support.cpu_kinds import by_kind, close
from tests.support.op_examples import Example, compiled, expected, guarded, run

ALL = by_kind("linear_loss.forward")
PADDED = next(e for e in ALL if e.op.reads[0].shape == (4, 257, 17) and len(e.op.writes) == 3)


def offered(device, e):
    return [a for a in device.algorithms(e.op) if a.name.startswith("rows_")]


@pytest.mark.parametrize("e", ALL, ids=lambda e: e.name)
def test_any_number_of_rows_and_threads_gives_the_same_bits(e):
    want, found = expected(KERNELS, e), set()
    for device in (compiled(n) for n in (1, 2, 3)):
        for algorithm in offered(device, e):
            got = run(device, e, algorithm)
            assert all(close(g, w, e.exact) for g, w in zip(got, want, strict=True)), algorithm
            assert guarded(device, e, algorithm)
            found.add(tuple(g.tobytes() for g in got))
    assert len(found) == 1


def test_fewer_rows_need_less_workspace():
    device, most = compiled(), max(ALL, key=lambda e: e.op.reads[0].size)
    more, less = offered(device, most)
    scores = 4 * most.op.reads[1].shape[0]
    assert more.name == f"rows_{4 * ROWS}" and less.name == f"rows_{ROWS}"
    assert more.workspace - less.workspace == 3 * ROWS * scores


def test_a_wrong_label_is_named():
    e = PADDED
    label = e.op.reads[2]
    for wrong in (-1, e.op.reads[1].shape[0]):
        changed = e.data[label].copy()
        changed.reshape(-1)[5] = wrong
        for algorithm in compiled().algorithms(e.op):
            with pytest.raises(ValueError, match=rf"label {wrong} \(number 5 of the batch\) names none of"):
                run(compiled(), Example(e.name, e.op, {**e.data, label: changed}), algorithm)


def test_scores_that_are_not_finite_are_not_hidden():
    e = PADDED
    x = e.op.reads[0]
    changed = e.data[x].copy()
    changed[0, 0, 0] = np.nan
    for algorithm in compiled().algorithms(e.op):
        loss, dx, dw = run(compiled(), Example(e.name, e.op, {**e.data, x: changed}), algorithm)
        assert np.isnan(loss).all() and np.isnan(dx[0, 0]).all() and np.isfinite(dx[1:]).all() and np.isnan(dw).all()
