"""The executor, on a device whose kernels mix bytes: any wrong, late or stale byte changes the weights."""

from __future__ import annotations

import threading
from bisect import bisect_right
from functools import cache, partial
from time import sleep
from zlib import crc32

import numpy as np
import pytest

from minidnn.memory.budget import BudgetError
from minidnn.memory.execution.machine import Machine, NotFinite
from minidnn.memory.execution.simulator import simulate
from minidnn.memory.execution.trace import copied
from minidnn.memory.planning import arrange
from minidnn.memory.policies import SOME_NETS, names
from minidnn.memory.schedule import Free
from minidnn.program import Op, Pass, Program, Role, Tensor
from tests.support.mixer import Mixer
from tests.support.policies import KINDS as POLICIES
from tests.support.policies import SOLVED
from tests.support.programs import PROGRAMS, costs, random_graph, wild_graph
from tests.support.slow import quick_are, usual_are


def train(program, policy, steps=3, trace=False, budget=None, **options):
    arrangement = arrange([program], policy, costs(), budget)
    with Machine(Mixer(), arrangement, **options) as m:
        for t in program.persistent:
            m.set(t, np.full(t.shape, 0.5, np.float32))
        for k in range(steps):
            for data in program.inputs:
                m.write(data, np.arange(data.size, dtype=np.float32).reshape(data.shape) + k, "TRAIN")
            last = m.step("TRAIN", trace=trace)
        out = {t.name: m.get(t).tobytes() for t in program.persistent}
        out |= {"loss" if k == 0 else t.name: m.read(t, "TRAIN").tobytes() for k, t in enumerate(program.outputs)}
    return out, last, arrangement.schedules["TRAIN"]


@cache
def made(name):
    return PROGRAMS[name]()


@cache
def by_baseline(program, steps):
    return train(program, "baseline:m", steps)[0]


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("name", quick_are(["residual", "inception"], PROGRAMS))
def test_every_policy_gives_the_same_bytes_with_poison_and_delayed_copies(name, policy):
    program = made(name)
    want = by_baseline(program, 3)
    got, _, _ = train(program, policy, debug=True, delays=1e-3, seed=crc32(f"{name} {policy}".encode()))
    assert got == want


TWO = PROGRAMS["residual"](2), wild_graph(3, 8)
PLANNED_QUICKLY = set(names()) - SOME_NETS - {*SOLVED, "best"}


@pytest.mark.slow
@pytest.mark.parametrize("policy", usual_are(PLANNED_QUICKLY, sorted(set(names()) - SOME_NETS)))
def test_live_bytes_are_the_planned_ones_at_every_execution(policy):
    """Measured while it trains under the smallest budget, poisoned and late; what is live at each op, and the numbers
    that come of it."""
    for program in TWO:
        with pytest.raises(BudgetError) as refused:
            arrange([program], policy, costs(), budget=0)
        for budget in (None, refused.value.smallest):
            got, trace, s = train(program, policy, 2, True, budget, debug=True, delays=5e-4)
            computes = [span for span in trace.spans if span.stream == "compute"]
            here = [p for p, op in enumerate(s.plan.order) if op not in s.plan.host_ops]
            assert len(computes) == len(here) and len(s.plan.order) == len(s.points)
            times = [at for at, _ in trace.memory]
            measured = [trace.memory[bisect_right(times, span.start) - 1][1] for span in computes]
            assert measured == s.curve()[here].tolist() and max(measured) == s.live_peak
            assert got == by_baseline(program, 2)


@pytest.mark.parametrize("policy", POLICIES)
def test_the_machine_and_the_simulator_agree_on_bytes_and_counts(policy):
    program = PROGRAMS["inception"]()
    _, real, schedule = train(program, policy, trace=True)
    simulated = simulate(schedule, costs())
    assert real.peak_bytes == simulated.peak_bytes == schedule.live_peak
    assert [(s.index, s.stream, s.name) for s in real.spans] == [(s.index, s.stream, s.name) for s in simulated.spans]
    assert [b for _, b in real.memory][-1] == [b for _, b in simulated.memory][-1]
    moved = copied(schedule.instructions, schedule)
    assert moved["input_bytes"] == program.inputs[0].nbytes and moved["output_bytes"] == 4


