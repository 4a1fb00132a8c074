"""POET-style planning: the optimum of its program by an exhaustive search, budgets, bytes of training, refusals."""

from __future__ import annotations

import itertools
import sys
from dataclasses import replace
from functools import partial

import pytest

from minidnn.costs import Choice
from minidnn.memory.budget import BudgetError
from minidnn.memory.joint.bound import LowerBound
from minidnn.memory.joint.index import Index
from minidnn.memory.joint.linear import Solver
from minidnn.memory.plan import complete
from minidnn.memory.planning import arrange
from minidnn.memory.policies.ours.liveness import liveness
from minidnn.memory.policies.papers.poet import NODES, NoPlan, candidate, planned, poet, quick
from minidnn.memory.policies.papers.poet_program import HIDDEN, Stages
from minidnn.memory.policies.plan_file import described
from minidnn.memory.policies.shared import probe
from minidnn.memory.schedule import aligned
from minidnn.program import Algorithm
from tests.support.programs import KB, PROGRAMS, Builder, chain, costs
from tests.support.slow import usual_are
from tests.support.trains import baseline, train


def tiny(bandwidth):
    """Two convolutions, of which one can be quicker with a workspace, and a pooling between them."""
    b = Builder(8)
    b.add("b", "convolution", b.add("pool", "pooling", b.add("a", "convolution", "data", size=64), size=32), size=80)
    program = b.program()
    fast = next(op for op in program.ops if op.name == "b.backward_filter")

    def choices(op):
        only = (Choice(Algorithm("only"), 2e-5 if "pool" in op.name else 5e-5),)
        return (*only, Choice(Algorithm("fast", 40 * KB), 2e-5)) if op is fast else only

    return program, replace(costs(bandwidth=bandwidth), choices=choices)


def cheapest(stages, budget):
    """The least cost within the budget, in seconds, of all ways through the stages; None if there is none.

    A state is what is in memory and what has been copied out. Nothing here is taken from the program's rows.
    """
    index, ops = stages.index, stages.ops
    least = None
    several = [p for p, choices in enumerate(index.choices) if len(choices) > 1]
    for picked in itertools.product(*(range(len(index.choices[p])) for p in several)):
        choice = dict.fromkeys(range(len(ops)), 0) | dict(zip(several, picked, strict=True))
        states = {(frozenset(), frozenset()): 0.0}
        for s in range(len(ops)):
            after = {}
            for (there, host), cost in states.items():
                for state, more in steps(stages, choice, s, there, host, budget):
                    after[state] = min(cost + more, after.get(state, cost + more))
            states = after
        found = min(states.values(), default=None)
        least = found if least is None else least if found is None else min(found, least)
    return least


def steps(stages, choice, s, there, host, budget):
    """What stage s may come to: the state behind it, and its cost."""
    index, ops, costs = stages.index, stages.ops, stages.index.costs
    arrives = {t for t in index.inputs if stages.decided.get(t) == s - 1}
    there = there | arrives
    runs = [i for i in stages.runs if s >= index.forward and i < s]
    may_leave = sorted((t for t in there - host - set(index.inputs) - arrives), key=lambda t: t.name)
    for again in powerset(runs):
        order = [*again, s]
        present, good, overwritten = set(there), True, {}
        for k in order:
            good &= all(t in present for t in ops[k].reads if t in stages.decided)
            good &= not any(t in present for t in ops[k].writes if k != s)
            over = [x for x, q in stages.over.items() if q == k]
            overwritten[k] = over
            present = (present - set(over)) | {t for t in ops[k].writes if t in stages.decided}
        if not good:
            continue
        seconds = sum(index.choices[k][choice[k]].seconds for k in order)
        known = host | {t for t in index.inputs}
        absent = [t for t in known if t in stages.decided and t not in present and s + 1 in stages._stages(t)]
        absent = [t for t in absent if stages.decided[t] < s]
        present = sorted((t for t in present if s + 1 in stages._stages(t)), key=lambda t: t.name)
        for kept in powerset(present):
            for out in powerset(may_leave):
                if any(t in over for over in overwritten.values() for t in out):
                    continue
                if not fits(stages, choice, s, order, there, kept, out, (), budget):
                    continue
                for back in powerset(absent):
                    for early in powerset(back):
                        if early and not fits(stages, choice, s, order, there, kept, out, early, budget):
                            continue
                        go = sum(costs.latency + t.nbytes / costs.bandwidth_out for t in out)
                        come = {t: costs.latency + t.nbytes / costs.bandwidth_in for t in back}
                        beside = sum(come[t] for t in early)
                        waits = sum(come.values()) - beside
                        cost = max(seconds, go, beside) + waits + HIDDEN * (go + beside + waits)
                        yield (frozenset((*kept, *back)), host | set(out)), cost


def fits(stages, choice, s, order, there, kept, out, early, budget):
    """Whether all runs of the stage keep the budget."""
    ops, index = stages.ops, stages.index
    base = sum(aligned(t.nbytes) for t in index.persistent)
    present = set(there)
    for number, k in enumerate(order):
        over = {x for x, q in stages.over.items() if q == k}
        rest = {t for j in order[number:] for t in ops[j].reads}
        live = {t for t in present if t in rest or t in kept or t in out} | {*early, *ops[k].writes}
        others = [t for t in ops[k].tensors if t not in index.persistent and t not in stages.decided]
        nbytes = sum(aligned(t.nbytes) for t in {*live, *others} - over)
        nbytes += aligned(index.choices[k][choice[k]].algorithm.workspace)
        if base + nbytes > budget:
            return False
        present = (present - over) | set(ops[k].writes)
    return True


