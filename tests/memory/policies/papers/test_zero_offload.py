"""Ops that the host runs beside the device. Plans of zero_offload, plans that are refused, and seconds of a step."""

from __future__ import annotations

from dataclasses import replace

import pytest

from minidnn.backends import open_device
from minidnn.backends.reference import ReferenceDevice
from minidnn.costs import estimate, profile
from minidnn.costs.host import BANDWIDTH, LEAST
from minidnn.jobs.compare import simulated
from minidnn.memory.execution.simulator import simulate
from minidnn.memory.lowering.lower import lower
from minidnn.memory.lowering.placement import place
from minidnn.memory.plan import OffloadInterval, Plan, complete
from minidnn.memory.planning import arrange
from minidnn.memory.policies import POLICIES
from minidnn.memory.policies.papers.zero_offload import updates
from minidnn.memory.policies.shared.algorithms import choose
from minidnn.memory.policies.users import PolicyError
from minidnn.memory.proof.verify import ScheduleError, verify
from minidnn.memory.schedule import Compute, Offload, Prefetch
from minidnn.optimizers.trust import LAMB
from minidnn.program import Pass, Role, nbytes
from tests.support import several
from tests.support.cpu_step import machine
from tests.support.programs import chain, costs

TOY = costs()


def by_name(program, name):
    return next(op for op in program.ops if op.name == name)


def test_gradients_go_out_once_weights_come_once_and_momenta_never_move():
    program = several.made(1)["TRAIN"]
    s = arrange([program], "zero_offload:m", TOY).schedules["TRAIN"]
    weights = [t for t in program.persistent if t.role is Role.PARAM]
    momenta = [t for t in program.persistent if t.role is Role.STATE]
    assert {*weights, *momenta} <= {*s.program.host_resident} and s.plan.host_ops == updates(
        program, TOY, choose(program, TOY, "m")
    )
    out = [x.residency.tensor for x in s.instructions if isinstance(x, Offload)]
    back = [x.residency.tensor for x in s.instructions if isinstance(x, Prefetch)]
    assert sorted(t.name for t in back if t.role is Role.PARAM) == sorted(t.name for t in weights)
    gradients = [t for op in s.plan.host_ops for t in op.reads if t.role is Role.PARAM_GRADIENT]
    assert sorted(t.name for t in out if t not in program.outputs) == sorted(t.name for t in gradients)
    assert not {*momenta}.intersection((*out, *back))
    plain = arrange([program], "liveness:m", TOY)
    assert s.arena <= plain.arena - nbytes(momenta)


def test_a_step_takes_as_long_as_its_longest_stream():
    """The toy's ops, each with its seconds; the host's are slow, and it has more of them than it can hide."""
    slow = replace(TOY, by_host=lambda op: 1e-3)
    s = arrange([several.made(1)["TRAIN"]], "zero_offload:m", slow).schedules["TRAIN"]
    trace = simulate(s, slow)
    host = [span for span in trace.spans if span.stream == "host"]
    assert len(host) == len(s.plan.host_ops) and all(span.end - span.start == pytest.approx(1e-3) for span in host)
    begins = host[0].start
    assert trace.seconds == pytest.approx(begins + 1e-3 * len(host)), "one after another, once the first can begin"
    compute = [span for span in trace.spans if span.stream == "compute"]
    assert compute[-1].end < trace.seconds / 2, "compute does not wait for them"


def test_a_gpu_s_updates_take_the_host_s_bandwidth():
    titan = profile("titan_x")
    op = by_name(several.made(1)["TRAIN"], "conv1.update_w")
    assert titan.host_seconds(op) == pytest.approx(op.nbytes / BANDWIDTH + LEAST)
    cpu = open_device("reference")
    assert estimate(cpu).host_seconds(op) == estimate(cpu).choices(op)[0].seconds, "the same kernel on the same memory"


def test_where_the_host_is_the_device_its_ops_take_time_from_the_others():
    program, device = several.made(1)["TRAIN"], ReferenceDevice()
    of = replace(estimate(device), drag=None)  # copies take time, too, which is not what is shown here
    free = replace(of, host_drag=0.0)
    s = arrange([program], "zero_offload:m", of).schedules["TRAIN"]
    plain = simulate(arrange([program], "liveness:m", of).schedules["TRAIN"], of).seconds
    assert simulate(s, free).seconds < 0.99 * plain
    assert simulate(s, of).seconds == pytest.approx(plain, rel=0.05), "the same work on the same cores"


def test_the_machine_and_the_simulator_run_the_same():
    device = ReferenceDevice()
    with machine("residual", device, "zero_offload:m", debug=True) as m:
        real, schedule = m.step("TRAIN", trace=True), m.arrangement.schedules["TRAIN"]
    simulated = simulate(schedule, estimate(device))
    assert [(s.index, s.stream, s.name) for s in real.spans] == [(s.index, s.stream, s.name) for s in simulated.spans]
    assert sum(s.stream == "host" for s in real.spans) == len(schedule.plan.host_ops) > 2