def test_a_failing_kernel_ends_the_step_with_its_own_error_and_no_hang():
    class Faulty(Mixer):
        def prepare(self, op, algorithm, views, workspace):
            if op.name == "conv2.forward":
                return partial(self.fail, op)
            return super().prepare(op, algorithm, views, workspace)

        def fail(self, op):
            raise RuntimeError(f"{op.name} broke")

    program = PROGRAMS["chain"]()
    with Machine(Faulty(), arrange([program], "vdnn_all:m", costs())) as m:
        for _ in range(2):
            with pytest.raises(RuntimeError, match=r"conv2\.forward broke"):
                m.step("TRAIN")


def test_check_names_the_first_op_whose_result_is_not_finite():
    class Nan(Mixer):
        def prepare(self, op, algorithm, views, workspace):
            if op.name == "relu1.forward":
                return partial(views[op.writes[0]].fill, np.nan)
            return super().prepare(op, algorithm, views, workspace)

    program = PROGRAMS["chain"]()
    with Machine(Nan(), arrange([program], "vdnn_all:m", costs())) as m:
        for t in program.persistent:
            m.set(t, np.zeros(t.shape, np.float32))
        m.write(program.inputs[0], np.zeros(program.inputs[0].shape, np.float32), "TRAIN")
        with pytest.raises(NotFinite, match=r"relu1\.forward") as caught:
            m.step("TRAIN", check=True)
    assert caught.value.op.layer == "relu1"


def test_inputs_are_double_buffered_the_next_batch_may_be_written_during_a_step():
    """A kernel that stands still while the next batch is written must not see it."""
    x = Tensor("x", (64,), role=Role.INPUT)
    y = Tensor("y", (64,))
    program = Program("TRAIN", (Op("copy", "k", "copy", Pass.FORWARD, (x,), (y,)),), (x,), (), (y,))
    started, go = threading.Event(), threading.Event()

    class Slow(Mixer):
        def prepare(self, op, algorithm, views, workspace):
            def call():
                started.set()
                go.wait()
                np.copyto(views[y], views[x])

            return call

    with Machine(Slow(), arrange([program], "liveness:m", costs())) as m:
        m.write(x, np.full(64, 1.0), "TRAIN")
        thread = threading.Thread(target=m.step, args=("TRAIN",))
        thread.start()
        started.wait()
        m.write(x, np.full(64, 2.0), "TRAIN")
        go.set()
        thread.join()
        assert (m.read(y, "TRAIN") == 1).all()
        m.step("TRAIN")
        assert (m.read(y, "TRAIN") == 2).all()


@pytest.mark.parametrize("policy", POLICIES)
def test_a_launched_step_is_a_step(policy):
    """On the host's threads it has ended on return; the next batch is begun beside it."""
    program = PROGRAMS["inception"]()
    (data,), (loss,) = program.inputs, program.outputs
    want, _, _ = train(program, policy)
    with Machine(Mixer(), arrange([program], policy, costs())) as m:
        for t in program.persistent:
            m.set(t, np.full(t.shape, 0.5, np.float32))
        begun = []

        def begin(k):
            m.write(data, np.arange(data.size, dtype=np.float32).reshape(data.shape) + k, "TRAIN")
            begun.append(k)

        begin(0)
        for k in range(3):
            m.launch("TRAIN", meanwhile=partial(begin, k + 1))
            m.settle()
        assert begun == [0, 1, 2, 3]
        got = {t.name: m.get(t).tobytes() for t in program.persistent} | {"loss": m.read(loss, "TRAIN").tobytes()}
    assert got == want


