"""Pools as at run time: hand-drawn requests, what every heuristic must keep, and plans that are placed so."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minidnn.costs import Heuristic
from minidnn.memory.budget import BudgetError
from minidnn.memory.lowering.placement import lasting_maps, problem
from minidnn.memory.packing.greedy import ORDERS
from minidnn.memory.packing.pool import FITS, pool_size, pooled
from minidnn.memory.planning import arrange
from minidnn.memory.schedule import ALIGNMENT, Buffer
from tests.memory.packing.test_packing import problem as problem_of
from tests.memory.packing.test_packing import rows
from tests.support.examples import examples
from tests.support.oracle import broken
from tests.support.programs import PROGRAMS, chain, costs

HEURISTICS = [Heuristic(fit, two_ended, order) for fit in FITS for two_ended in (False, True) for order in ORDERS]
KIB = 1024


def buffers(*rows: tuple[int, int, int]) -> list[Buffer]:
    return [Buffer(kib * KIB, lo, hi) for kib, lo, hi in rows]


def needed(bs, fit, right=(), order="start"):
    by = Heuristic(fit, bool(right), order)
    return pool_size(problem(bs), by, np.array([b in right for b in bs]), ALIGNMENT) / KIB


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


def test_lasting_maps_are_those_that_backward_finds_in_place():
    s = arrange([chain(4)], "vdnn_conv:m", costs()).schedules["TRAIN"]
    names = {b.label for b, lasts in zip(s.buffers, lasting_maps(s.buffers, s.plan), strict=True) if lasts}
    assert {"pool.y", "conv3.y=relu3.y"} <= names and "conv0.y=relu0.y" not in names and "conv0.w" not in names


@given(rows, st.sampled_from(HEURISTICS), st.integers(0, 1 << 30))
@examples(60)
def test_any_problem_is_solved_and_no_pool_is_smaller_than_the_load(rows, by, seed):
    p = problem_of(*rows)
    lasting = np.random.default_rng(seed).random(len(p)) < 0.5
    found = pooled(p, by, lasting)
    assert found.overlap(p) is None and (found.offset >= 0).all()
    assert p.load <= found.height <= pool_size(p, by, lasting)
    enough = pooled(p, by, lasting, enough=2 * int(p.size.sum()))
    assert enough.overlap(p) is None and enough.height <= 2 * int(p.size.sum())


@pytest.mark.parametrize("by", HEURISTICS, ids=lambda by: f"{by.fit}-{by.order}-{1 + by.two_ended}")
@pytest.mark.parametrize("name", ["residual", "inception"])
def test_plans_that_are_placed_by_a_heuristic_are_proved(name, by):
    program, on = PROGRAMS[name](), replace(costs(), placement=by)
    s = arrange([program], "vdnn_conv:m", on).schedules["TRAIN"]
    assert (
        broken(s) is None
        and s.placement == f"pool/{by.order}/{by.fit}_fit/{'two_ended' if by.two_ended else 'one_end'}"
    )
    assert s.plan.offloads == arrange([program], "vdnn_conv:m", costs()).schedules["TRAIN"].plan.offloads


@pytest.mark.parametrize(
    "policy, name",
    [
        *((policy, "inception") for policy in ("vdnn_pp:m", "superneurons_on_demand", "dtr:m")),
        ("best", "chain"),
        pytest.param("best", "inception", marks=pytest.mark.extended),
    ],
)
def test_a_policy_plans_for_the_places_that_the_heuristic_gives(policy, name):
    """Its smallest budget is one that it keeps with these places, which may be a larger one."""
    program, on = PROGRAMS[name](), replace(costs(), placement=Heuristic("worst", True, "size"))
    with pytest.raises(BudgetError) as refused:
        arrange([program], policy, on, 1)
    s = arrange([program], policy, on, refused.value.smallest).schedules["TRAIN"]
    assert s.arena <= refused.value.smallest and s.placement.startswith("pool/")
