"""What the evaluator says of decisions is what their plan does: the proof and the oracle accept it, the simulator finds
the same seconds, and the live bytes are those of its buffers."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

import minidnn
from minidnn.costs import Costs, Drag
from minidnn.costs.net import Link, among
from minidnn.memory.execution.simulator import simulate
from minidnn.memory.joint.evaluator import RECOMPUTE, Evaluator, TooLong
from minidnn.memory.joint.index import Index
from minidnn.memory.policies.shared import probe
from minidnn.memory.proof.verify import verify
from minidnn.optimizers import SGD
from minidnn.program import FORWARD, Program
from minidnn.programs.build import programs
from minidnn.programs.spec import TrainSpec
from tests.support.decisions import HUGE, at_random, placed
from tests.support.examples import TIMES
from tests.support.oracle import broken
from tests.support.paths import NET_FILES
from tests.support.programs import PROGRAMS, costs, dragging, wild_graph
from tests.support.several import CASES, made
from tests.support.slow import usual_are, usual_pairs


def check(ev: Evaluator, limit: int, device: Costs | None = None) -> None:
    """The present decisions keep the limit. Their plan is proved, and takes what the evaluator says."""
    program, device = ev.index.program, device or ev.index.costs
    outcome = ev.evaluate(limit)
    assert outcome.over == 0
    plan = ev.plan()
    schedule = placed(program, device, plan)
    verify(schedule)
    assert broken(schedule) is None
    assert simulate(schedule, device).seconds == pytest.approx(outcome.seconds, rel=1e-12)
    live = probe.aligned_curve(schedule)
    assert live.max() <= limit
    assert (live == ev.view("live", "executions") + ev.base).all()
    assert sum(device.seconds(op, plan.algorithm[op]) for op in plan.order if not op.on_net) == pytest.approx(
        outcome.compute
    )


def tried(program: Program, device: Costs, r: random.Random) -> tuple[int, int]:
    """Check some decisions at random. Returns how many ops ran again, and how many offload intervals were made."""
    ev = Evaluator(Index(program, device))
    runs = offloads = 0
    for _ in range(8 * TIMES):
        at_random(ev, r)
        try:
            ev.evaluate(HUGE)
        except TooLong:
            continue
        widest = ev.base + int(ev.view("live", "executions").max())
        low, high = 0, widest  # the least limit that is kept, by bisection
        while high - low > 256:
            middle = (low + high) // 2
            low, high = (low, middle) if ev.evaluate(middle).over <= 0 else (middle, high)
        found = ev.evaluate(low)
        assert found.over > 0 and found.seconds == np.inf
        for limit, ev.filled in ((high, None), ((high + widest) // 2, None), (HUGE, high), (HUGE, 0), (HUGE, None)):
            check(ev, limit, device)
            runs += len(ev.plan().order) - len(program.ops)
            offloads += len(ev.plan().offloads)
    return runs, offloads


SPEEDS = [pytest.param(2e8, None), pytest.param(2e9, None), pytest.param(4e8, Drag((0.4, 0.3), (0.2, 0.5)))]


@pytest.mark.parametrize(("bandwidth", "drag", "name"), usual_pairs(SPEEDS, [*PROGRAMS, *range(12)]))
def test_any_decisions_do_what_the_evaluator_says(name, bandwidth, drag):
    r = random.Random(f"{name} {bandwidth}")
    program = PROGRAMS[name]() if isinstance(name, str) else wild_graph(name, r.randint(2, 12))
    runs, offloads = tried(program, replace(costs(bandwidth=bandwidth), drag=drag), r)
    assert offloads and (runs or isinstance(name, int))


@pytest.mark.parametrize(
    ("duplex", "name"), usual_pairs([(1.0, 1.0), (0.9, 0.5), (0.3, 0.4)], ["residual", "inception", 5])
)
def test_any_decisions_do_what_the_evaluator_says_where_copies_slow_each_op_and_each_other(name, duplex):
    """Each algorithm has drags of its own."""
    r = random.Random(f"{name} {duplex}")
    program = PROGRAMS[name]() if isinstance(name, str) else wild_graph(name, r.randint(2, 12))
    offloads, _ = tried(program, replace(dragging(costs(bandwidth=4e8)), duplex=duplex), r)
    assert offloads


AMONG = [
    pytest.param(2, Link(1e9, 1e-5), None, (1.0, 1.0)),
    pytest.param(4, Link(5e7, 1e-4, drag=0.3), None, (1.0, 1.0)),  # communications take longer than ops
    pytest.param(4, Link(3e8, 2e-5, drag=0.4), Drag((0.4, 0.3), (0.2, 0.5)), (0.9, 0.5)),
]


@pytest.mark.parametrize(("ranks", "link", "drag", "duplex", "case"), usual_pairs(AMONG, CASES))
def test_any_decisions_of_several_ranks_do_what_the_evaluator_says(case, ranks, link, drag, duplex):
    """Communications run beside ops, which wait for some of them."""
    r = random.Random(f"{case} {ranks}")
    device = among(replace(costs(bandwidth=4e8), drag=drag, duplex=duplex), link)
    offloads = runs = 0
    for program in made(ranks, case).values():
        some = tried(program, device, r)
        runs, offloads = runs + some[0], offloads + some[1]
    assert offloads and runs


@pytest.mark.parametrize("name", usual_are([1], ["residual", 1, 3]))
def test_any_decisions_about_what_lives_on_the_host_do_what_the_evaluator_says(name):
    """New values are written back; the last copies may outlast the last op."""
    r = random.Random(f"home {name}")
    if isinstance(name, int):
        program = wild_graph(name, r.randint(3, 8))
    else:
        net, train = minidnn.load(NET_FILES / f"{name}.yaml"), TrainSpec(SGD(momentum=0.9), iter_size=2)
        program = programs(net, train, ("TRAIN",))["TRAIN"]
    some = frozenset(t for t in program.persistent if r.random() < 0.7)
    offloads, _ = tried(
        program.with_host_resident(some),
        replace(costs(bandwidth=4e8), drag=Drag((0.4, 0.3), (0.2, 0.5)), duplex=(0.8, 0.7)),
        r,
    )
    assert offloads and some


def test_the_worst_execution_and_the_bytes_beyond_the_limit():
    ev = Evaluator(Index(PROGRAMS["chain"](), costs()))
    ev.evaluate(HUGE)
    live = ev.view("live", "executions").copy()
    found = ev.evaluate(ev.base + int(live.max()) - 1000)
    assert (found.over, found.worst) == (1000, int(np.argmax(live)))


def test_what_may_be_decided():
    """Persistent tensors have no gaps; outputs and gradients that are made once are not made again; inputs are not."""
    program = PROGRAMS["residual"]()
    ev = Evaluator(Index(program, costs()))
    assert not {s.tensor for s in ev.gaps} & set(program.persistent)
    again = {s.tensor for i, s in enumerate(ev.gaps) if ev.may_recompute[i]}
    made = {t for op in program.ops if op.during in FORWARD for t in op.writes}
    assert again and again <= made - set(program.outputs)
    for i, s in enumerate(ev.gaps):
        if s.tensor in program.outputs:
            assert not ev.may_offload[i] and not ev.may_recompute[i]


def test_decisions_are_kept_and_brought_back():
    ev, r = Evaluator(Index(PROGRAMS["inception"](), costs())), random.Random(0)
    at_random(ev, r)
    before, outcome = ev.save(), ev.evaluate(HUGE)
    at_random(ev, r)
    assert ev.evaluate(HUGE) != outcome
    ev.restore(before)
    assert ev.evaluate(HUGE) == outcome


def test_decisions_that_are_no_plan_are_refused():
    ev = Evaluator(Index(PROGRAMS["chain"](), costs()))
    gap = next(i for i, s in enumerate(ev.gaps) if s.last >= 0 and ev.arrays["maker"][ev.number[s.tensor]] < 0)
    ev.fate[gap] = RECOMPUTE
    with pytest.raises(ValueError, match="not there"):
        ev.evaluate(HUGE)
