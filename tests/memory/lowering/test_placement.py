"""Placement: hand-drawn problems of known height, and properties that always hold."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minidnn.memory.lowering.placement import ORDERS, offline, online, pack
from minidnn.memory.planning import arrange
from minidnn.memory.schedule import Buffer, aligned, live_peak
from tests.support.examples import examples
from tests.support.policies import KINDS as POLICIES
from tests.support.programs import PROGRAMS, costs


def buffers(*rows: tuple[int, int, int]) -> list[Buffer]:
    return [Buffer(kib * 1024, lo, hi) for kib, lo, hi in rows]


def check(bs, where, height):
    for i, a in enumerate(bs):
        assert where[a] % 256 == 0 and where[a] + a.nbytes <= height
        for b in bs[:i]:
            together = a.lo < b.hi and b.lo < a.hi
            apart = where[a] + a.nbytes <= where[b] or where[b] + b.nbytes <= where[a]
            assert apart or not together, (a, b)


@pytest.mark.parametrize(
    ("rows", "height"),
    [
        ([(4, 0, 1)], 4),
        ([(4, 0, 2), (4, 2, 4)], 4),  # one after the other
        ([(4, 0, 3), (4, 2, 4)], 8),  # overlapping by one point
        ([(1, 0, 9), (2, 1, 8), (3, 2, 7), (4, 3, 6)], 10),  # nested, as liveness is
        ([(2, 0, 2), (2, 0, 4), (4, 2, 4)], 6),  # the hole of the first is too small for the last
        ([(4, 0, 2), (2, 0, 4), (4, 2, 4)], 6),  # the hole fits exactly
    ],
)
def test_hand_drawn(rows, height):
    bs = buffers(*rows)
    bound, _ = live_peak(bs, 10, lambda b: aligned(b.nbytes))
    where, got, _ = pack(bs, bound)
    check(bs, where, got)
    assert got == height * 1024


def test_a_tight_problem_on_which_the_order_of_time_fails_and_the_portfolio_does_not():
    """Start order puts the short 3 at the bottom and splits the space that the 6 needs later."""
    bs = buffers((3, 0, 2), (2, 1, 6), (3, 2, 3), (6, 3, 6))
    bound, _ = live_peak(bs, 6, lambda b: aligned(b.nbytes))
    _, by_time = online(bs, best_fit=False)
    where, best, _ = pack(bs, bound)
    check(bs, where, best)
    assert best == bound == 8 * 1024 < by_time


rows = st.lists(
    st.tuples(st.integers(1, 5000), st.integers(0, 30), st.integers(1, 12)).map(lambda r: (r[0], r[1], r[1] + r[2])),
    min_size=1,
    max_size=40,
)


@given(rows)
@examples(60)
def test_every_heuristic_is_valid_and_no_lower_than_the_live_peak(problem):
    bs = [Buffer(n, lo, hi) for n, lo, hi in problem]
    bound, _ = live_peak(bs, 50, lambda b: b.nbytes)
    attempts = [offline(bs, o, f) for o in ORDERS for f in (False, True)] + [online(bs, f) for f in (False, True)]
    for where, height in attempts:
        check(bs, where, height)
        assert height >= bound
    where, height, _ = pack(bs, bound)
    check(bs, where, height)
    assert height <= min(h for _, h in attempts)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("name", PROGRAMS)
def test_arena_is_at_least_the_live_peak_and_close_to_it(name, policy):
    s = arrange([PROGRAMS[name]()], policy, costs()).schedules["TRAIN"]
    assert s.live_peak == int(np.max(s.curve()))
    assert s.live_peak <= s.arena <= 1.2 * s.live_peak + 256 * len(s.buffers)
