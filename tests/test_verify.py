"""The proof: it accepts every schedule that the lowering makes, and refuses every broken one."""

from __future__ import annotations

import copy
import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minidnn.memory.arrange import arrange
from minidnn.memory.lower import lower
from minidnn.memory.placement import place
from minidnn.memory.plan import Plan, Trip, complete, in_place
from minidnn.memory.schedule import Alloc, Compute, Free, Offload, Prefetch, Schedule, Wait
from minidnn.memory.verify import ScheduleError, verify
from tests.oracle import broken
from tests.programs import POLICIES, PROGRAMS, chain, costs, random_graph


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


def without(s: Schedule, i: int) -> Schedule:
    return with_instructions(s, [x for k, x in enumerate(s.instructions) if k != i], lambda k: k - (k > i))


def with_instructions(s: Schedule, instructions, renumber=lambda k: k) -> Schedule:
    out = copy.copy(s)
    out.instructions = tuple(replace(x, on=renumber(x.on)) if isinstance(x, Wait) else x for x in instructions)
    return out


def mutate(s: Schedule, r: random.Random) -> Schedule:
    """One random change of a kind that a faulty lowering or placement could make."""
    n = len(s.instructions)
    kind = r.choice(
        ["drop", "drop wait", "swap", "move", "shift", "swap places", "retarget", "stream", "algorithm", "stay"]
    )
    waits = [i for i, x in enumerate(s.instructions) if isinstance(x, Wait)]
    if kind == "drop":
        return without(s, r.randrange(n))
    if kind == "drop wait" and waits:
        return without(s, r.choice(waits))
    if kind in ("swap", "move"):
        i, j = sorted(r.sample(range(n), 2))
        if kind == "swap":
            j = min(i + 1, n - 1)
        order = list(range(n))
        order.insert(j, order.pop(i))
        new = {old: k for k, old in enumerate(order)}
        return with_instructions(s, [s.instructions[k] for k in order], new.__getitem__)
    out = copy.copy(s)
    out.offset = dict(s.offset)
    b = r.choice(s.buffers)
    if kind == "shift":
        out.offset[b] += 256 * r.choice([-64, -8, -1, 1, 8, 64, 300])
    elif kind == "swap places":
        c = r.choice(s.buffers)
        out.offset[b], out.offset[c] = s.offset[c], s.offset[b]
    elif kind in ("retarget", "stream") and waits:
        xs = list(s.instructions)
        i = r.choice(waits)
        if kind == "retarget":
            xs[i] = replace(xs[i], on=r.randrange(max(i, 1)))
        else:
            xs[i] = replace(xs[i], stream=r.choice(["compute", "out", "in"]))
        out.instructions = tuple(xs)
    elif kind == "algorithm":
        xs = list(s.instructions)
        i = r.choice([i for i, x in enumerate(xs) if isinstance(x, Compute)])
        xs[i] = replace(xs[i], algorithm=replace(xs[i].algorithm, name="other"))
        out.instructions = tuple(xs)
    elif kind == "stay":
        xs = list(s.instructions)
        i = r.choice([i for i, x in enumerate(xs) if isinstance(x, (Offload, Prefetch))])
        xs[i] = replace(xs[i], stay=r.choice([st for bb in s.buffers for st in bb.stays]))
        out.instructions = tuple(xs)
    return out


def test_random_mutations_that_break_a_schedule_are_all_refused():
    """At least 1,000 mutations that the oracle calls broken; verify must refuse every one."""
    r = random.Random(2016)
    schedules = [
        arrange([make()], policy, costs()).schedules["TRAIN"]
        for make in PROGRAMS.values()
        for policy in ("baseline", "liveness:p", "vdnn_all", "vdnn_all:p", "vdnn_conv")
    ]
    caught, missed, harmless = 0, [], 0
    while caught < 1200:
        s = r.choice(schedules)
        m = mutate(s, r)
        why = broken(m)
        if why is None:
            harmless += 1
            continue
        try:
            verify(m)
        except ScheduleError:
            caught += 1
        else:
            missed.append(why)
    assert not missed, missed[:5]
    assert harmless < 6000, "the mutations hardly break anything"


def test_a_wait_that_stands_is_needed_for_the_proof():
    """The lowering emits no wait that its own clocks already imply: most single deletions are refused, and the
    few that are not concern bytes which nobody had used before (the lowering does not know offsets)."""
    s = arrange([chain(6)], "vdnn_all", costs()).schedules["TRAIN"]
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
        planned(p, order=(*p.ops[:at], conv, relu, *p.ops[at:]), trips=(Trip(by(p, "relu0.y"), 2, 3, None, None),))


def by(program, name):
    return next(t for t in program.tensors if t.name == name)


def test_a_copy_out_before_the_last_forward_write_in_place_is_refused():
    p = chain(3)
    y, z = by(p, "conv0.y"), by(p, "relu0.y")
    share = {z: y}
    use = next(i for i, op in enumerate(p.ops) if op.name == "conv1.backward_filter")
    wrong = planned(p, share=share, trips=(Trip(y, 1, 2, use, use),))
    with pytest.raises(ScheduleError):
        verify(wrong)


def test_trips_inside_forward_and_inside_backward_are_proved():
    """Gaps anywhere, and a tensor that leaves twice: what an LRU cache does (SuperNeurons)."""
    p = PROGRAMS["nested"]()
    a = by(p, "a.y")
    reads = [i for i, op in enumerate(p.ops) if a in op.reads]
    first, second, third = reads[0], reads[1], reads[2]
    trips = (
        Trip(a, first, first + 1, second - 1, second),
        Trip(a, None, second + 1, third - 1, third),  # the host's copy is still valid: nothing to copy out
    )
    s = planned(p, trips=trips, share=in_place(p))
    verify(s)
    assert broken(s) is None
    assert sum(isinstance(x, Offload) and x.stay.tensor == a for x in s.instructions) == 1
    assert sum(isinstance(x, Prefetch) and x.stay.tensor == a for x in s.instructions) == 2


def test_the_budget_is_part_of_the_proof():
    s = arrange([chain()], "liveness", costs()).schedules["TRAIN"]
    with pytest.raises(ScheduleError, match="the budget"):
        verify(s, s.arena - 1)


@given(st.integers(0, 1 << 30), st.integers(2, 20), st.sampled_from(POLICIES))
@settings(max_examples=120, deadline=None)
def test_any_graph_under_any_policy_is_proved_and_the_oracle_agrees(seed, layers, policy):
    s = arrange([random_graph(seed, layers)], policy, costs()).schedules["TRAIN"]
    assert broken(s) is None