@pytest.mark.parametrize("policy", POLICIES)
def test_a_step_leaves_alone_where_the_next_batch_is_written(policy):
    """Also where an input is itself offloaded: its copy goes back to the place that it came from."""
    program = PROGRAMS["chain"]()
    (data,) = program.inputs
    with Machine(Mixer(), arrange([program], policy, costs())) as m:
        for t in program.persistent:
            m.set(t, np.full(t.shape, 0.5, np.float32))
        for k in range(4):
            m.write(data, np.full(data.shape, k, np.float32), "TRAIN")
            m.step("TRAIN", meanwhile=lambda k=k: m.write(data, np.full(data.shape, k + 1, np.float32), "TRAIN"))
            host = m.binder.on_host(m.loaded["TRAIN"], data, m.loaded["TRAIN"].place ^ 1)
            assert (host.view(np.float32) == k + 1).all()


def test_the_arena_is_one_allocation_of_the_budgets_size():
    program = PROGRAMS["chain"]()
    smallest = arrange([program], "vdnn_all:m", costs()).arena
    arrangement = arrange([program], "vdnn_all:m", costs(), budget=smallest + 4096)
    with Machine(Mixer(), arrangement) as m:
        assert m.arena.nbytes == smallest + 4096
        assert m.arena.ctypes.data % 4096 == 0


def test_a_budget_beyond_the_devices_memory_takes_no_more_than_there_is():
    class Small(Mixer):
        memory = 1 << 20

    arrangement = arrange([PROGRAMS["chain"]()], "vdnn_all:m", costs(), budget=1 << 60)
    with Machine(Small(), arrangement) as m:
        assert m.arena.nbytes == arrangement.arena


def test_a_budget_that_cannot_be_kept_is_refused_with_everything_a_user_needs():
    program = PROGRAMS["chain"]()
    full = arrange([program], "baseline:m", costs())
    with pytest.raises(BudgetError) as e:
        arrange([program], "baseline:m", costs(), budget=full.arena - 256)
    text = str(e.value)
    assert "baseline:m needs" in text and "the budget is" in text and "instruction" in text
    assert "conv0.y" in text and str(full.arena) in text
    assert e.value.smallest == e.value.needed == full.arena
    arrange([program], "baseline:m", costs(), budget=e.value.smallest)  # the advice is true


def test_a_host_budget_likewise():
    program = PROGRAMS["chain"]()
    host = arrange([program], "vdnn_all:m", costs()).host
    with pytest.raises(BudgetError, match="on the host, the host budget is") as e:
        arrange([program], "vdnn_all:m", costs(), host_budget=host - 1)
    assert e.value.smallest == host
    arrange([program], "vdnn_all:m", costs(), host_budget=host)


def test_poison_never_falls_on_bytes_that_a_copy_back_has_already_filled():
    """A Free is no event: the copy back that takes its bytes waits for the op before it, and may be quicker."""
    program = PROGRAMS["inception"](3)
    want, _, _ = train(program, "baseline:m", steps=2)

    def late(call):
        sleep(2e-3)
        call()

    with Machine(Mixer(), arrange([program], "vdnn_all:m", costs()), debug=True) as m:
        loaded = m.loaded["TRAIN"]
        for calls in (bound.calls["compute"] for bound in loaded.bound.values()):
            poison = [k for k, (i, _) in enumerate(calls) if isinstance(loaded.schedule.instructions[i], Free)]
            assert poison
            for k in poison:
                calls[k] = (calls[k][0], partial(late, calls[k][1]))
        for t in program.persistent:
            m.set(t, np.full(t.shape, 0.5, np.float32))
        (data,) = program.inputs
        for k in range(2):
            m.write(data, np.arange(data.size, dtype=np.float32).reshape(data.shape) + k, "TRAIN")
            m.step("TRAIN")
        assert {t.name: m.get(t).tobytes() for t in program.persistent} == {
            name: want[name] for name in want if name != "loss"
        }


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(24))
def test_any_graph_gives_the_same_bytes(seed):
    program = random_graph(seed, 10)
    want, _, _ = train(program, "baseline:m", steps=2)
    for policy in ("vdnn_all:m", "vdnn_conv:m", "liveness:m"):
        got, _, _ = train(program, policy, steps=2, debug=True, delays=5e-4, seed=seed)
        assert got == want, policy
