"""Measuring: every (op, algorithm) once, what is known is not measured again, the result is kept."""

import json
import math
import threading
from collections import defaultdict
from dataclasses import replace

import numpy as np
import pytest

from minidnn import costs
from minidnn.backends import open_device
from minidnn.backends.cuda.cudnn import NoPlan
from minidnn.costs.parts import PART_COPIES
from minidnn.layers.convolution import ConvolutionAttrs
from minidnn.measuring import bench, link, steps
from minidnn.measuring import ops as study
from minidnn.memory.execution.device import KernelFailed
from minidnn.memory.execution.runtime import BoundCall
from minidnn.memory.execution.simulator import simulate
from minidnn.memory.execution.threads import Threads
from minidnn.memory.parts import parted
from minidnn.memory.parts.regions import largest, regions
from minidnn.memory.planning import arrange
from minidnn.optimizers import SGD
from minidnn.program import Algorithm, Op, Pass, Program, Tensor
from minidnn.programs.build import programs
from minidnn.programs.spec import TrainSpec
from minidnn.report import devices
from minidnn.zoo import load
from tests.support.cuda.fake import fake_device, plant
from tests.support.paths import NET_FILES


def program(channels=4):
    x, y = Tensor("x", (2, channels, 8, 8)), Tensor("y", (2, 4, 8, 8))
    w = Tensor("w", (4, channels, 3, 3))
    attrs = ConvolutionAttrs(kernel=(3, 3), stride=(1, 1), pad=(1, 1), dilation=(1, 1), group=1)
    passes = {"forward": ((x, w), y), "backward_filter": ((x, y), w), "backward_data": ((w, y), x)}
    ops = [
        Op(f"conv.{verb}", f"convolution.{verb}", "conv", Pass.FORWARD, reads, (write,), attrs, (), 100)
        for verb, (reads, write) in passes.items()
    ]
    return Program("TRAIN", tuple(ops), (x, y), (w,))


@pytest.mark.slow
def test_measures_each_algorithm_once_and_remembers(tmp_path, small_copies):
    device = open_device("cpu")
    told = []
    known = costs.measurements(device, tmp_path)
    found = study.measure(device, [program(), program()], known, tell=lambda *what: told.append(what))
    ops = program().ops
    of = sum(len(device.algorithms(op)) for op in (*ops, *PART_COPIES.values()))
    alone = [t for t in told if not t[2].startswith("steps of")]
    assert [t[0] for t in alone] == list(range(of)) and all(t[1] == of for t in alone)
    assert found.origin == "measured" and found.bandwidth_out > 0 and found.latency > 0
    for op in ops:
        assert [c.algorithm for c in found.choices(op)] == list(device.algorithms(op))
        assert all(c.seconds > 0 for c in found.choices(op))

    told.clear()
    again = costs.measurements(device, tmp_path)
    study.measure(device, [program()], again, tell=lambda *what: told.append(what))
    assert not told and again.seconds == known.seconds and again.beside == known.beside != []
    study.measure(device, [program(channels=2)], again, tell=lambda *what: told.append(what))
    assert sum("conv." in t[2] for t in told) == sum(len(device.algorithms(op)) for op in program(2).ops)
    told.clear()
    study.measure(device, [program()], again, again=True, tell=lambda *what: told.append(what))
    assert sum(t[:2] == (t[0], of) for t in told) == of


