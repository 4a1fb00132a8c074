"""When bytes are taken: on the device by each residency, and on the host."""

from __future__ import annotations

from dataclasses import replace

import pytest

from minidnn.costs import Choice, Costs, Staging
from minidnn.memory.execution.lives import busy_spans, host_curves, lives
from minidnn.memory.execution.simulator import simulate
from minidnn.memory.lowering.lower import lower
from minidnn.memory.lowering.placement import place
from minidnn.memory.plan import OffloadInterval, Plan, complete
from minidnn.memory.planning import arrange
from minidnn.program import Algorithm, Op, Pass, Program, Role, Tensor
from tests.support.policies import KINDS
from tests.support.programs import chain, costs

MB = 1_000_000
x = Tensor("x", (MB // 4,), role=Role.INPUT)
a, b, c = (Tensor(n, (MB // 4,)) for n in "abc")
OPS = (
    Op("one", "k", "one", Pass.FORWARD, (x,), (a,)),
    Op("two", "k", "two", Pass.FORWARD, (x,), (b,)),
    Op("three", "k", "three", Pass.FORWARD, (a, b), (c,)),
)


def test_a_timeline_by_hand():
    program = Program("TRAIN", OPS, (x,), (), (c,))
    cost = Costs("toy", 1 << 30, 1e9, 1e9, lambda op: (Choice(Algorithm("k"), 2e-3),))  # an op 2 ms, a copy 1 ms
    offload = OffloadInterval(a, offload_at=1, free_at=2, prefetch_at=2, needed_at=2)
    schedule = place(lower(program, complete(program, cost, Plan(offloads=(offload,)))))
    trace = simulate(schedule, cost)  # x 0-1, one 1-3, two 3-5 beside a's copy out 3-4, a in 5-6, three 6-8, c out 8-9
    found = [(v.tensor.name, round(v.start * 1e3, 6), round(v.end * 1e3, 6)) for v in lives(schedule, trace)]
    assert sorted(found) == [("a", 1, 5), ("a", 5, 8), ("b", 3, 8), ("c", 6, 9), ("x", 0, 5)]
    assert [(w.name, w.stream, round(w.end * 1e3, 6)) for w in trace.waits if w.stream == "compute"] == [
        ("x", "compute", 1), ("a", "compute", 6), ("c", "compute", 9),
    ]  # fmt: skip
    pinned = [(round(at * 1e3, 6), nbytes) for at, nbytes in host_curves(schedule, trace)["pinned"]]
    assert pinned == [(0, MB), (1, 0), (3, MB), (6, 0), (8, MB)]  # the output stays on the host


@pytest.mark.parametrize("policy", [*KINDS, "best"])
def test_no_two_residencies_have_a_byte_at_the_same_time(policy):
    program = chain()
    budget = arrange([program], "vdnn_all:m", costs()).arena if policy == "best" else None
    schedule = arrange([program], policy, costs(), budget).schedules["TRAIN"]
    trace = simulate(schedule, costs())
    found = [v for v in lives(schedule, trace) if v.end > v.start]
    assert len(lives(schedule, trace)) == sum(len(buffer.residencies) for buffer in schedule.buffers)
    for i, one in enumerate(found):
        assert 0 <= one.start < one.end <= trace.seconds and one.offset + one.nbytes <= schedule.arena
        for other in found[i + 1 :]:
            apart = one.offset + one.nbytes <= other.offset or other.offset + other.nbytes <= one.offset
            assert apart or one.end <= other.start or other.end <= one.start


@pytest.mark.parametrize("policy", ["liveness:m", "vdnn_all:m", "layrub:m"])
def test_the_sum_of_the_taken_bytes_is_the_curve_of_memory(policy):
    schedule = arrange([chain()], policy, costs()).schedules["TRAIN"]
    trace = simulate(schedule, costs())
    found = busy_spans(schedule, trace)
    assert set(found) == set(schedule.buffers) and len(dict(trace.memory)) > 3
    for at, nbytes in dict(trace.memory).items():
        if at < trace.seconds:
            assert sum(b.nbytes for b, (start, end) in found.items() if start <= at < end) == nbytes


def test_staging_slots_lie_in_the_ring_and_stashed_tensors_in_the_store():
    on = replace(costs(), staging=Staging(160 * 1024, False))
    schedule = arrange([chain()], "vdnn_all:m", on).schedules["TRAIN"]
    curves = host_curves(schedule, simulate(schedule, on))
    assert set(curves) == {"pinned", "store"}
    assert 0 < max(nbytes for _, nbytes in curves["pinned"]) <= schedule.ring + schedule.host_bytes
    assert 0 < max(nbytes for _, nbytes in curves["store"]) <= schedule.store_bytes
    assert curves["store"][-1][1] == 0 and all(nbytes >= 0 for curve in curves.values() for _, nbytes in curve)