@pytest.mark.parametrize("case", ["lamb", "ranks", "float16"])
def test_updates_that_the_host_cannot_make_stay_on_the_device(case):
    if case == "ranks":
        program, of = several.made(2)["TRAIN"], several.costs()
    else:
        format = "float16" if case == "float16" else "float32"
        program = several.made(1, format=format, optimizer=LAMB((0.9, 0.99, 1e-6)))["TRAIN"]
        of = profile("titan_x")
    s = arrange([program], "zero_offload:m", of).schedules["TRAIN"]
    assert not s.plan.host_ops and not s.program.host_resident


def test_the_bound_is_not_for_a_plan_of_which_the_host_runs_ops():
    """It may be below."""
    plain, host_resident = simulated([several.made(1)["TRAIN"]], ["liveness:m", "zero_offload:m"], TOY, TOY.memory)
    assert plain.gap is not None and plain.gap >= 0 and host_resident.gap is None and host_resident.bound is None


# ---- plans that cannot be


def planned(program, **decisions):
    return place(lower(program, complete(program, TOY, Plan(**decisions))))


def test_an_op_whose_bits_the_host_has_not_is_refused_by_name():
    program, titan = several.made(1, optimizer=LAMB((0.9, 0.99, 1e-6)))["TRAIN"], profile("titan_x")
    moments = by_name(program, "conv1.moments_w")
    with pytest.raises(ValueError, match=r"cannot run conv1\.moments_w: .* lamb\.moments of float32 .* on the device"):
        complete(program, titan, Plan(host_ops=frozenset([moments])))


def test_what_the_host_s_op_reads_must_be_there():
    program = chain(2)
    op = by_name(program, "conv0.update_w")
    w, dw = op.reads
    with pytest.raises(
        ValueError, match=r"conv0.update_w at point \d+, which the host runs, reads .*w, which is not on"
    ):
        planned(program, host_ops=frozenset([op]))
    late = OffloadInterval(dw, len(program.ops), len(program.ops), None, None)
    with pytest.raises(
        ValueError, match=r"reads .*grad, which is not on the host: let an offload interval bring it there before"
    ):
        planned(program, host_ops=frozenset([op]), host_resident=frozenset([w]), offloads=(late,))
    verify(planned(program, host_ops=frozenset([op]), host_resident=frozenset([w])))


def test_what_it_writes_must_live_there():
    program = several.made(1)["TRAIN"]
    op = by_name(program, "conv1.update_w")
    w, momentum = op.writes
    p = program.ops.index(op)
    offload = OffloadInterval(w, p - 1, p, p + 1, p + 2)
    with pytest.raises(
        ValueError, match=r"conv1\.update_w, which the host runs, writes conv1\.w, which lives on the dev"
    ):
        planned(program, host_ops=frozenset([op]), host_resident=frozenset([momentum]), offloads=(offload,))


def test_a_device_s_op_needs_an_offload_for_what_the_host_has_made():
    """The new weight does not come by itself where a policy makes the offload intervals."""
    program = several.made(1)["TRAIN"]
    host_ops = updates(program, TOY, choose(program, TOY, "m"))
    host_resident = frozenset(
        t for op in host_ops for t in op.tensors if t in program.persistent and t not in program.inputs
    )
    (w,) = (t for t in host_resident if t.name == "conv1.w")
    first = next(p for p, op in enumerate(program.ops) if w in op.reads)
    again = replace(
        program, ops=(*program.ops, replace(program.ops[first], name="again", writes=(replace(w, name="y"),)))
    )
    residencies = OffloadInterval(w, None, None, first, first)
    with pytest.raises(ScheduleError, match=r"again reads conv1\.w, which does not hold the value"):
        verify(planned(again, host_ops=host_ops, host_resident=host_resident, offloads=(residencies,)))
    verify(planned(again, host_ops=host_ops, host_resident=host_resident))


def test_a_policy_of_ones_own_may_use_the_word_and_is_told_what_is_wrong(monkeypatch):
    program = several.made(1)["TRAIN"]

    def mine(program, costs, budget, algorithms="m"):
        host_ops = frozenset(op for op in program.ops if op.during is Pass.UPDATE)
        return Plan(
            host_ops=host_ops,
            host_resident=frozenset(t for op in host_ops for t in op.writes) if budget else frozenset(),
        )

    mine.__module__ = "mine"
    monkeypatch.setitem(POLICIES, "mine", mine)
    s = arrange([program], "mine:m", TOY).schedules["TRAIN"]
    assert all(x.stream == "host" for x in s.instructions if isinstance(x, Compute) and x.op in s.plan.host_ops)
    with pytest.raises(PolicyError, match=r"mine.*which the host runs, reads \S+, which is not on the host"):
        arrange([program], "mine:m", replace(TOY, memory=0))
