"""Pinned memory on demand: as much as copies use at once, without a copy that waits; proved, judged, run."""

from __future__ import annotations

from dataclasses import replace

import pytest

from minidnn.costs import Staging
from minidnn.memory.budget import BudgetError
from minidnn.memory.execution.simulator import simulate
from minidnn.memory.planning import arrange
from minidnn.memory.proof.verify import ScheduleError, verify
from minidnn.memory.schedule import Fetch, Offload, Prefetch, Stash
from tests.memory.lowering.test_staging import POLICIES, least, train
from tests.support.mutate import without
from tests.support.oracle import broken
from tests.support.programs import PROGRAMS, chain, costs, random_graph

KIB = 1024
ON_DEMAND = Staging(0, on_demand=True)


def pinned(program, policy, staging=ON_DEMAND, budget=None, **more):
    return arrange([program], policy, replace(costs(**more), staging=staging), budget)


def most_at_once(s, on):
    """Bytes of the staging slots that instructions use at one time, the most in a step: the time of each is from its
    first use to its last."""
    uses = {}
    for span in simulate(s, on).spans:
        slot = getattr(s.instructions[span.index], "staging_slot", None)
        if slot is not None:
            start, end = uses.get(slot, (span.start, span.end))
            uses[slot] = min(start, span.start), max(end, span.end)
    return max(sum(slot.nbytes for slot, (a, b) in uses.items() if a <= t < b) for t, _ in uses.values())


@pytest.mark.parametrize("compress", [False, True])
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("name", PROGRAMS)
def test_proved_no_copy_waits_for_pinned_bytes_and_none_are_wasted(name, policy, compress):
    program = PROGRAMS[name]()
    budget = least(program) if policy == "vdnn_pp:m" else None
    plain = arrange([program], policy, costs(), budget)
    on = replace(costs(), staging=replace(ON_DEMAND, compress=compress))
    a = arrange([program], policy, on, budget)
    s = a.schedules["TRAIN"]
    assert broken(s) is None and a.arena == plain.arena
    assert simulate(s, on).seconds <= simulate(plain.schedules["TRAIN"], costs()).seconds * (1 + 1e-9)
    assert a.host <= plain.host
    if a.ring:
        assert most_at_once(s, on) <= a.ring


@pytest.mark.parametrize("seed", range(12))
def test_any_graph_is_proved_however_quick_the_threads_are(seed):
    program = random_graph(seed, 14)
    for rate in (1e7, 1e9, 1e12):
        assert broken(pinned(program, "vdnn_all:m", replace(ON_DEMAND, copy_rate=rate)).schedules["TRAIN"]) is None


@pytest.mark.slow
@pytest.mark.parametrize("compress", [False, True])
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_same_bytes_with_poison_and_late_copies(name, policy, compress):
    program = PROGRAMS[name]()
    want, _, _ = train(program, "baseline:m", None)
    budget = least(program) if policy == "vdnn_pp:m" else None
    staging = replace(ON_DEMAND, compress=compress)
    got, _, _ = train(program, policy, staging, budget, debug=True, delays=1e-3, seed=len(name))
    assert got == want


def test_a_chain_pins_what_is_on_its_way_and_no_more():
    """Maps of 64 KiB, of which a copy and the thread each take the time of a copy: two of eight are pinned at once."""
    program, rate = chain(8), 64 * KIB / 1e-3
    on = replace(costs(bandwidth=rate), staging=replace(ON_DEMAND, copy_rate=rate))
    a = arrange([program], "vdnn_all:m", on)
    s = a.schedules["TRAIN"]
    assert a.ring == most_at_once(s, on) == 128 * KIB
    assert a.store == sum(isinstance(x, Stash) for x in s.instructions) * 64 * KIB


def test_a_thread_that_is_too_slow_moves_nothing_and_all_stays_pinned_as_in_vdnn():
    program = PROGRAMS["inception"]()
    plain = arrange([program], "vdnn_all:m", costs())
    a = pinned(program, "vdnn_all:m", replace(ON_DEMAND, copy_rate=1.0))
    s = a.schedules["TRAIN"]
    assert not [x for x in s.instructions if isinstance(x, (Stash, Fetch))] and a.store == 0
    assert a.host == plain.host


def test_what_the_thread_has_not_begun_when_forward_ends_stays_pinned():
    program = chain(8)
    on = replace(costs(), staging=replace(ON_DEMAND, copy_rate=64 * KIB / 2e-4))
    s = arrange([program], "vdnn_all:m", on).schedules["TRAIN"]
    spans = {span.index: span for span in simulate(s, on).spans}
    turn = max(
        spans[i].end for op, i in zip(s.plan.order, s.points, strict=True) if op in program.ops[: program.forward]
    )
    stashes = [spans[i] for i, x in enumerate(s.instructions) if isinstance(x, Stash)]
    assert stashes and all(span.start < turn for span in stashes)
    fetched = {x.staging_slot.tensor for x in s.instructions if isinstance(x, Fetch)}
    back = {x.residency.tensor for x in s.instructions if isinstance(x, Prefetch) and x.staging_slot is not None}
    assert fetched < back  # the others come from the bytes that they left by


def test_dropping_any_stash_or_fetch_is_refused():
    s = pinned(chain(6), "vdnn_all:m").schedules["TRAIN"]
    dropped = [i for i, x in enumerate(s.instructions) if isinstance(x, (Stash, Fetch))]
    assert len(dropped) >= 6
    for i in dropped:
        with pytest.raises(ScheduleError):
            verify(without(s, i))


def test_a_host_budget_counts_pinned_and_ordinary_memory():
    program, on = chain(8), replace(costs(), staging=ON_DEMAND)
    a = arrange([program], "vdnn_all:m", on)
    assert a.ring and a.store
    arrange([program], "vdnn_all:m", on, None, a.off_device)
    with pytest.raises(BudgetError) as refused:
        arrange([program], "vdnn_all:m", on, None, a.off_device - 1)
    assert refused.value.smallest == a.off_device


def test_inputs_and_outputs_keep_places_of_their_own():
    s = pinned(chain(4), "vdnn_all:m").schedules["TRAIN"]
    own = {*s.program.inputs, *s.program.outputs}
    for x in s.instructions:
        if isinstance(x, (Offload, Prefetch)):
            assert (x.staging_slot is None) == (x.residency.tensor in own)