def test_ops_in_parts_have_seconds_by_those_of_the_whole(tmp_path):
    """They ended in an internal error. All parts together take no less than the whole; copies go by their bytes."""
    device = open_device("cpu")
    whole = programs(load("cifar10_quick").with_batch(32), None, ("TRAIN",))["TRAIN"]
    known = costs.measurements(device, tmp_path)
    known.bandwidth_out = known.bandwidth_in = 1e9
    for i, op in enumerate((*whole.ops, *PART_COPIES.values())):
        known.seconds |= {costs.key(op, a): 1e-3 * (i + 1) for a in device.algorithms(op)}
    found = costs.measured(device, known)
    made = parted(whole, regions(whole, largest(whole) // 4, 4))
    taken = {}
    for op in made.ops:
        for c in found.choices(op):
            assert c.seconds > 0
            if op.part is not None:
                taken.setdefault((op.whole, c.algorithm.name), []).append(c.seconds)
    assert {len(each) for each in taken.values()} == {4}
    for (op, name), each in taken.items():
        (at_once,) = (c.seconds for c in found.choices(op) if c.algorithm.name == name)
        assert at_once <= sum(each) <= at_once + 4 * 1e-3
    large, small = PART_COPIES["concat.forward"], next(op for op in made.ops if op.name.endswith(".concat"))
    assert found.choices(small)[0].seconds == pytest.approx(
        1e-3 + (found.choices(large)[0].seconds - 1e-3) * small.nbytes / large.nbytes
    )
    assert arrange([whole], "liveness:p@4", found).schedules["TRAIN"].program.parts
    known.seconds = {k: s for k, s in known.seconds.items() if not k.startswith("convolution.forward")}
    with pytest.raises(ValueError, match=r"conv1\.forward\[0:8\] has not been measured on cpu"):
        costs.measured(device, known).choices(next(op for op in made.ops if op.name == "conv1.forward[0:8]"))


def test_both_passes_of_a_batch_norm_have_seconds_by_those_of_the_op(tmp_path):
    """All parts of both take those of the op, some starts, and the bytes of its channels again."""
    device = open_device("cpu")
    whole = programs(load(NET_FILES / "residual.yaml"), None, ("TRAIN",), fuses=device.fuses)["TRAIN"]
    known = costs.measurements(device, tmp_path)
    known.bandwidth_out = known.bandwidth_in = 1e9
    known.seconds = {
        costs.key(op, a): 1e-3 + 1e-7 * op.nbytes
        for op in (*whole.ops, *PART_COPIES.values())
        for a in device.algorithms(op)
    }
    found = costs.measured(device, known)
    made = parted(whole, regions(whole, largest(whole) // 4, 3))
    taken = defaultdict(list)
    for op in made.ops:
        assert all(c.seconds > 0 for c in found.choices(op)), op.name
        if op.part is not None and op.part.within is not None:
            taken[op.part.origin].append(found.choices(op)[0].seconds)
    assert {op.kind for op in taken} == {"batch_norm.backward_scale", "batch_norm.backward_scale_relu"}
    for op, each in taken.items():
        assert len(each) == 6
        start, seconds = min(known.seconds.values()), found.choices(op)[0].seconds
        assert 0.99 < (sum(each) - 6 * start) / (seconds - start) < 1.1


@pytest.mark.slow
def test_within_steps(tmp_path):
    """Every algorithm that is not far behind has its seconds within steps, and those are what is kept."""
    device = open_device("cpu")
    known = costs.measurements(device, tmp_path)
    one = program()
    alone = study.measure(device, [one], known)
    worth = {
        costs.key(op, c.algorithm)
        for op in one.ops
        for c in alone.choices(op)
        if c.seconds <= steps.SLOW * min(x.seconds for x in alone.choices(op))
    }
    told = []
    found = steps.within_steps(device, one, alone, 2**30, lambda *what: told.append(what))
    assert set(found) == worth and all(s > 0 for s in found.values())
    assert told == [(i, len(told)) for i in range(len(told))]
    assert steps.within_steps(device, one, alone, 100) == {}, "no room"


def test_what_disturbs_one_visit_to_a_rank_does_not_count(monkeypatch):
    device, one = open_device("cpu"), program()
    known = costs.estimate(device)
    calls = []

    def some(device, plan, ops):
        calls.append(plan)
        disturbed = 10.0 if len(calls) == 1 else 1.0
        found = {x.op: x.algorithm for x in plan.schedules["TRAIN"].instructions if getattr(x, "op", None) in ops}
        return {costs.key(op, algorithm): [disturbed] for op, algorithm in found.items()}

    monkeypatch.setattr(steps, "_some", some)
    found = steps.within_steps(device, one, known, 2**30)
    assert len(calls) == 2 * len(set(map(id, calls))) > 2 and set(found.values()) == {1.0}


@pytest.mark.parametrize("name", ["TRAIN", "TEST", "TEST1"])
def test_steps_of_any_program_are_measured(name):
    device, one = open_device("reference"), replace(program(), name=name)
    assert set(steps.within_steps(device, one, costs.estimate(device), 2**30)) == {
        costs.key(op, a) for op in one.ops for a in device.algorithms(op)
    }


@pytest.mark.slow
def test_on_the_host_what_steps_take_is_kept(tmp_path, monkeypatch):
    device, one = open_device("reference"), program()
    first = costs.key(one.ops[0], device.algorithms(one.ops[0])[0])
    monkeypatch.setattr(study, "within_steps", lambda *_: {first: 0.125, "other": 0.125})
    known = costs.measurements(device, tmp_path)
    study.measure(device, [one], known)
    assert known.seconds[first] == 0.125 and "other" not in known.seconds


def test_copies_have_a_rate_in_bytes_a_second():
    """Within what any machine does, however busy it is."""
    found = study.link(open_device("cpu"), 2**20, 3)
    assert all(1e6 < rate < 1e13 for rate in (found.out, found.back, found.out_beside, found.back_beside))
    assert 0 < found.latency < 1 and len(found.computing) == 2


def test_copies_beside_compute():
    """Either op is offered by every device, and is bound by what it stands for."""
    memory, arithmetic = link.ops(1 << 12, 256)
    for name in ("reference", "cpu"):
        found = [link.computing(open_device(name), op, 2**18, 2) for op in (memory, arithmetic)]
        assert [(f.bound_by, f.op) for f in found] == [
            ("memory", "gradient.add"), ("arithmetic", "inner_product.forward"),
        ]  # fmt: skip
        assert all(0 < value < math.inf for f in found for value in (f.out, f.back, f.slower))
        assert all(0 <= drag < math.inf for f in found for drag in (f.drag_out, f.drag_in))
    beside = link.Link(1e9, 1e9, 1e9, 1e9, 1e-6, tuple(found)).beside()
    assert beside[1] == {
        "bound_by": "arithmetic", "op": "inner_product.forward", "bandwidth_out": found[1].out,
        "bandwidth_in": found[1].back, "slower": found[1].slower, "drag_out": found[1].drag_out,
        "drag_in": found[1].drag_in,
    }  # fmt: skip
    assert "beside an op bound by arithmetic, which takes" in devices.beside(beside)


def test_what_a_copy_of_a_few_bytes_costs_a_step(monkeypatch):
    """Time is counted, not taken: an op takes 1 ms, and each copy 3 ms more. Now and then another program runs."""
    runs = []

    def run_timed(self, prepared):
        calls, waits = prepared.calls, prepared.waits
        moved = sum(name != "compute" and (name, k) not in waits for name in calls for k in range(len(calls[name])))
        runs.append(moved)
        ops = sum(("compute", k) not in waits for k in range(len(calls["compute"])))
        return [], 1e-3 * ops + 3e-3 * moved + (len(runs) % 7 == 0)

    monkeypatch.setattr(Threads, "run_timed", run_timed)
    monkeypatch.setattr(Threads, "bind", unawaited(Threads.bind))
    assert link.handoff(open_device("reference"), 12) == pytest.approx(3e-3)
    assert runs[:2] == [2 * link.UNITS, 0] and len(runs) >= 2 * link.TURNS, "with copies and without, in turns"


def unawaited(bind):
    """`bind`, without the calls that tell waiting streams: they are no ops and no copies."""

    def bound(self, several, outputs_after=None):
        prepared = bind(self, several, outputs_after)
        for name, calls in prepared.calls.items():
            told = {k for k, (_, call) in enumerate(calls) if getattr(call, "__name__", "") == "set"}
            prepared.waits.update((name, k) for k in told)
        return prepared

    return bound


def test_a_copy_of_a_few_bytes_takes_time():
    for name in ("reference", "cpu"):
        assert 0 < link.handoff(open_device(name), 2) < 1


def test_the_device_computes_for_as_long_as_copies_go_on(monkeypatch):
    """Time is counted, not taken: an op takes 1 ms, a copy out 7 ms and one in 6 ms. A copy in takes 3 ms of the ops'
    work. And the op is there before the copies are."""
    runs = []

    def in_turns(runtime, several, rounds):
        return [[run(bound)] for bound in several]

    def run(bound):
        for b in bound:
            b.call()
        streams = [b.stream for b in bound]
        runs.append((streams, sum(calls)))
        calls.clear()
        lost = 3e-3 if streams == ["compute", "in"] else 0
        return {"compute": 1e-3 * max(runs[-1][1], 1) + lost, "out": 7e-3, "in": 6e-3}

    calls: list[int] = []
    device = open_device("reference")
    prepare = device.prepare
    monkeypatch.setattr(link, "in_turns", in_turns)
    monkeypatch.setattr(device, "prepare", lambda *a: lambda call=prepare(*a): (call(), calls.append(1)))
    found = link.computing(device, link.ops(64, 8)[0], 700)
    assert runs == [
        (["compute"], 1), (["out"], 0), (["in"], 0), (["compute"], 15),
        (["compute", "out"], 15), (["compute", "in"], 15), (["compute", "out", "in"], 15),
    ]  # fmt: skip
    assert (found.out, found.back, found.slower) == (pytest.approx(1e5), pytest.approx(700 / 6e-3), 1)
    assert (found.drag_out, found.drag_in) == (0, pytest.approx(0.5))


def test_copies_are_measured_beside_the_next_plan_where_one_is_refused():
    device, op = fake_device(), link.ops(64, 8)[1]
    plant(device, lambda plan: plan.name == "eng1_k0=1")
    assert link.computing(device, op, 1 << 12, 2).slower > 0
    assert list(device.refused.values()) == ["product [line.eng1_k0=1] on cuda: CUDNN_STATUS_EXECUTION_FAILED"]
    device = fake_device()
    plant(device, lambda plan: True)
    with pytest.raises(NoPlan, match="layer link, product: cuDNN refused to run all of its plans"):
        link.computing(device, op, 1 << 12, 2)


def test_short_ops_run_in_groups_on_a_gpu():
    device = fake_device()
    api = device.api
    runtime = device.runtime(1 << 12, 0, 0.0, 0)
    events, ran = len(api.events), []

    def call():
        api.enqueue(device.compute, lambda: ran.append(api.replays), "op")

    taken = bench.timed(runtime, call, repeats=3)
    assert [ran.count(k) for k in range(5)] == [2, 4, 20, 20, 20], (
        "two, and a few, to see how long it takes; then groups"
    )
    assert len([w for w in api.log if w.what == "op"]) == 2 + 4 + 3 * 20, "each group is captured once"
    assert 0 < taken < 2e-5, "the fake takes a microsecond for each thing that is enqueued"
    assert len(api.events) == events and not api.graphs
    ran.clear()
    assert bench.timed(runtime, call, best=1e-9) > 0 and len(ran) == 2 + 4, "much slower than the best: that is enough"
    runtime.close()
    assert not api.allocated and not api.events


def test_a_way_is_not_judged_by_what_its_launch_takes():
    """Two ways of 6 and 5 microseconds: where each is launched alone, the host takes 40 more to do it."""

    class Slow:
        def bind(self, bound):
            return bound

        def seconds(self, prepared, times=1):
            return prepared[0].call() + 40e-6 / times

    first = bench.timed(Slow(), lambda: 6e-6)
    second = bench.timed(Slow(), lambda: 5e-6, best=first)
    assert first == pytest.approx(8e-6) and second == pytest.approx(7e-6)


def test_a_group_that_is_refused_leaves_nothing_behind():
    device = fake_device()
    api = device.api
    runtime = device.runtime(1 << 12, 0, 0.0, 0)
    events = len(api.events)

    def call():
        if api.capture is not None:
            raise RuntimeError("CUDNN_STATUS_NOT_SUPPORTED")

    with pytest.raises(RuntimeError, match="NOT_SUPPORTED"):
        bench.timed(runtime, call)
    assert api.capture is None and not api.graphs and len(api.events) == events and not runtime.broken


def test_seconds_on_threads_are_those_of_compute_alone(monkeypatch):
    """By a clock of each thread's own, which only its calls move."""
    clock = threading.local()

    def takes(*seconds):
        left = iter(seconds)

        def call():
            clock.now = clock.__dict__.get("now", 0.0) + next(left)

        return call

    monkeypatch.setattr(Threads, "clock", staticmethod(lambda: clock.__dict__.get("now", 0.0)))
    runtime = Threads(64, 64)
    prepared = runtime.bind([BoundCall(0, "compute", takes(2, 9, 3)), BoundCall(1, "out", takes(50, 60, 70))])
    assert runtime.seconds(prepared, 3) == 3, "the median"
    runtime.close()


# ---- copies within steps


class Counted:
    """Steps that take these seconds, and two in five more."""

    def __init__(self, seconds, more):
        self.seconds, self.more, self.count, self.closed = seconds, more, 0, False

    def step(self):
        self.count += 1
        return self.seconds + (self.more if self.count % 5 < 2 else 0)

    def close(self):
        self.closed = True


@pytest.mark.parametrize("more", [-0.9, -0.5, 0.0, 1.0, 4.0])
@pytest.mark.parametrize("late", [0.0, 2.0])
def test_how_much_longer_than_predicted_copies_take_in_steps(monkeypatch, more, late):
    """On a machine ten times as quick, in units of the predicted seconds of copies. Some steps with copies are late."""
    device, one, made = open_device("reference"), lenet(), []
    found = replace(costs.estimate(device), bandwidth_out=1e8, bandwidth_in=1e8)
    still, *moving = (arrange([one], policy, found).schedules["TRAIN"] for policy in (steps.POLICY, *steps.COPYING))
    predicted = [simulate(still, found), max((simulate(s, found) for s in moving), key=lambda trace: trace.copying)]
    copies = predicted[1].copying - predicted[0].copying
    assert copies > 0 and predicted[1].seconds > 0.9 * copies

    def counted(device, arrangement):
        moves = arrangement.policy in steps.COPYING
        taken = predicted[1].seconds + more * copies if moves else predicted[0].seconds
        made.append(Counted(0.1 * taken, 0.1 * late * copies if moves else 0))
        return made[-1]

    monkeypatch.setattr(steps, "Steps", counted)
    stretch, doubt = steps.copies(device, one, found, 2**30)
    noisy = 1 + more <= 1 <= 1 + more + late
    assert stretch == pytest.approx(1 if noisy else min(max(steps.LEAST, 1 + more), steps.MOST))
    assert doubt == pytest.approx(min(max(0, 1 + more + late - stretch) / stretch, 1), abs=1e-6)
    assert [one.closed for one in made] == [True, True]
    assert steps.copies(device, one, found, 100) is None, "no room"


def test_steps_of_16_bits_have_a_loss_s_scale():
    """It was 0, by which they divided."""
    half = programs(load("lenet"), TrainSpec(SGD(momentum=0.9)), ("TRAIN",), format="float16")["TRAIN"]
    device = open_device("reference")
    found = steps.within_steps(device, half, costs.estimate(device), 2**30)
    assert len(found) == len({costs.key(op, a) for op in half.ops for a in device.algorithms(op)})


def test_steps_with_copies_are_measured():
    device, one = open_device("reference"), program()
    updated = lenet()
    stretch, doubt = steps.copies(device, updated, costs.estimate(device), 2**30)
    assert steps.LEAST <= stretch < math.inf and 0 <= doubt < math.inf
    assert steps.copies(device, one, costs.estimate(device), 2**30) is None, "all of its tensors are inputs"


def test_copies_within_steps_are_measured_once_and_kept(tmp_path, monkeypatch):
    device, one, asked = open_device("reference"), lenet(), []
    monkeypatch.setattr(study, "copies_within", lambda *what: asked.append(what[1].name) or (2.0, 0.75))
    monkeypatch.setattr(study, "within_steps", lambda *_: {})
    monkeypatch.setattr(bench, "timed", lambda *_: 1e-3)

    def measured():
        known = costs.measurements(device, tmp_path)
        return study.measure(device, [one, replace(program(), name="TEST")], known, copies=lambda _: QUICK), known

    first, _ = measured()
    again, known = measured()
    assert asked == ["TRAIN"] and known.copies == {costs.whole(one): (2.0, 0.75)}
    other = costs.measured(device, known)
    assert other.doubt == costs.estimate(device).doubt, "of a program that was not measured"
    for found in (first, again):
        assert found.doubt == 0.75 and found.latency == 2 * other.latency
        assert (found.bandwidth_out, found.bandwidth_in) == (other.bandwidth_out / 2, other.bandwidth_in / 2)


# ---- one arena for all ops

QUICK = link.Link(
    1e9, 1e9, 1e9, 1e9, 1e-6,
    tuple(link.Computing(bound_by, "any", 1e9, 1e9, 1.0, 0.1, 0.2) for bound_by in ("memory", "arithmetic")),
)  # fmt: skip


def lenet():
    return programs(load(NET_FILES / "lenet.yaml"), TrainSpec(SGD(momentum=0.9)), ("TRAIN",))["TRAIN"]


def test_every_op_reads_ordinary_numbers_whatever_ran_before(monkeypatch):
    """Nothing that an op has written is read by another, and integers are 0. Each op runs once here."""
    device = open_device("reference")
    prepare, looked = device.prepare, []

    def looking(op, algorithm, views, workspace):
        call = prepare(op, algorithm, views, workspace)

        def look():
            for t in op.reads:
                values = views[t]
                if np.issubdtype(values.dtype, np.integer):
                    assert not values.any(), f"{t.name} of {op.name}"
                elif t not in op.writes:
                    looked.append(t.name)
                    assert np.isfinite(values).all() and (values > 0).all(), f"{t.name} of {op.name}"
            call()

        return look

    monkeypatch.setattr(device, "prepare", looking)
    monkeypatch.setattr(bench, "timed", lambda runtime, call, *_: call() or 1.0)
    wanted = {costs.key(op, a): (op, a) for op in lenet().ops for a in device.algorithms(op)}
    told = []
    with np.errstate(all="ignore"):
        assert {k for k, _ in bench.each(device, wanted, lambda *what: told.append(what[0]))} == wanted.keys()
    assert told == list(range(len(wanted))) and len(looked) > 30


def test_an_arena_of_the_largest_op_is_taken_once(monkeypatch):
    device, taken = fake_device(), []
    allocate = device.api.allocate
    monkeypatch.setattr(device.api, "allocate", lambda nbytes: taken.append(nbytes) or allocate(nbytes))
    monkeypatch.setattr(bench, "timed", lambda *_: 1.0)
    wanted = {costs.key(op, a): (op, a) for op in program().ops for a in device.algorithms(op)}
    assert len(dict(bench.each(device, wanted))) == len(wanted) == 6
    largest = max(op.nbytes + a.workspace for op, a in wanted.values())
    assert len(taken) == 1 and largest <= taken[0] < largest + 4 * 256 and not device.api.allocated


def test_of_16_bits_the_numbers_are_ordinary_too(monkeypatch):
    pytest.importorskip("ml_dtypes")
    device = fake_device()
    x, y = Tensor("x", (300,), "bfloat16"), Tensor("y", (300,))
    cast = Op("cast", "cast", "cast", Pass.FORWARD, (x,), (y,))
    wanted = {
        "narrow": (cast, Algorithm("default", 0)),
        "wide": (replace(cast, reads=(y,), writes=(x,)), Algorithm("default", 0)),
    }
    seen = {}
    monkeypatch.setattr(device, "prepare", lambda op, algorithm, views, workspace: (op, views))
    monkeypatch.setattr(device, "compile", lambda ops: None)  # no device has these ops

    def timed(runtime, call, *_):
        op, views = call
        (t,) = op.reads
        seen[t.name] = runtime.read(views[t]).view(t.dtype).astype(np.float64)
        return 1.0

    monkeypatch.setattr(bench, "timed", timed)
    assert len(dict(bench.each(device, wanted))) == 2
    assert all((v > 1e-4).all() and (v < 10).all() for v in seen.values()) and seen.keys() == {"x", "y"}


@pytest.mark.parametrize("refused", [False, True])
def test_a_second_start_measures_nothing(tmp_path, monkeypatch, refused):
    """Seconds and refusals are kept by card, version of cuDNN, geometry and plan."""
    calls = []
    timed = bench.timed
    monkeypatch.setattr(bench, "timed", lambda *a: calls.append(a) or timed(*a))
    monkeypatch.setattr(bench, "GROUP", 0)

    def start(**more):
        device = fake_device()
        plant(device, lambda plan: refused and plan.name == "eng1_k0=1")
        calls.clear()
        known = costs.measurements(device, tmp_path)
        found = study.measure(device, [program()], known, copies=lambda _: QUICK, **more)
        return found, known

    first, known = start()
    convolutions = [k for k in known.seconds if k.startswith("convolution")]
    assert len(calls) == 6 + len(PART_COPIES) and len(convolutions) == (3 if refused else 6)
    assert len(known.refused) == 6 - len(convolutions)
    again, kept = start()
    assert not calls and (kept.seconds, kept.refused) == (known.seconds, known.refused)
    for op in program().ops:
        assert again.choices(op) == first.choices(op) and len(first.choices(op)) == (1 if refused else 2)
    start(again=True)
    assert len(calls) == 6 + len(PART_COPIES), "what was refused is tried again, too"


def test_measuring_goes_on_with_the_next_plan_and_ends_where_there_is_none(tmp_path):
    device = fake_device()
    plant(device, lambda plan: plan.problem.which == "backward_filter")
    known = costs.measurements(device, tmp_path)
    with pytest.raises(NoPlan, match=r"layer conv, conv\.backward_filter: cuDNN refused to run all of its plans"):
        study.measure(device, [program()], known, copies=lambda _: QUICK)
    assert json.loads(known.path.read_text())["refused"] == known.refused and len(known.refused) == 1
    assert not device.api.allocated, "the arena is given back"


def test_a_plan_that_breaks_the_gpu_ends_measuring_and_the_next_process_does_without_it(tmp_path):
    def process() -> costs.Costs:
        device = fake_device()
        plant(device, lambda plan: plan.name == "eng0" and plan.problem.which == "forward", "broken")
        return study.measure(device, [program()], costs.measurements(device, tmp_path), copies=lambda _: QUICK)

    lost = (
        r"^conv\.forward \[eng0\] on cuda: cudaErrorIllegalAddress; after .* the GPU is lost to it: start a new process"
    )
    with pytest.raises(KernelFailed, match=lost + r'.*avoid="eng0" does without this plan'):
        process()
    known = costs.measurements(fake_device(), tmp_path)
    assert known.seconds, "what was measured before is kept"
    assert list(known.refused.values()) == ["conv.forward [eng0] on cuda: cudaErrorIllegalAddress"]
    found = process()
    assert [[c.algorithm.name for c in found.choices(op)] for op in program().ops] == [["eng1_k0=1"]] + 2 * [
        ["eng1_k0=1", "eng0"]
    ]


def test_a_kernel_of_our_own_that_breaks_the_gpu_is_named_and_not_left_out(tmp_path, monkeypatch):
    device, op = fake_device(), link.ops(64, 8)[0]
    prepare, broken = device.prepare, Program("TRAIN", (op,), op.reads, ())

    def illegal() -> None:
        raise RuntimeError("cudaErrorIllegalAddress")

    def prepared(of, *rest):
        call = prepare(of, *rest)
        return (lambda: device.api.enqueue(device.compute, illegal, "illegal")) if of is op else call

    monkeypatch.setattr(device, "prepare", prepared)
    known = costs.measurements(device, tmp_path)
    with pytest.raises(KernelFailed, match=r"^sum \[default\] on cuda: cudaErrorIllegalAddress; after") as raised:
        study.measure(device, [broken], known, copies=lambda _: QUICK)
    assert "avoid" not in str(raised.value) and not device.refused and not known.refused