def powerset(items):
    return itertools.chain.from_iterable(itertools.combinations(items, n) for n in range(len(items) + 1))


def solved(index, budget):
    """(the program, its solution within the budget to the last digit, its cost in seconds)"""
    stages = Stages(index).with_rows()
    assert stages.decisions == len(stages.whole)
    stages.high[stages.memory] = budget * stages.byte
    answer = Solver(stages).least_whole(NODES, 0.0)
    cost = None if answer is None else sum(c * v for c, v in zip(stages.cost, answer.value.tolist(), strict=True))
    return stages, answer, None if cost is None else cost / stages.second


@pytest.mark.extended
@pytest.mark.parametrize(("bandwidth", "budgets"), [(4e8, (150, 162, 178)), (3e9, (162, 170))])
def test_the_solution_is_the_least_of_all_ways_through_the_stages(bandwidth, budgets):
    """Of a tiny net, so that all ways can be tried. A slow link makes it run again, a quick one copy."""
    program, device = tiny(bandwidth)
    for budget in budgets:
        stages, answer, cost = solved(Index(program, device), budget * KB)
        assert (cost or 0.0) == pytest.approx(cheapest(stages, budget * KB) or 0.0, rel=1e-6)
        if answer is None:
            assert budget == 150
            continue
        plan = planned(stages, answer)
        assert (len(plan.order) > len(program.ops)) == (bandwidth == 4e8)
        assert any(t.offload_at is not None for t in plan.offloads) == (budget < 178), (
            "both, copies alone, or runs alone"
        )


@pytest.mark.parametrize("name", usual_are(["diamond"], ["chain", "diamond"]))
def test_a_plan_is_as_quick_as_its_program_says_and_not_below_the_bound(name):
    program, device = PROGRAMS[name](), costs()
    index = Index(program, device)
    bound = LowerBound(index)
    whole = probe.arena(program, device, liveness(program, device, 0, "p"))
    ends = sum(t.nbytes / device.bandwidth_in + device.latency for t in (*program.inputs, *program.outputs))
    for part in (0.6, 0.8, 0.9):
        stages, answer, cost = solved(index, int(whole * part))
        plan = planned(stages, answer)
        assert probe.curve(program, device, plan).max() <= whole * part
        seconds = probe.seconds(program, device, plan)
        assert bound.at(int(whole * part)).seconds * (1 - 1e-9) <= seconds <= cost + ends
    assert described(program, poet(program, device, whole // 2)) == described(
        program, poet(program, device, whole // 2)
    )


def test_its_leanest_plan_has_the_least_bytes_of_any_plan():
    program, device = chain(), costs()
    with pytest.raises(BudgetError) as refused:
        arrange([program], "poet", device, 1)
    least = LowerBound(Index(program, device)).least()
    assert least <= refused.value.smallest <= least + 4 * KB
    schedule = arrange([program], "poet", device, refused.value.smallest).schedules["TRAIN"]
    assert schedule.arena == refused.value.smallest


@pytest.mark.parametrize("net", ["diamond"])
def test_training_under_its_smallest_budget_ends_with_the_bytes_of_baseline(net):
    """On the reference, which has one algorithm for each op."""
    with pytest.raises(BudgetError) as refused:
        train(net, "reference", "poet", budget=1)
    want, losses, _ = baseline(net, "reference", "m")
    got, got_losses, _ = train(net, "reference", "poet", debug=True, delays=1e-3, budget=refused.value.smallest)
    assert got_losses == losses and got == want


def test_a_program_with_too_many_decisions_is_refused_with_their_number(monkeypatch):
    program, device = chain(), costs()
    monkeypatch.setattr(sys.modules[poet.__module__], "MOST", 100)
    with pytest.raises(
        NoPlan, match="TRAIN of 31 ops has 554 decisions, and poet solves programs of at most 100; best"
    ):
        arrange([program], "poet", device, 200 * KB)
    assert arrange([program], "poet", device, 1 << 30).arena < 1 << 20, "what fits needs no decision"


def test_a_search_that_ends_without_a_plan_says_so(monkeypatch):
    monkeypatch.setattr(sys.modules[poet.__module__], "NODES", 0)
    with pytest.raises(NoPlan, match="no plan of TRAIN was found within 0 nodes"):
        poet(PROGRAMS["residual"](), costs(), 349440)


def test_who_asks_several_policies_gets_its_plan_or_liveness_s_and_knows_whether_that_is_quick(monkeypatch):
    program, device = tiny(1e9)
    assert quick(program, device) and not quick(chain(30), costs())
    whole = probe.arena(program, device, liveness(program, device, 0, "p"))
    for most, decide in ((None, poet), (1, partial(liveness, algorithms="p"))):
        if most is not None:
            monkeypatch.setattr(sys.modules[poet.__module__], "MOST", most)
        plans = [found(program, device, whole * 9 // 10) for found in (candidate, decide)]
        once, twice = (described(program, complete(program, device, plan)) for plan in plans)
        assert once == twice
