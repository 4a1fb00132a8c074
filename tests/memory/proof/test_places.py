"""What of a schedule is wrong before its first instruction, in one that no lowering makes, or between programs."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest

from minidnn.costs.net import Link, among
from minidnn.memory.lowering.lower import lower
from minidnn.memory.lowering.placement import persistent_layout, place
from minidnn.memory.plan import OffloadInterval, Plan, complete
from minidnn.memory.planning import arrange
from minidnn.memory.policies import SOME_NETS, names
from minidnn.memory.proof.verify import ScheduleError, verify, verify_all
from minidnn.memory.schedule import Alloc, Buffer, Compute, Free, Offload, Prefetch, Residency, Wait, aligned
from minidnn.program import Op, Pass, Program, Role, Tensor
from minidnn.programs.ranks import net
from tests.support.oracle import broken
from tests.support.programs import PROGRAMS, chain, costs, wild_graph

X = Tensor("x", (64,), role=Role.INPUT)
W, V = (Tensor(name, (64,), role=Role.PARAM) for name in "wv")
Y, Z = Tensor("y", (64,)), Tensor("z", (64,))
FIRST, SECOND = Op("a", "k", "a", Pass.FORWARD, (X, W), (Y,)), Op("b", "k", "b", Pass.FORWARD, (Y, V), (Z,))


def program(*before, persistent=(W, V)):
    return Program("TRAIN", (*before, FIRST, SECOND), (X,), persistent, (Z,))


def planned(p, **fields):
    return place(lower(p, complete(p, costs(), Plan(**fields))))


@pytest.fixture
def good():
    s = planned(program())
    verify(s)
    return s


def persistent(s, t):
    return next(b for b in s.buffers if b.persistent and b.residencies[0].tensor == t)


@pytest.mark.parametrize("cls, stream", [(Offload, "in"), (Prefetch, "out"), (Compute, "out"), (Offload, "compute")])
def test_an_instruction_on_another_stream(cls, stream):
    s = copy.copy(arrange([chain(3)], "vdnn_all:p", costs()).schedules["TRAIN"])
    i = max(i for i, x in enumerate(s.instructions) if isinstance(x, cls))
    s.instructions = tuple(replace(x, stream=stream) if k == i else x for k, x in enumerate(s.instructions))
    with pytest.raises(ScheduleError, match=f"instruction {i}: it is on the stream {stream}"):
        verify(s)


def test_two_persistent_tensors_in_one_buffer(good):
    b, c = persistent(good, W), persistent(good, V)
    b.residencies.append(c.residencies[0])
    c.residencies[0].buffer = b
    good.buffers = tuple(x for x in good.buffers if x is not c)
    assert broken(good)
    with pytest.raises(ScheduleError, match="not the buffer of a single persistent tensor"):
        verify(good)


def test_two_buffers_of_one(good):
    b = Buffer(256, 0, 2, persistent=True)
    b.residencies.append(Residency(W, 1, 0, 2))
    b.residencies[0].buffer = b
    good.buffers, good.offset = (*good.buffers, b), {**good.offset, b: aligned(good.arena)}
    good.arena += 256
    with pytest.raises(ScheduleError, match="w has two persistent buffers"):
        verify(good)


def test_an_early_input_with_room_for_one_place():
    """The other would be somebody else's bytes."""
    s = planned(Program("TRAIN", (FIRST, SECOND), (X,), (X, W, V), (Z,)))
    verify(s)
    b = persistent(s, X)
    assert b.nbytes == 512
    b.nbytes = 256
    with pytest.raises(
        ScheduleError, match="the buffer of double-buffered input x has 256 bytes, too few for two places"
    ):
        verify(s)


def test_what_is_not_persistent_has_no_such_buffer(good):
    next(b for b in good.buffers if b.residencies[0].tensor == X).persistent = True
    with pytest.raises(ScheduleError, match="x lives across steps, but it is not the buffer of a single"):
        verify(good)


def test_a_residency_that_takes_itself_to_be_elsewhere(good):
    """The machine goes by what a residency says, the proof by what a buffer says."""
    y = next(b for b in good.buffers if b.residencies[0].tensor == Y)
    y.residencies[0].buffer = persistent(good, W)
    assert broken(good)
    with pytest.raises(ScheduleError, match=r"y names w as its buffer, but it is in y"):
        verify(good)


