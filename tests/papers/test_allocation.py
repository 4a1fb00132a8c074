"""Pools at run time: hand-drawn requests, and what every way to allocate must keep."""

from __future__ import annotations

import pytest

from minidnn.memory.lowering.placement import problem
from minidnn.memory.packing.greedy import ORDERS, online
from minidnn.memory.planning import arrange
from minidnn.memory.schedule import Buffer, aligned, live_peak
from minidnn_papers import rows
from minidnn_papers.allocation import FITS, lasting_maps, placed, pool_size, table
from tests.support.programs import PROGRAMS, chain, costs
from tests.support.slow import usual_are

KIB = 1024


def buffers(*rows: tuple[int, int, int]) -> list[Buffer]:
    return [Buffer(kib * KIB, lo, hi) for kib, lo, hi in rows]


def needed(bs, fit, right=(), order="start"):
    peak, _ = live_peak(bs, 50, lambda b: aligned(b.nbytes))
    return pool_size(bs, order, fit, right, peak) / KIB


def test_short_lives_leave_holes_between_long_ones_unless_these_have_an_end_of_their_own():
    """Long 2s come after short 3s, three times: from one end each hole of 3 stays between them, and the 9 fits none."""
    bs = buffers((3, 0, 1), (2, 0, 9), (3, 2, 3), (2, 2, 9), (9, 4, 5))
    long = [b for b in bs if b.hi == 9]
    assert needed(bs, "first", long) == 13  # the live peak: 2 + 2 + 9
    assert needed(bs, "first") == 16


def test_fits_differ_where_holes_of_three_sizes_wait():
    """Holes of 6, 3 and 8 come free between ones that last. A 3 takes the first, the tightest or the widest of them;
    then a 6 and an 8 find their holes, or not."""
    bs = buffers(
        (6, 0, 10), (1, 1, 20), (3, 2, 10), (1, 3, 20), (8, 4, 10), (1, 5, 20), (3, 10, 20), (6, 11, 20), (8, 12, 20)
    )  # fmt: skip
    assert {fit: needed(bs, fit) for fit in FITS} == {"first": 28, "best": 20, "worst": 31}


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


def test_lasting_maps_are_those_that_backward_finds_in_place():
    s = arrange([chain(4)], "vdnn_conv:m", costs()).schedules["TRAIN"]
    names = {b.label for b in lasting_maps(s)}
    assert {"pool.y", "conv3.y=relu3.y"} <= names and "conv0.y=relu0.y" not in names and "conv0.w" not in names


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
    assert pinned["pinned less than vDNN, with a ring, %"] > 60 and 20 < pinned["packed, less than raw, %"] < 70
    assert all(r.reason for r in found if r.paper is None or r.ours is None or abs(r.deviation) > 0.01)
