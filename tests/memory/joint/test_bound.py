"""No plan is below the bound: not the policies' plans, not plans at random, and not the best of all plans of a tiny
net."""

from __future__ import annotations

import contextlib
import itertools
import math
import random
import sys
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

import minidnn
from minidnn.costs import Choice, Drag
from minidnn.costs.net import Link, among
from minidnn.memory.execution.simulator import simulate
from minidnn.memory.joint import rows
from minidnn.memory.joint.bound import Bound, LowerBound
from minidnn.memory.joint.dragged import dragged
from minidnn.memory.joint.index import Index
from minidnn.memory.joint.linear import NoSolver, Rows, Solver
from minidnn.memory.lowering.lower import lower
from minidnn.memory.lowering.placement import place
from minidnn.memory.plan import OffloadInterval, Plan, complete, in_place_sharing
from minidnn.memory.planning import unproved
from minidnn.memory.proof.verify import ScheduleError, verify
from minidnn.optimizers import SGD
from minidnn.program import FORWARD, Algorithm
from minidnn.programs.build import programs
from minidnn.programs.spec import TrainSpec
from tests.memory.test_any_plan import any_plan
from tests.support.decisions import schedule_at_random
from tests.support.paths import NET_FILES
from tests.support.policies import PLANNED
from tests.support.programs import KB, PROGRAMS, Builder, chain, costs, dragging, wild_graph
from tests.support.several import made
from tests.support.slow import usual_pairs

ROUNDING = 1 - 1e-9
MANY = ["best", "superneurons", "vdnn_dyn", "vdnn_all:p", "vdnn_pp:p", "accudnn:p", "layrub:m", "sqrt_n:p"]


@cache
def solved(bound: LowerBound, budget: int) -> Bound | None:
    """Many plans have one peak."""
    return bound.at(budget)


def is_below(bound: LowerBound, schedule, device) -> str | None:
    """What is wrong with the bound at the live peak of this schedule. If copies back begin as soon as possible, the
    arena counts: they take bytes before their points. The bound is not for plans of which the host runs ops."""
    if schedule.plan.host_ops:
        return None
    most = schedule.arena if schedule.plan.asap else schedule.live_peak
    found, seconds = solved(bound, most), simulate(schedule, device).seconds
    if found is None:
        return f"no plan is said to keep {most} bytes"
    return None if seconds >= found.seconds * ROUNDING else f"{seconds} s is below the bound of {found.seconds} s"


DRAG = Drag((0.4, 0.3), (0.2, 0.5))


