"""Fragmentation: what the table of every way to allocate must keep, and vDNN++'s rows."""

from __future__ import annotations

import pytest

from minidnn.memory.lowering.placement import problem
from minidnn.memory.packing.greedy import ORDERS, online
from minidnn.memory.packing.pool import FITS
from minidnn.memory.planning import arrange
from minidnn_papers import rows
from minidnn_papers.allocation import placed, table
from tests.support.programs import PROGRAMS, costs
from tests.support.slow import usual_are


@pytest.mark.slow
@pytest.mark.parametrize("policy", usual_are(["vdnn_all:m"], ["liveness:p", "vdnn_all:m"]))
@pytest.mark.parametrize("name", PROGRAMS)
def test_no_pool_is_smaller_than_the_live_peak_and_one_end_is_a_run_time_pool(name, policy):
    s = arrange([PROGRAMS[name]()], policy, costs()).schedules["TRAIN"]
    cells = list(table(s))
    assert len(cells) == 2 * len(FITS) * len(ORDERS)
    assert all(c.overhead >= 0 and c.live_peak == placed(s).live_peak for c in cells)
    assert 0 <= placed(s).overhead <= 0.2
    # The pool that grows on demand (greedy.online) allocates as one end does. Where it ends lower, a fixed pool
    # of that size must do, too: a gap at the pool's end is one gap among others only for worst and best fit.
    at_run_time = next(c for c in cells if (c.fit, c.two_ended, c.order) == ("first", False, "start"))
    bs = [b for b in s.buffers if not b.persistent and b.hi - b.lo < len(s.plan.order)]
    grown = problem(bs)
    assert at_run_time.needed <= (online(grown, best_fit=False) + grown.size).max() * 1.01


@pytest.mark.extended
@pytest.mark.slow
def test_rows_of_vdnn_plus_plus():
    found = list(rows("vdnnpp"))
    gains = [r for r in found if r.figure == "speed over vDNN"]
    assert len(gains) == 4 * 8 and all(r.ours >= -1e-9 for r in gains)
    pools = [r for r in found if r.figure == "fragmentation"]
    ours = [r.ours for r in pools if "placed" in r.case]
    assert len(ours) == 6 and max(ours) < 1.03 < max(r.ours for r in pools)
    (claim,) = (r for r in found if r.paper == 60 and "speed" in r.quantity)
    assert claim.ours == max(r.ours for r in gains if "GoogLeNet" not in r.case) and claim.ours > 20
    pinned = {r.quantity: r.ours for r in found if r.figure == "abstract" and "less" in r.quantity}
    assert 40 < pinned["pinned on demand, less than by vDNN, %"] < 80
    assert pinned["pinned less than vDNN, with a ring, %"] > 60 and 20 < pinned["packed, less than raw, %"] < 70
    assert all(r.reason for r in found if r.paper is None or r.ours is None or abs(r.deviation) > 0.01)
