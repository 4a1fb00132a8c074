"""The proof: it accepts every schedule that the lowering makes, and refuses every broken one."""

from __future__ import annotations

import copy
import random
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minidnn.memory import policies
from minidnn.memory.budget import BudgetError
from minidnn.memory.lowering.lower import lower
from minidnn.memory.lowering.placement import place
from minidnn.memory.plan import Plan, Trip, complete, in_place_sharing
from minidnn.memory.planning import arrange
from minidnn.memory.proof.verify import ScheduleError, verify
from minidnn.memory.schedule import Alloc, Buffer, Compute, Free, Offload, Prefetch, Schedule, Stay, Wait
from tests.oracle import broken
from tests.programs import POLICIES, PROGRAMS, chain, costs, random_graph, wild_graph


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
    """Runs are counted anew: what is wrong with the list, its numbers shall not give away."""
    out, runs = copy.copy(s), Counter()
    made = []
    for x in instructions:
        if isinstance(x, Wait):
            x = replace(x, on=renumber(x.on))
        elif isinstance(x, Compute):
            x = replace(x, run=runs[x.op])
            runs[x.op] += 1
        made.append(x)
    out.instructions = tuple(made)
    return out


KINDS = ["drop", "drop wait", "swap", "move", "shift", "swap places", "retarget", "wait's stream", "algorithm", "stay"]
KINDS += ["drop wait", "stream", "operand", "drop run", "run again", "host place", "buffer"]


def mutate(s: Schedule, r: random.Random) -> Schedule:
    """One random change of a kind that a faulty lowering or placement could make."""
    return mutated(s, r, r.choice(KINDS))


def mutated(s: Schedule, r: random.Random, kind: str) -> Schedule:
    """Itself where it has nothing of the kind."""
    n = len(s.instructions)
    at = {cls: [i for i, x in enumerate(s.instructions) if isinstance(x, cls)] for cls in (Wait, Compute, Offload)}
    copies = [i for i, x in enumerate(s.instructions) if isinstance(x, (Offload, Prefetch))]
    stays = [stay for b in s.buffers for stay in b.stays]

    def changed(i, **fields) -> Schedule:
        xs = list(s.instructions)
        xs[i] = replace(xs[i], **fields)
        return with_instructions(s, xs)

    def inserted(i, x) -> Schedule:
        return with_instructions(s, [*s.instructions[:i], x, *s.instructions[i:]], lambda k: k + (k >= i))

    if kind == "drop":
        return without(s, r.randrange(n))
    if kind == "drop wait" and at[Wait]:
        return without(s, r.choice(at[Wait]))
    if kind == "drop run":
        again = [i for i in at[Compute] if s.instructions[i].run]
        return without(s, r.choice(again)) if again else s
    if kind == "run again":
        i = r.choice(at[Compute])
        return inserted(r.randint(i + 1, min(n, i + r.choice([2, 8, 40]))), s.instructions[i])
    if kind in ("swap", "move"):
        i, j = sorted(r.sample(range(n), 2))
        if kind == "swap":
            j = min(i + 1, n - 1)
        order = list(range(n))
        order.insert(j, order.pop(i))
        new = {old: k for k, old in enumerate(order)}
        return with_instructions(s, [s.instructions[k] for k in order], new.__getitem__)
    if kind == "retarget" and at[Wait]:
        i = r.choice(at[Wait])
        return changed(i, on=r.randrange(max(i, 1)))
    if kind == "wait's stream" and at[Wait]:
        return changed(r.choice(at[Wait]), stream=r.choice(["compute", "out", "in"]))
    if kind == "stream":
        return changed(r.choice([*at[Compute], *copies, *copies]), stream=r.choice(["compute", "out", "in"]))
    if kind == "algorithm":
        i = r.choice(at[Compute])
        return changed(i, algorithm=replace(s.instructions[i].algorithm, name="other"))
    if kind == "stay":
        return changed(r.choice(copies), stay=r.choice(stays))
    if kind == "operand":
        i = r.choice(at[Compute])
        x = s.instructions[i]
        field = r.choice(["reads", "writes", "workspace"])
        if field == "workspace":
            return changed(i, workspace=r.choice([None, *stays]))
        old = r.choice(getattr(x, field))
        same = [stay for stay in stays if stay.tensor == old.tensor and stay is not old]
        new = r.choice(same if same and r.random() < 0.8 else stays)
        return changed(i, **{field: tuple(new if stay is old else stay for stay in getattr(x, field))})
    out = copy.copy(s)
    out.offset, out.host_offset = dict(s.offset), dict(s.host_offset)
    b, c = r.choice(s.buffers), r.choice(s.buffers)
    if kind == "shift":
        out.offset[b] += 256 * r.choice([-64, -8, -1, 1, 8, 64, 300])
    elif kind == "swap places":
        out.offset[b], out.offset[c] = s.offset[c], s.offset[b]
    elif kind == "host place":
        t, u = r.choice(list(s.host_offset)), r.choice(list(s.host_offset))
        out.host_offset[t] = r.choice([s.host_offset[u], s.host_offset[t] + 256 * r.choice([-64, -1, 1, 64])])
    elif kind == "buffer":  # a stay in the bytes of another's: a slot that is not free, a share that is not allowed
        at_b = [stay for stay in b.stays if not b.home]
        if at_b and not c.home and c.nbytes >= max(stay.tensor.nbytes for stay in at_b):
            return _moved(s, r.choice(at_b), b, c)
    return out


