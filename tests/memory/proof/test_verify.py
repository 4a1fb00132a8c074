"""The proof: it accepts every schedule that the lowering makes, and refuses every broken one."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minidnn.memory.budget import BudgetError
from minidnn.memory.lowering.lower import lower
from minidnn.memory.lowering.placement import place
from minidnn.memory.plan import OffloadInterval, Plan, complete, in_place_sharing
from minidnn.memory.planning import arrange
from minidnn.memory.proof.verify import ScheduleError, verify
from minidnn.memory.schedule import Alloc, Free, Offload, Prefetch, Schedule, Wait
from tests.support.examples import examples
from tests.support.mutate import KINDS, mutated, without
from tests.support.oracle import broken
from tests.support.policies import EVERY, FEW
from tests.support.policies import KINDS as POLICIES
from tests.support.programs import PROGRAMS, chain, costs, random_graph, wild_graph
from tests.support.slow import quick_are, usual_are


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("name", PROGRAMS)
def test_every_policy_on_every_graph_is_proved_and_the_oracle_agrees(name, policy):
    s = arrange([PROGRAMS[name]()], policy, costs()).schedules["TRAIN"]
    assert broken(s) is None


@pytest.mark.parametrize("name", PROGRAMS)
def test_dropping_any_alloc_free_prefetch_or_offload_is_refused(name):
    s = arrange([PROGRAMS[name]()], "vdnn_all:p", costs()).schedules["TRAIN"]
    dropped = 0
    for i, x in enumerate(s.instructions):
        if isinstance(x, (Alloc, Free, Prefetch, Offload)):
            dropped += 1
            with pytest.raises(ScheduleError):
                verify(without(s, i))
    assert dropped > 20


LONG = {"best", "zero_offload:m"}


@pytest.mark.parametrize("policy", quick_are(FEW, sorted({*FEW, *EVERY} - LONG)) + usual_are([], sorted(LONG)))
def test_mutations_that_break_a_schedule_are_all_refused(policy):
    """Of every policy, with all its bytes and with as few as it can do with: what the oracle calls broken, verify must
    refuse. `pytest -s` shows how many of each kind there were."""
    r = random.Random(2016)
    schedules = []
    for program in (wild_graph(6, 7), wild_graph(16, 8), PROGRAMS["residual"](2)):
        arrangement = arrange([program], policy, costs())
        schedules.append(arrangement.schedules["TRAIN"])
        if (smallest := leanest(program, policy)) < arrangement.arena:
            schedules.append(arrange([program], policy, costs(), smallest).schedules["TRAIN"])
    caught, harmless = Counter(), Counter()
    for kind in KINDS * 5:
        m = mutated(r.choice(schedules), r, kind)
        why = broken(m)
        if why is None:
            harmless[kind] += 1
            continue
        with pytest.raises(ScheduleError):
            verify(m)
            pytest.fail(f"{kind}: {why}")
        caught[kind] += 1
    print(f"{policy}: {caught.total()} refused {dict(caught)}, {harmless.total()} not broken")
    assert caught.total() > 40 and len(caught) >= 11


def leanest(program, policy: str) -> int:
    """The smallest budget that a refusal names."""
    with pytest.raises(BudgetError) as refused:
        arrange([program], policy, costs(), budget=0)
    return refused.value.smallest


def test_a_wait_that_stands_is_needed_for_the_proof():
    """The lowering emits no wait that its own clocks already imply: most single deletions are refused, and the
    few that are not concern bytes which nobody had used before (the lowering does not know offsets)."""
    s = arrange([chain(6)], "vdnn_all:m", costs()).schedules["TRAIN"]
    waits = [i for i, x in enumerate(s.instructions) if isinstance(x, Wait)]
    unneeded = []
    for i in waits:
        try:
            verify(without(s, i))
            unneeded.append(i)
        except ScheduleError:
            pass
    assert len(unneeded) <= len(waits) // 4
    for i in unneeded:
        assert s.instructions[i].stream == "in"
        assert broken(without(s, i)) is None


def planned(program, **fields) -> Schedule:
    return place(lower(program, complete(program, costs(), Plan(**fields))))


def test_an_update_before_the_last_reader_is_refused():
    p = chain(3)
    ops = list(p.ops)
    k = next(i for i, op in enumerate(ops) if op.name == "conv1.update_w")
    j = next(i for i, op in enumerate(ops) if op.name == "conv1.backward_data.0")
    ops.insert(j, ops.pop(k))
    with pytest.raises(ScheduleError, match=r"conv1\.backward_data.*conv1\.w.*value"):
        verify(planned(p, order=tuple(ops)))


def test_an_update_that_runs_twice_is_refused():
    p = chain(3)
    k = next(i for i, op in enumerate(p.ops) if op.name == "conv1.update_w")
    with pytest.raises(ScheduleError):
        verify(planned(p, order=(*p.ops[: k + 1], p.ops[k], *p.ops[k + 1 :])))


def test_an_undeclared_in_place_write_is_refused():
    p = chain(3)
    by_name = {t.name: t for t in p.tensors}
    with pytest.raises(ScheduleError, match="does not permit"):
        verify(planned(p, share={by_name["conv1.y"]: by_name["relu0.y"]}))


def test_recomputation_is_proved_and_its_missing_input_refused():
    p = chain(3)
    relu = next(op for op in p.ops if op.name == "relu1.forward")
    conv = next(op for op in p.ops if op.name == "conv1.forward")
    at = next(i for i, op in enumerate(p.ops) if op.name == "conv2.backward_filter")
    good = planned(p, order=(*p.ops[:at], conv, relu, *p.ops[at:]))
    verify(good)
    assert broken(good) is None
    with pytest.raises(ValueError, match=r"conv1\.forward.*relu0\.y, which is not on the device"):
        planned(
            p,
            order=(*p.ops[:at], conv, relu, *p.ops[at:]),
            offloads=(OffloadInterval(by(p, "relu0.y"), 2, 3, None, None),),
        )


def by(program, name):
    return next(t for t in program.tensors if t.name == name)


def test_a_copy_out_before_the_last_forward_write_in_place_is_refused():
    p = chain(3)
    y, z = by(p, "conv0.y"), by(p, "relu0.y")
    share = {z: y}
    use = next(i for i, op in enumerate(p.ops) if op.name == "conv1.backward_filter")
    wrong = planned(p, share=share, offloads=(OffloadInterval(y, 1, 2, use, use),))
    with pytest.raises(ScheduleError):
        verify(wrong)


def test_offloads_inside_forward_and_inside_backward_are_proved():
    """Gaps anywhere, and a tensor that leaves twice: what an LRU cache does (SuperNeurons)."""
    p = PROGRAMS["nested"]()
    a = by(p, "a.y")
    reads = [i for i, op in enumerate(p.ops) if a in op.reads]
    first, second, third = reads[0], reads[1], reads[2]
    offloads = (
        OffloadInterval(a, first, first + 1, second - 1, second),
        OffloadInterval(a, None, second + 1, third - 1, third),  # the host's copy is still valid: nothing to copy out
    )
    s = planned(p, offloads=offloads, share=in_place_sharing(p))
    verify(s)
    assert broken(s) is None
    assert sum(isinstance(x, Offload) and x.residency.tensor == a for x in s.instructions) == 1
    assert sum(isinstance(x, Prefetch) and x.residency.tensor == a for x in s.instructions) == 2


def test_the_budget_is_part_of_the_proof():
    s = arrange([chain()], "liveness:m", costs()).schedules["TRAIN"]
    with pytest.raises(ScheduleError, match="the budget"):
        verify(s, s.arena - 1)


@pytest.mark.slow
@given(st.integers(0, 1 << 30), st.integers(2, 20), st.sampled_from(POLICIES))
@examples(120)
def test_any_graph_under_any_policy_is_proved_and_the_oracle_agrees(seed, layers, policy):
    s = arrange([random_graph(seed, layers)], policy, costs()).schedules["TRAIN"]
    assert broken(s) is None
