"""Three-op timelines worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from minidnn.costs import Choice, Costs, Drag
from minidnn.costs.net import Link, among
from minidnn.memory.execution.simulator import simulate
from minidnn.memory.lowering.lower import lower
from minidnn.memory.lowering.placement import place
from minidnn.memory.plan import OffloadInterval, Plan, complete
from minidnn.program import Algorithm, Op, Pass, Program, Role, Tensor
from minidnn.programs.ranks import net

MB = 1_000_000
x = Tensor("x", (MB // 4,), role=Role.INPUT)
a, b, c, d = (Tensor(n, (MB // 4,)) for n in "abcd")
ops = (
    Op("one", "k", "one", Pass.FORWARD, (x,), (a,)),
    Op("two", "k", "two", Pass.FORWARD, (a,), (b,)),
    Op("three", "k", "three", Pass.FORWARD, (a, b), (c,)),
)
program = Program("TRAIN", ops, (x,), (), (c,))


def costs(ms: float, bandwidth: float = 1e9) -> Costs:
    return Costs("toy", 1 << 30, bandwidth, bandwidth, lambda op: (Choice(Algorithm("k"), ms / 1e3),))


def run(plan: Plan, cost: Costs):
    schedule = place(lower(program, complete(program, cost, plan)))
    return simulate(schedule, cost)


def spans(trace):
    return [(s.name, s.stream, round(s.start * 1e3, 6), round(s.end * 1e3, 6)) for s in trace.spans]


def test_an_input_arrives_then_ops_follow_and_the_output_leaves():
    t = run(Plan(), costs(2))
    assert spans(t) == [
        ("x", "in", 0, 1),
        ("one", "compute", 1, 3),
        ("two", "compute", 3, 5),
        ("three", "compute", 5, 7),
        ("c", "out", 7, 8),
    ]
    assert t.seconds == pytest.approx(8e-3)
    assert t.stall_seconds == pytest.approx(2e-3)  # for the input, and for the output at the end


def test_a_copy_beside_a_longer_op_is_hidden_and_one_beside_a_shorter_op_stalls():
    # leaves beside "two", comes back for "three": nothing overlaps
    offload = OffloadInterval(a, offload_at=1, free_at=2, prefetch_at=2, needed_at=2)
    long, short = run(Plan(offloads=(offload,)), costs(2)), run(Plan(offloads=(offload,)), costs(0.5))
    # long: x 0-1, one 1-3, two 3-5 beside out 3-4, in 5-6, three 6-8, c 8-9
    assert long.seconds == pytest.approx(9e-3)
    assert long.stall_seconds == pytest.approx(3e-3)
    # short: one 1-1.5, out 1.5-2.5 (two is done at 2: 0.5 of stall), in 2.5-3.5, three 3.5-4, c 4-5
    assert short.seconds == pytest.approx(5e-3)
    assert short.stall_seconds == pytest.approx(3.5e-3)  # x 1, the copy out 0.5, back 1, c 1


def test_copies_slow_ops_down():
    """A copy out takes half of the work beside it, a copy in a quarter. The ops have no flops: memory binds them."""
    offload = OffloadInterval(a, offload_at=1, free_at=2, prefetch_at=2, needed_at=2)
    cost = replace(costs(2), drag=Drag((0.5, 0.25), (0.0, 0.0)))
    t = run(Plan(offloads=(offload,)), cost)
    assert spans(t) == [
        ("x", "in", 0, 1),
        ("one", "compute", 1, 3),
        ("a", "out", 3, 4),
        ("two", "compute", 3, 5.5),  # half as fast for 1 ms
        ("a", "in", 5.5, 6.5),
        ("three", "compute", 6.5, 8.5),
        ("c", "out", 8.5, 9.5),
    ]
    assert t.seconds == pytest.approx(9.5e-3)
    assert run(Plan(offloads=(offload,)), replace(cost, drag=Drag((0.0, 0.0), (0.5, 0.25)))).seconds == pytest.approx(
        9e-3
    )


def test_an_op_beside_copies_in_both_directions_loses_the_sum():
    """b leaves while a comes back: 1 ms each. They begin when two ends, and three waits for neither."""
    offloads = (OffloadInterval(a, 1, 2, 2, 3), OffloadInterval(b, 2, 3, None, None))
    last = replace(ops[2], name="four", layer="four", reads=(c, a), writes=(d,))
    chain = (*ops[:2], replace(ops[2], reads=(x,)), last)
    four = Program("TRAIN", chain, (x,), (), (d,))
    cost = replace(costs(2), drag=Drag((0.5, 0.25), (0.0, 0.0)))
    t = simulate(place(lower(four, complete(four, cost, Plan(offloads=offloads)))), cost)
    three = next(s for s in t.spans if s.name == "three")
    assert round((three.end - three.start) * 1e3, 6) == 2.75


def test_copies_in_both_directions_slow_each_other_down_and_take_less_from_ops():
    """b leaves while a comes back, 1 ms each alone: out at 4/5 of its rate, in at half. Beside both three loses
    .5 * .8 + .25 * .5 of a second; once b is out after 1.25 ms, .375 ms of a are left, and these go on alone."""
    offloads = (OffloadInterval(a, 1, 2, 2, 3), OffloadInterval(b, 2, 3, None, None))
    last = replace(ops[2], name="four", layer="four", reads=(c, a), writes=(d,))
    chain = (*ops[:2], replace(ops[2], reads=(x,)), last)
    four = Program("TRAIN", chain, (x,), (), (d,))
    cost = replace(costs(2), drag=Drag((0.5, 0.25), (0.0, 0.0)), duplex=(0.8, 0.5))
    t = simulate(place(lower(four, complete(four, cost, Plan(offloads=offloads)))), cost)
    start = next(s.start for s in t.spans if s.name == "three")
    took = {(s.name, s.stream): round((s.end - start) * 1e3, 6) for s in t.spans if s.start >= start}
    assert took["b", "out"] == 1.25 and took["a", "in"] == 1.625
    three = 1.25 * (1 - 0.5 * 0.8 - 0.25 * 0.5) + 0.375 * (1 - 0.25)
    assert took["three", "compute"] == pytest.approx(1.625 + (2 - three))


def test_the_copies_in_and_out_overlap_each_other():
    d = Tensor("d", (MB // 4,), role=Role.INPUT)
    two = Program("TRAIN", (*ops[:2], Op("three", "k", "three", Pass.FORWARD, (b, d), (c,))), (x, d), (), (c,))
    plan = Plan(offloads=(OffloadInterval(d, None, None, 1, 2), OffloadInterval(b, 2, 3, None, None)))
    cost = costs(1)
    t = simulate(place(lower(two, complete(two, cost, plan))), cost)
    assert ("d", "in", 2, 3) in spans(t) and ("two", "compute", 2, 3) in spans(t)
    assert ("three", "compute", 3, 4) in spans(t) and ("b", "out", 3, 4) in spans(t)


def test_memory_over_time_is_time_weighted():
    t = run(Plan(), costs(1))
    # x 0-2 (freed at 2), a 1-4, b 2-4, c 3-5: 1, 2, 2, 3, 1 MB in five milliseconds (x is read until 2)
    assert t.peak_bytes == 3 * MB
    assert t.average_bytes == pytest.approx((1 + 2 + 2 + 3 + 1) * MB / 5)
    assert t.memory[-1][1] == 0


def test_a_communication_runs_beside_ops_and_may_slow_them_down():
    """Beside an all-to-all an op of 2 ms loses half of its speed; an op that reads what comes waits."""
    grown = Tensor("a.rows", (MB // 2,))
    all_to_all = net("net.all_to_all", "net.all_to_all", (a,), (grown,), 2)
    last = Op("four", "k", "four", Pass.UPDATE, (b, grown), (c,))
    together = Program("TRAIN", (ops[0], all_to_all, ops[1], last), (x,), (), (c,))

    def ran(drag: float):
        cost = among(costs(2), Link(MB, 1e-3, drag=drag))
        return simulate(place(lower(together, complete(together, cost, Plan()))), cost)

    free = ran(0.0)  # x 0-1, one 1-3, two 3-5 beside the all-to-all 3-1004 (1 ms and a second for each MB)
    assert [s.stream for s in free.spans if s.name == "net.all_to_all"] == ["net"]
    assert spans(free)[1:5] == [
        ("one", "compute", 1, 3),
        ("net.all_to_all", "net", 3, 1004),
        ("two", "compute", 3, 5),
        ("four", "compute", 1004, 1006),
    ]
    assert ("two", "compute", 3, 7) in spans(ran(0.5))
