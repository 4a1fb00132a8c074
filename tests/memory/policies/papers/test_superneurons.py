"""SuperNeurons under budgets: its tensor cache, its recomputation, and that neither changes a number."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minidnn.memory import policies
from minidnn.memory.budget import BudgetError
from minidnn.memory.execution.simulator import simulate
from minidnn.memory.execution.trace import copied
from minidnn.memory.plan import Plan, in_place_sharing
from minidnn.memory.planning import arrange
from minidnn.memory.policies.papers.superneurons_cache import TensorCache
from minidnn.memory.policies.shared.algorithms import choose
from minidnn.memory.schedule import Offload
from tests.support.examples import examples
from tests.support.oracle import broken
from tests.support.paths import SMALL_NETS
from tests.support.programs import PROGRAMS, costs, random_graph
from tests.support.slow import usual_are
from tests.support.trains import train


def moved(s):
    found = copied(s.instructions, s)
    return found["offload_bytes"] + found["prefetch_bytes"]


BOTH = ["superneurons", "superneurons_on_demand"]


def under(program, budget, policy="superneurons"):
    """The schedule, or, where there is none, that of the smallest budget, which must be kept."""
    try:
        return arrange([program], policy, costs(), budget).schedules["TRAIN"]
    except BudgetError as error:
        assert error.smallest > budget
        return arrange([program], policy, costs(), error.smallest).schedules["TRAIN"]


@pytest.mark.parametrize("policy", BOTH)
@pytest.mark.parametrize("name", PROGRAMS)
def test_nothing_moves_nor_runs_again_while_the_net_fits(name, policy):
    p = PROGRAMS[name]()
    s = under(p, arrange([p], "liveness:m", costs()).arena, policy)
    assert moved(s) == 0
    assert len(s.plan.order) == len(p.ops)


@pytest.mark.extended
@given(st.integers(0, 1 << 30), st.integers(2, 20), st.floats(0, 1), st.sampled_from(BOTH))
@examples(30)
def test_any_graph_under_any_budget_is_proved_and_the_oracle_agrees(seed, layers, part, policy):
    p = random_graph(seed, layers)
    assert broken(under(p, int(part * arrange([p], "liveness:m", costs()).arena), policy)) is None


def test_both_techniques_are_used_where_they_are_needed():
    p = PROGRAMS["residual"]()
    full = arrange([p], "liveness:m", costs()).arena
    found = [under(p, int(full * part)) for part in (0.9, 0.7, 0.5)]
    assert all(moved(s) or len(s.plan.order) > len(p.ops) for s in found)
    assert any(moved(s) for s in found)


def cache_of(p, on_demand=False):
    plan = Plan(order=p.ops, algorithm=choose(p, costs(), "m"), share=in_place_sharing(p))
    return TensorCache(p, costs(), plan, on_demand)


@pytest.mark.parametrize("name", PROGRAMS)
def test_on_demand_the_same_tensors_leave_but_no_copy_out_begins_before_room_is_needed(name):
    p = PROGRAMS[name]()
    ahead, late = cache_of(p), cache_of(p, on_demand=True)
    for cap in range(ahead.keep(0).peak, ahead.keep(1 << 40).peak, 16 << 10):
        found = late.keep(cap).offloads
        assert [(o.tensor, o.free_at, o.prefetch_at, o.needed_at) for o in found] == [
            (o.tensor, o.free_at, o.prefetch_at, o.needed_at) for o in ahead.keep(cap).offloads
        ]
        copied = [o for o in found if o.offload_at is not None]
        assert all(o.on_demand and o.offload_at == o.free_at for o in copied)
        assert not any(o.on_demand for o in found if o.offload_at is None)


def test_on_demand_compute_waits_for_the_whole_of_each_copy_out():
    """The copy waits for the op before it, and the op behind it for the copy: nothing runs beside it."""
    p = PROGRAMS["chain"]()
    budget = int(0.8 * arrange([p], "liveness:m", costs()).arena)
    s = under(p, budget, "superneurons_on_demand")
    late = {o.tensor: o.offload_at for o in s.plan.offloads if o.on_demand}
    assert late
    trace = simulate(s, costs())
    ops = {span.index: span for span in trace.spans if span.stream == "compute"}
    for i, x in enumerate(s.instructions):
        if isinstance(x, Offload) and x.residency.tensor in late:
            point = late[x.residency.tensor]
            (copy,) = (span for span in trace.spans if span.index == i)
            assert ops[s.points[point - 1]].end <= copy.start and copy.end <= ops[s.points[point]].start


def test_on_demand_the_first_of_the_ways_that_fits_is_taken():
    """Nothing runs again while the cache alone fits, though that would be quicker."""
    p = PROGRAMS["residual"]()
    full = arrange([p], "liveness:m", costs()).arena
    found = [under(p, int(full * part), "superneurons_on_demand") for part in (0.9, 0.8, 0.7)]
    assert all(moved(s) and len(s.plan.order) == len(p.ops) for s in found)


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_cache_keeps_its_cap_and_moves_nothing_that_it_need_not(name):
    cache = cache_of(PROGRAMS[name]())
    free, floor = cache.keep(1 << 40), cache.keep(0).peak
    assert not free.offloads and floor < free.peak
    for cap in range(floor, free.peak, 8 << 10):
        found = cache.keep(cap)
        assert found.offloads and found.peak <= cap
    assert not cache.keep(free.peak).offloads


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_leaves_is_not_in_use_and_was_used_longest_ago(name):
    cache = cache_of(PROGRAMS[name]())
    gaps = [  # of all that could go: from one use to the next
        (line, last, after)
        for line in cache.lines.values()
        if line.buffer in cache.movable
        for last, after in pairwise(line.points)
    ]
    offloads = cache.keep(cache.keep(0).peak * 5 // 4).offloads
    away = {
        (id(line), last): offload.free_at
        for offload in offloads
        for line, last, after in gaps
        if last < offload.free_at <= after == offload.needed_at and offload.tensor in line.tensors
    }
    assert len(away) == len(offloads) > 0
    for (which, last), free in away.items():
        for line, earlier, after in gaps:
            residencies = away.get((id(line), earlier), after) > free
            if id(line) != which and earlier < free < after and residencies:
                assert earlier >= last, f"{line.buffer.label} was used before what leaves at {free}"


@pytest.mark.slow
@pytest.mark.parametrize("net", SMALL_NETS)
@pytest.mark.parametrize("policy", BOTH)
@pytest.mark.parametrize("device", usual_are(["cpu"], ["reference", "cpu"]))
def test_bit_identical_under_its_smallest_budget(device, policy, net, monkeypatch):
    """The budget chooses algorithms, so the baseline takes the same ones."""
    try:
        got, losses, algorithms = train(net, device, policy, budget=1, debug=True, delays=2e-3)
    except BudgetError as error:
        got, losses, algorithms = train(net, device, policy, budget=error.smallest, debug=True, delays=2e-3)

    def pinned(program, costs, budget=None):
        plan = policies.POLICIES["liveness"](program, costs, budget)
        offered = {op: [c.algorithm for c in costs.choices(op)] for op in program.ops}
        same = {op: algorithms[op.name] for op in program.ops if algorithms.get(op.name) in offered[op]}
        return Plan(algorithm={**plan.algorithm, **same}, share=plan.share)

    monkeypatch.setitem(policies.CHOOSING, "pinned", pinned)
    want, want_losses, same = train(net, device, "pinned")
    assert same == algorithms
    assert losses == want_losses and got == want


@pytest.mark.slow
def test_bit_identical_with_clipping_and_accumulation():
    """All gradients live at once, and two programs share the arena: under the smallest budget that keeps both."""
    options = dict(clip_gradients=0.5, iter_size=2)
    want, losses, _ = train("residual", "reference", "baseline:m", **options)
    with pytest.raises(BudgetError) as refused:
        train("residual", "reference", "superneurons", budget=1, **options)
    least = refused.value.smallest
    got, got_losses, _ = train(
        "residual", "reference", "superneurons", budget=least, debug=True, delays=2e-3, **options
    )
    assert got_losses == losses and got == want