def _moved(s: Schedule, stay: Stay, b: Buffer, c: Buffer) -> Schedule:
    """The schedule with `stay` moved from buffer b to c; all of it is made anew."""
    buffers = {old: copy.copy(old) for old in s.buffers}
    new = {id(x): copy.copy(x) for old in s.buffers for x in old.stays}
    for old, made in buffers.items():
        made.stays = [new[id(x)] for x in old.stays if x is not stay] + ([new[id(stay)]] if old is c else [])
        for x in made.stays:
            x.buffer = made

    def of(x):
        if isinstance(x, (Alloc, Free)):
            return replace(x, buffer=buffers[x.buffer])
        if isinstance(x, (Offload, Prefetch)):
            return replace(x, stay=new[id(x.stay)])
        if isinstance(x, Compute):
            reads, writes = (tuple(new[id(y)] for y in ys) for ys in (x.reads, x.writes))
            return replace(x, reads=reads, writes=writes, workspace=new[id(x.workspace)] if x.workspace else None)
        return x

    empty = {made for made in buffers.values() if not made.stays}
    gone = [isinstance(x, (Alloc, Free)) and buffers[x.buffer] in empty for x in s.instructions]
    out = with_instructions(
        s, [of(x) for x, drop in zip(s.instructions, gone, strict=True) if not drop], lambda k: k - sum(gone[:k])
    )
    out.buffers = tuple(made for made in buffers.values() if made not in empty)
    out.offset = {made: s.offset[old] for old, made in buffers.items()}
    return out


PLANNED = [*policies.names(), *(f"{name}:p" for name in policies.POLICIES)]


@pytest.mark.parametrize("policy", PLANNED)
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
    s = planned(p, trips=trips, share=in_place_sharing(p))
    verify(s)
    assert broken(s) is None
    assert sum(isinstance(x, Offload) and x.stay.tensor == a for x in s.instructions) == 1
    assert sum(isinstance(x, Prefetch) and x.stay.tensor == a for x in s.instructions) == 2


def test_the_budget_is_part_of_the_proof():
    s = arrange([chain()], "liveness:m", costs()).schedules["TRAIN"]
    with pytest.raises(ScheduleError, match="the budget"):
        verify(s, s.arena - 1)


@given(st.integers(0, 1 << 30), st.integers(2, 20), st.sampled_from(POLICIES))
@settings(max_examples=120, deadline=None)
def test_any_graph_under_any_policy_is_proved_and_the_oracle_agrees(seed, layers, policy):
    s = arrange([random_graph(seed, layers)], policy, costs()).schedules["TRAIN"]
    assert broken(s) is None