@pytest.mark.parametrize(
    ("name", "drag"),
    [
        ("residual", None),
        ("diamond", DRAG),
        *(pytest.param(name, None, marks=pytest.mark.extended) for name in PROGRAMS if name != "residual"),
        pytest.param("residual", DRAG, marks=pytest.mark.extended),
    ],
)
def test_no_policy_is_below_the_bound(name, drag):
    program, device = PROGRAMS[name](), replace(costs(), drag=drag)
    policies = PLANNED if name in ("chain", "diamond") and drag is None else MANY
    bound = LowerBound(Index(program, device))
    whole = unproved([program], "liveness:p", device, device.memory)["TRAIN"].arena
    tried = set()
    for policy in policies:
        for budget in (0, whole // 2, whole * 3 // 4, whole):
            schedule = unproved([program], policy, device, budget)["TRAIN"]
            assert is_below(bound, schedule, device) is None, (policy, budget)
            assert bound.least() <= schedule.live_peak or schedule.plan.host_ops
            tried.add((schedule.live_peak, len(schedule.plan.order), len(schedule.plan.offloads)))
    assert len(tried) > 5


LINKS = [pytest.param(2, Link(1e9, 1e-5)), pytest.param(4, Link(5e7, 1e-4, drag=0.3))]


@pytest.mark.parametrize(("case", "ranks", "link"), usual_pairs(["clipped", "plain", "normed"], LINKS))
def test_no_policy_of_several_ranks_is_below_the_bound(case, ranks, link):
    """Whether ops or communications take longer. The quickest steps are near it."""
    device, nearest = among(costs(), link), math.inf
    (program,) = made(ranks, case).values()
    bound = LowerBound(Index(program, device))
    whole = unproved([program], "liveness:p", device, device.memory)["TRAIN"].arena
    for policy in MANY:
        for budget in (0, whole * 3 // 4, whole):
            schedule = unproved([program], policy, device, budget)["TRAIN"]
            assert is_below(bound, schedule, device) is None, (policy, budget)
            seconds = simulate(schedule, device).seconds
            nearest = min(nearest, seconds / solved(bound, schedule.arena).seconds)
    assert nearest < 1.02


def of_the_family(program, plan) -> bool:
    """Whether the first executions stand in the program's order, nothing but forward runs again, and weights stay."""
    order = plan.order or program.ops
    again = [op for op in program.ops if order.count(op) > 1]
    firsts = tuple(dict.fromkeys(order))
    persistent = any(t.tensor in program.with_host_resident(plan.host_resident).persistent for t in plan.offloads)
    return firsts == program.ops and all(op.during in FORWARD for op in again) and not persistent


def test_no_plan_at_random_is_below_the_bound():
    r, judged, device = random.Random(5), 0, costs()
    for _ in range(400):
        program = wild_graph(r.randrange(1 << 30), r.randint(2, 6))
        plan = any_plan(program, r)
        if not of_the_family(program, plan):
            continue
        try:
            schedule = place(lower(program, complete(program, device, plan)))
            verify(schedule)
        except (ValueError, ScheduleError):
            continue
        judged += 1
        assert is_below(LowerBound(Index(program, device)), schedule, device) is None
    assert judged > 40


def test_no_plan_at_random_is_below_the_bound_where_copies_slow_each_op_and_each_other(monkeypatch):
    """Some bounds are higher by what copies take from the ops that they slow most, or from each other."""
    r, higher, both = random.Random("drags"), 0, 0
    for number in range(10):
        program = PROGRAMS[("residual", "chain")[number // 2 % 2]]() if number % 2 else wild_graph(number % 8, 6)
        device = dragging(costs(bandwidth=(2e8, 1e9)[number % 3 > 0]))
        device = replace(device, duplex=r.choice([(0.9, 0.5), (0.6, 0.6), (0.2, 0.3)]))
        bound = LowerBound(Index(program, device))
        for _ in range(4):
            assert is_below(bound, schedule_at_random(program, device, r), device) is None
        with monkeypatch.context() as m:
            m.setattr(rows, "dragged", lambda index: dragged(index)[:1])
            least = LowerBound(Index(program, device))
        budget = bound.least() * 11 // 10
        higher += bound.at(budget).seconds > least.at(budget).seconds * 1.001
        apart = LowerBound(Index(program, replace(device, duplex=(1.0, 1.0))))
        both += bound.at(budget).seconds > apart.at(budget).seconds * 1.001
    assert higher > 3 and both > 0, (higher, both)


def test_no_plan_with_weights_on_the_host_is_below_the_bound():
    """Any of them, by decisions at random, under budgets that they just keep; some plans are near."""
    r, nearest = random.Random("hosted"), math.inf
    device = replace(costs(bandwidth=1e9), drag=Drag((0.1, 0.1), (0.1, 0.1)))
    train = TrainSpec(SGD(momentum=0.9))
    for net in ("residual", "lenet"):
        program = programs(minidnn.load(NET_FILES / f"{net}.yaml"), train, ("TRAIN",))["TRAIN"]
        bound, near = LowerBound(Index(program, device)), LowerBound(Index(program, device), may_host=False)
        for part in (0.0, 0.5, 1.0):
            host_resident = program.with_host_resident(frozenset(t for t in program.persistent if r.random() < part))
            own = LowerBound(Index(host_resident, device), may_host=False)
            for _ in range(6):
                schedule = schedule_at_random(host_resident, device, r)
                for each in (bound, own) if part else (bound, own, near):
                    assert is_below(each, schedule, device) is None
                nearest = min(nearest, simulate(schedule, device).seconds / own.at(schedule.live_peak).seconds)
    assert nearest < 1.2


def small():
    """Two convolutions and a classifier, on a device on which a copy takes as long as an op or two; one op can be
    quicker with a workspace."""
    b = Builder(48)
    b.add("b", "convolution", b.add("a", "convolution", "data", size=64), size=32)
    b.add("fc", "inner_product", "b", size=4)
    program = b.program()
    fast = next(op for op in program.ops if op.name == "b.backward_filter")

    def choices(op):
        only = (Choice(Algorithm("only"), 5e-5),)
        return (*only, Choice(Algorithm("fast", 40 * KB), 2e-5)) if op is fast else only

    return program, replace(costs(bandwidth=1e9), choices=choices)


def every_plan(program, device):
    """Every plan that has one fate for each map on its way to backward: it stays, its op runs again for its reader, or
    it leaves over any of its idle points; with every algorithm."""
    ops = program.ops
    fates = []
    for op in ops:
        for t in op.writes if op.during in FORWARD else ():
            uses = [p for p, op in enumerate(ops) if t in op.tensors]
            last = max(p for p in uses if ops[p].during in FORWARD)
            if uses[-1] == last or t in program.outputs:
                continue
            use = min(p for p in uses if p > last)
            idle = range(last + 1, use + 1)
            offloads = [
                OffloadInterval(t, uses[0] + 1, free, back, use) for free in idle for back in idle if free <= back
            ]
            fates.append([None, (op, use), *offloads])
    choosing = [op for op in ops if len(device.choices(op)) > 1]
    for fate in itertools.product(*fates):
        order, moved = [], {}
        for p, op in enumerate(ops):
            order += [f[0] for f in fate if isinstance(f, tuple) and f[1] == p]
            moved[p] = len(order)
            order.append(op)
        moved[len(ops)] = len(order)
        offloads = [
            OffloadInterval(f.tensor, *(moved[p] for p in (f.offload_at, f.free_at, f.prefetch_at, f.needed_at)))
            for f in fate
            if isinstance(f, OffloadInterval)
        ]
        for picked in itertools.product(*(device.choices(op) for op in choosing)):
            algorithm = dict(zip(choosing, (c.algorithm for c in picked), strict=True))
            yield Plan(tuple(order), tuple(offloads), algorithm, in_place_sharing(program))


def test_the_best_of_all_plans_of_a_tiny_net_is_not_below_the_bound_and_near_it():
    program, device = small()
    bound = LowerBound(Index(program, device))
    best: dict[int, float] = {}  # {live peak: the least seconds of its plans}
    count = 0
    for plan in every_plan(program, device):
        schedule = place(lower(program, complete(program, device, plan)))
        with contextlib.suppress(ScheduleError):
            verify(schedule)
            count += 1
            peak, seconds = schedule.live_peak, simulate(schedule, device).seconds
            best[peak] = min(seconds, best.get(peak, seconds))
    assert count > 1000 and len(best) > 5
    least, gaps = min(best), []
    assert bound.least() <= least
    for budget in range(least, max(best) + 1, 2 * KB):
        reached = min(seconds for peak, seconds in best.items() if peak <= budget)
        for found in (bound.at(budget), bound.closest(budget), bound.at_whole(budget, 1000, 0.0)):
            assert found is not None and found.seconds * ROUNDING <= reached
            gaps.append(reached / found.seconds - 1)
    print(f"{count} plans, {len(best)} peaks; gaps from {min(gaps):.1%} to {max(gaps):.1%}")
    assert min(gaps) < 1e-6 and max(gaps) < 0.5


def test_the_bound_falls_with_the_budget_and_ends_at_the_quickest_step():
    program, device = chain(), costs()
    bound = LowerBound(Index(program, device))
    least = bound.least()
    assert bound.at(least - 1024) is None
    budgets = [least + 1024 + k * 16 * KB for k in range(40)]
    seconds = [bound.at(b).seconds for b in budgets]
    assert seconds == sorted(seconds, reverse=True)
    quickest = simulate(unproved([program], "liveness:p", device, device.memory)["TRAIN"], device).seconds
    assert seconds[-1] == pytest.approx(quickest, rel=1e-3)


def test_the_price_of_a_byte_is_the_slope_of_the_bound():
    program, device = PROGRAMS["residual"](), costs(bandwidth=1e8)
    bound = LowerBound(Index(program, device))
    prices = []
    for budget in range(bound.least() + KB, bound.least() + 400 * KB, 16 * KB):
        here, more = bound.at(budget), bound.at(budget + 64)
        prices.append(here.price)
        assert here.price >= 0 and here.seconds - more.seconds <= here.price * 64 * (1 + 1e-6) + 2e-11
    assert max(prices) > 0 and prices[-1] < prices[0]


def test_the_solver_writes_nothing_on_standard_output(capfd):
    """There `--json` has one document."""
    assert LowerBound(Index(chain(), costs())).closest(1 << 30) is not None
    assert capfd.readouterr().out == ""


def test_without_a_solver_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "highspy", None)
    with pytest.raises(NoSolver, match="pip install highspy"):
        LowerBound(Index(chain(), costs())).at(1 << 30)


def test_a_dual_of_the_wrong_sign_does_not_make_the_bound_infinite():
    rows = Rows()
    x = rows.var(1.0, high=10.0)
    rows.row([(x, 1.0)], low=2.0)
    rows.row([(x, 1.0)], high=5.0)
    solver = Solver(rows)
    assert solver.least().bound == 2
    for error in (1e-18, -1e-18):
        assert solver._dual_value(np.array([1.0, error])) == pytest.approx(2)
        assert solver._dual_value(np.array([error, 0.0])) == pytest.approx(0)


def test_a_bound_on_whole_numbers_is_above_that_on_parts_and_not_above_a_solution():
    def program(least: float) -> Rows:
        rows = Rows()
        x, y = (rows.var(1.0, high=10.0, whole=True) for _ in range(2))
        rows.row([(x, 2.0), (y, 2.0)], low=least)
        return rows

    assert Solver(program(3.0)).least().bound == 1.5
    assert Solver(program(3.0)).bound_whole(100, 0.0) == Solver(program(3.0)).least_whole(100, 0.0).bound == 2
    assert Solver(program(50.0)).bound_whole(100, 0.0) is None
