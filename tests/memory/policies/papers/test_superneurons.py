"""SuperNeurons under budgets: its tensor cache, its recomputation, and that neither changes a number."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minidnn.memory import policies
from minidnn.memory.budget import BudgetError
from minidnn.memory.execution.trace import copied
from minidnn.memory.plan import Plan, in_place_sharing
from minidnn.memory.planning import arrange
from minidnn.memory.policies.papers.superneurons_cache import TensorCache
from minidnn.memory.policies.shared.algorithms import choose
from tests.support.examples import examples
from tests.support.oracle import broken
from tests.support.paths import SMALL_NETS
from tests.support.programs import PROGRAMS, costs, random_graph
from tests.support.slow import usual_are
from tests.support.trains import train


def moved(s):
    found = copied(s.instructions, s)
    return found["offload_bytes"] + found["prefetch_bytes"]


def under(program, budget):
    """The schedule, or, where there is none, that of the smallest budget, which must be kept."""
    try:
        return arrange([program], "superneurons", costs(), budget).schedules["TRAIN"]
    except BudgetError as error:
        assert error.smallest > budget
        return arrange([program], "superneurons", costs(), error.smallest).schedules["TRAIN"]


@pytest.mark.parametrize("name", PROGRAMS)
def test_nothing_moves_nor_runs_again_while_the_net_fits(name):
    p = PROGRAMS[name]()
    s = under(p, arrange([p], "liveness:m", costs()).arena)
    assert moved(s) == 0
    assert len(s.plan.order) == len(p.ops)


@pytest.mark.extended
@given(st.integers(0, 1 << 30), st.integers(2, 20), st.floats(0, 1))
@examples(20)
def test_any_graph_under_any_budget_is_proved_and_the_oracle_agrees(seed, layers, part):
    p = random_graph(seed, layers)
    assert broken(under(p, int(part * arrange([p], "liveness:m", costs()).arena))) is None


def test_both_techniques_are_used_where_they_are_needed():
    p = PROGRAMS["residual"]()
    full = arrange([p], "liveness:m", costs()).arena
    found = [under(p, int(full * part)) for part in (0.9, 0.7, 0.5)]
    assert all(moved(s) or len(s.plan.order) > len(p.ops) for s in found)
    assert any(moved(s) for s in found)


def cache_of(p):
    return TensorCache(p, costs(), Plan(order=p.ops, algorithm=choose(p, costs(), "m"), share=in_place_sharing(p)))


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
@pytest.mark.parametrize("device", usual_are(["cpu"], ["reference", "cpu"]))
def test_bit_identical_under_its_smallest_budget(device, net, monkeypatch):
    """The budget chooses algorithms, so the baseline takes the same ones."""
    try:
        got, losses, algorithms = train(net, device, "superneurons", budget=1, debug=True, delays=2e-3)
    except BudgetError as error:
        got, losses, algorithms = train(net, device, "superneurons", budget=error.smallest, debug=True, delays=2e-3)

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
