"""best keeps the budget of the host: it is in its decisions, in its bound, and in what it takes of other policies."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minidnn.costs.costs import Disk, Staging
from minidnn.memory.budget import BudgetError
from minidnn.memory.execution.simulator import simulate
from minidnn.memory.joint.bound import LowerBound
from minidnn.memory.joint.evaluator import Evaluator, TooLong
from minidnn.memory.joint.index import Index
from minidnn.memory.joint.planner import Planner
from minidnn.memory.joint.variants import ProgramVariants
from minidnn.memory.lowering.host import fixed, host_room
from minidnn.memory.planning import arrange, unproved
from minidnn.memory.schedule import Arrangement
from tests.support.decisions import HUGE, at_random, placed
from tests.support.examples import examples
from tests.support.programs import KB, PROGRAMS, costs, forward_only, random_graph, wild_graph
from tests.support.slow import usual_are

STAYING = ["liveness:p", "recompute_cheap:p", "sqrt_n:p", "recompute_all:p"]
LEANEST = ["superneurons", "accudnn", "vdnn_dyn", "vdnn_all:p", "recompute_cheap"]
OTHERS = [*STAYING, "vdnn_all:p", "vdnn_conv:m", "superneurons", "accudnn", "layrub:m"]


@pytest.mark.parametrize("name", ["inception", "nested", 1, 2])
def test_the_evaluator_counts_the_bytes_of_the_host_as_placement_does(name):
    r = random.Random(name)
    program = PROGRAMS[name]() if isinstance(name, str) else wild_graph(name, 9)
    device = costs(bandwidth=4e8)
    within = beyond = 0
    for _ in range(40):
        room = r.randrange(0, 400 * KB)
        limited = replace(device, host=fixed(program) + room)
        ev, free = Evaluator(Index(program, limited)), Evaluator(Index(program, device))
        at_random(free, r)
        try:
            free.evaluate(HUGE)
        except TooLong:
            continue
        ev.restore(free.save())
        travelling = placed(program, device, free.plan()).host_bytes - fixed(program)
        found, left = ev.evaluate(HUGE), ev.host_left()
        if host_room(program, limited) is None:
            assert found.within_limits and left is None
            continue
        assert found.crowded == max(0, travelling - room) and left == room - travelling
        within, beyond = within + found.within_limits, beyond + (not found.within_limits)
    assert min(within, beyond) > 3


@pytest.mark.parametrize("name", usual_are(["chain"], ["chain", "residual", "inception"]))
def test_the_less_room_the_host_has_the_higher_are_bound_and_plan(name):
    program, device = PROGRAMS[name](), costs(bandwidth=2e9)
    budget = arrange([program], "liveness:p", device).arena * 6 // 10
    found = []
    for room in (0, 64 * KB, 128 * KB, 256 * KB, 1 << 30):
        limited = replace(device, host=fixed(program) + room)
        bound = LowerBound(Index(program, limited))
        found.append((bound.at(budget).seconds, bound.least(), Planner(program, limited).within(budget).seconds))
    for kind in zip(*found, strict=True):
        assert all(less >= more * 0.999 for less, more in pairwise(kind)) and kind[0] > kind[-1]
    unlimited = Planner(program, device).within(budget)
    assert found[-1] == (LowerBound(Index(program, device)).at(budget).seconds, found[-1][1], unlimited.seconds)


@pytest.mark.parametrize("disk", [pytest.param(None, marks=pytest.mark.extended), Disk()])
def test_behind_a_ring_the_host_s_budget_is_that_of_ring_and_store_and_a_disk_takes_the_rest(disk):
    program = PROGRAMS["inception"]()
    device = replace(costs(bandwidth=1e9), staging=Staging(300 * KB, disk=disk))
    budget = arrange([program], "liveness:p", device).arena * 6 // 10
    free = arrange([program], "best", device, budget)
    some = arrange([program], "best", device, budget, 500 * KB)
    none = arrange([program], "best", device, budget, 300 * KB)
    assert some.ring and some.off_device <= 500 * KB and bool(some.disk) == (disk is not None)
    assert none.ring == none.disk == 0 and none.off_device == fixed(program)
    assert seconds(free, device) == seconds(some, device) < seconds(none, device)


@pytest.mark.extended
def test_where_the_host_has_room_a_disk_makes_no_step_slower():
    program, link = PROGRAMS["inception"](), costs(bandwidth=1e10)  # quicker than the thread that fills a ring
    slow = replace(link, staging=Staging(0, disk=Disk(write_rate=1e8, read_rate=1e8)))
    budget = arrange([program], "liveness:p", link).arena * 6 // 10
    bare = arrange([program], "best", link, budget)
    behind = arrange([program], "best", slow, budget, bare.off_device)
    assert behind.off_device <= bare.off_device and seconds(behind, slow) <= seconds(bare, link)
    assert behind.schedules["TRAIN"].plan.bound is None  # which would hold for plans without a disk


def asked(seed, layers, part, room, graph, both):
    """Programs, a device, and budgets: a part of what liveness takes of the device; of the host what it takes, and a
    part of what vdnn_all takes besides."""
    program, device = graph(seed, layers), costs(bandwidth=random.Random(seed).choice([2e8, 1e9, 4e9]))
    programs = [program, forward_only(program)] if both else [program]
    whole = arrange(programs, "liveness:p", device)
    most = Arrangement.of("", unproved(programs, "vdnn_all:p", device, 0), None).off_device
    return programs, device, int(whole.arena * part), whole.off_device + int((most - whole.off_device) * room)


CASES = (
    st.integers(0, 1 << 30), st.integers(3, 11), st.sampled_from([0.9, 0.7, 0.5]), st.sampled_from([0, 0.1, 0.3, 0.7]),
    st.sampled_from([wild_graph, random_graph]), st.booleans(),
)  # fmt: skip


@pytest.mark.extended
@given(*CASES)
@examples(6)
def test_what_any_policy_keeps_best_keeps_no_slower_and_never_below_the_bound(seed, layers, part, room, graph, both):
    programs, device, budget, host = asked(seed, layers, part, room, graph, both)
    kept = {}
    for policy in OTHERS:
        found = Arrangement.of(policy, unproved(programs, policy, device, budget), budget)
        if found.arena <= budget and found.off_device <= host:
            kept[policy] = seconds(found, device)
    try:
        best = arrange(programs, "best", device, budget, host)
    except BudgetError as error:
        assert not kept, f"{error}, but {kept}"
        return
    assert best.arena <= budget and best.off_device <= host
    bound = ProgramVariants(programs[0], replace(device, host=host)).closest(budget).seconds * (1 - 1e-9)
    assert all(bound <= found for found in (*kept.values(), seconds(best, device)))
    assert best.schedules["TRAIN"].plan.bound <= seconds(best, device) * (1 + 1e-9)
    assert seconds(best, device) <= min((kept[p] for p in STAYING if p in kept), default=HUGE) * (1 + 1e-9)


@pytest.mark.parametrize("policy", usual_are(LEANEST, ["best", *LEANEST]))
@given(*CASES)
@examples(2)
def test_the_budgets_that_a_refusal_names_are_kept(policy, seed, layers, part, room, graph, both):
    """Of device and host; and less of the one that is named is not enough for the plan that was refused."""
    programs, device, budget, host = asked(seed, layers, part / 2, room, graph, both)
    try:
        arrange(programs, policy, device, budget, host)
    except BudgetError as refused:
        assert refused.kept and refused.smallest > (host if refused.host else budget)
        for named in refused.kept:
            found = arrange(programs, policy, device, *named)
            assert found.arena <= named[0] and (named[1] is None or found.off_device <= named[1])
            assert f"{named[1] if named[0] == budget else named[0]} bytes" in str(refused)


def seconds(arrangement, device) -> float:
    return simulate(arrangement.schedules["TRAIN"], device).seconds


@pytest.mark.extended
def test_where_the_host_may_hold_nothing_a_budget_is_kept_by_recomputation_or_refused():
    program = PROGRAMS["chain"]()
    whole = (*program.persistent, *program.inputs, *program.outputs)
    program = replace(program, inputs=(), outputs=(), persistent=whole, held=whole)  # as the steps of PyTorch have it
    device = replace(costs(bandwidth=2e9), host=0)
    assert fixed(program) == 0
    with pytest.raises(BudgetError, match="with a host budget of 0 bytes") as refused:
        arrange([program], "best", device, 1)
    kept = arrange([program], "best", device, refused.value.smallest)
    (schedule,) = kept.schedules.values()
    assert kept.arena <= refused.value.smallest and schedule.host_bytes == 0