@pytest.mark.parametrize(
    "places, message",
    [
        ({X: -256}, "x lies at -256 on the host"),
        ({X: 1}, "x lies at 1 on the host"),
        ({X: 0, Z: 256}, "x and z overlap on the host"),  # the input's second place
        ({X: 256, Z: 768}, "z ends beyond the 768 bytes on the host"),
        ({Z: 0}, "x comes from the host, but has no place there"),
        ({X: 0}, "z has no place on the host"),
    ],
)
def test_places_on_the_host(good, places, message):
    good.host_offset = places if len(places) > 1 or "no place" in message else {**good.host_offset, **places}
    with pytest.raises(ScheduleError, match=message):
        verify(good)


@pytest.mark.parametrize("which", ["workspace", "written"])
def test_a_tensor_of_the_name_and_of_fewer_bytes(which):
    s = arrange([chain(3)], "vdnn_all:p", costs()).schedules["TRAIN"]
    x = next(x for x in s.instructions if isinstance(x, Compute) and x.op.name == "conv1.forward")
    residency = x.workspace if which == "workspace" else x.writes[0]
    residency.tensor = Tensor(residency.tensor.name, (16,), "uint8", residency.tensor.role)
    assert broken(s)
    with pytest.raises(ScheduleError, match="bytes in the program and 16 in the schedule"):
        verify(s)


def test_an_update_in_place_that_reads_elsewhere_than_it_writes():
    """A kernel is given one address for it."""
    p = next(p for p in map(wild_graph, range(50)) if any(op.kind == "clip.clip" for op in p.ops))
    s = copy.copy(arrange([p], "liveness:m", costs()).schedules["TRAIN"])
    k = next(i for i, x in enumerate(s.instructions) if isinstance(x, Compute) and x.op.kind == "clip.clip")
    old = s.instructions[k].writes[0]
    b = Buffer(old.tensor.nbytes, 0, len(s.plan.order), [Residency(old.tensor, 1, 0, len(s.plan.order))])
    b.residencies[0].buffer = b

    def told(residencies):
        return tuple(b.residencies[0] if residency is old else residency for residency in residencies)

    made = [Alloc(b)]
    for i, x in enumerate(s.instructions):
        if isinstance(x, Wait):
            x = replace(x, on=x.on + 1)
        elif isinstance(x, Compute) and i >= k:
            x = replace(x, reads=told(x.reads) if i > k else x.reads, writes=told(x.writes))
        made.append(x)
    s.instructions, s.buffers = (*made, Free(b)), (*s.buffers, b)
    s.offset, s.arena = {**s.offset, b: aligned(s.arena)}, aligned(s.arena) + aligned(b.nbytes)
    assert "reads elsewhere" in broken(s)
    with pytest.raises(ScheduleError, match="but reads and writes different bytes"):
        verify(s)


def test_an_input_that_is_written_and_copied_over_what_the_host_gave():
    """`Machine.step(again=True)` would begin with it."""
    p = program(Op("u", "k", "u", Pass.FORWARD, (X,), (X,)))
    verify(planned(p))
    s = planned(p, offloads=(OffloadInterval(X, None, None, 0, 0), OffloadInterval(X, 1, 1, 1, 1)))
    assert "is not what it was" in broken(s)
    with pytest.raises(ScheduleError, match="end of step: input x is overwritten on the host"):
        verify(s)


def test_an_op_that_never_runs():
    p = program()
    extra = Op("c", "k", "c", Pass.FORWARD, (Y,), (Tensor("unread", (64,)),))
    p = Program("TRAIN", (*p.ops, extra), p.inputs, p.persistent, p.outputs)
    with pytest.raises(ScheduleError, match="c never runs"):
        verify(planned(p, order=p.ops[:2]))


# ---- programs that share an arena


def two(base_of_test=None):
    """TRAIN carries w, v and their momenta; TEST the first two alone."""
    state = Tensor("m", (64,), role=Role.STATE)
    update = Op("u", "k", "u", Pass.UPDATE, (W, state), (W, state))
    train = Program("TRAIN", (*program().ops, update), (X,), (W, V, state), (Z,))
    test = Program("TEST", program().ops, (X,), (W, V), (Z,))
    at = persistent_layout(train, test)
    other = at if base_of_test is None else replace(at, nbytes=base_of_test)
    return [place(lower(p, complete(p, costs(), Plan())), of) for p, of in ((train, at), (test, other))]


def test_programs_that_leave_one_another_alone_are_proved():
    verify_all(two())


def test_a_program_over_what_only_another_carries():
    """Each by itself is right."""
    schedules = two(persistent_layout(two()[1].program).nbytes)
    for s in schedules:
        verify(s)
        assert broken(s) is None
    with pytest.raises(ScheduleError, match=r"TEST: \w overlaps m, which another program left there"):
        verify_all(schedules)


def test_programs_that_look_for_a_weight_in_two_places():
    train, test = two()
    w, v = persistent(test, W), persistent(test, V)
    test.offset = {**test.offset, w: test.offset[v], v: test.offset[w]}
    verify(test)
    with pytest.raises(ScheduleError, match=r"\w lies at \[\d+, \d+\) in TEST"):
        verify_all([train, test])


@pytest.mark.parametrize("policy", sorted(set(names()) - SOME_NETS))
def test_every_policy_arranges_programs_that_are_proved_together(policy):
    train = PROGRAMS["residual"](2)
    ops = train.ops[:4]
    persistent = tuple(t for t in train.persistent if any(t in op.reads for op in ops))
    assert len(persistent) < len(train.persistent)
    arrange([train, Program("TEST", ops, train.inputs, persistent, ops[-1].writes)], policy, costs())


# ---- weights of which each rank has a shard


def shared(*changes):
    """TRAIN gathers two weights and updates their shards; TEST reads them. `changes` change TRAIN's ops."""
    shards = [Tensor(f"{t.name}.shard", (32,), role=Role.PARAM) for t in (W, V)]
    rows = [Tensor(f"{t.name}.rows", (64,), role=Role.PARAM_GRADIENT) for t in (W, V)]
    all_gathers = [net(f"all.{t.name}", "net.all_gather", [s], [t], 2) for s, t in zip(shards, (W, V), strict=True)]
    updates = [Op(f"u{s.name}", "k", "u", Pass.UPDATE, (s, g), (s,)) for s, g in zip(shards, rows, strict=True)]
    sends = [net(f"to.{g.name}", "net.all_to_all", [t], [g], 2) for t, g in zip((Y, Z), rows, strict=True)]
    ops = [*all_gathers, FIRST, SECOND, *sends, *updates]
    for change in changes:
        change(ops)
    train = Program("TRAIN", tuple(ops), (X,), (W, V, *shards), (Z,))
    test = Program("TEST", (FIRST, SECOND), (X,), (W, V), (Z,))
    at = persistent_layout(train, test)
    device = among(costs(), Link(1e9, 1e-5))
    return [place(lower(p, complete(p, device, Plan())), at) for p in (train, test)]


def test_weights_that_are_gathered_before_they_are_read():
    verify_all(shared())


def forward_first(ops):
    ops.insert(2, ops.pop(0))


def updated_between(ops):
    """The shard is updated once more, behind the all-gather."""
    ops.insert(2, Op("early", "k", "u", Pass.UPDATE, ops[0].reads, ops[0].reads))


def another_shard(ops):
    ops.insert(2, replace(ops[0], name="again", reads=ops[1].reads))


def updated_whole(ops):
    ops.append(Op("late", "k", "u", Pass.UPDATE, (Z,), (W,)))


@pytest.mark.parametrize(
    "change, message",
    [
        (forward_first, "TRAIN: a reads w, of which it has its own shard alone"),
        (updated_between, "TRAIN: a reads w, of which it has its own shard alone"),
        (another_shard, "TRAIN: all.w makes w of w.shard, not of v.shard"),
        (updated_whole, "TRAIN: late writes w itself, not its shard w.shard"),
    ],
)
def test_a_stale_shard(change, message):
    """Each schedule computes what its program says, but the program is of one rank alone."""
    schedules = shared(change)
    for s in schedules:
        verify(s)
    with pytest.raises(ScheduleError, match=message):
        verify_all(schedules)
