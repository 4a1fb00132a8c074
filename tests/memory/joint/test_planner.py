"""best: within every budget that any other policy keeps, never slower than these, never below the bound."""

from __future__ import annotations

import random
import sys

import pytest

import minidnn
from minidnn import visible
from minidnn.costs.net import Link, among
from minidnn.memory.budget import BudgetError
from minidnn.memory.execution.simulator import simulate
from minidnn.memory.joint import planner
from minidnn.memory.joint.bound import LowerBound
from minidnn.memory.joint.evaluator import Evaluator
from minidnn.memory.joint.host_residents import HostResidents
from minidnn.memory.joint.index import Index
from minidnn.memory.joint.planner import Planner
from minidnn.memory.joint.repair import Repair
from minidnn.memory.joint.search import Search
from minidnn.memory.planning import arrange, unproved
from minidnn.memory.policies import find, names, plan_file
from minidnn.memory.policies.ours.best import best
from minidnn.memory.policies.shared import probe
from minidnn.memory.proof.digest import digest
from minidnn.optimizers import SGD
from minidnn.programs.build import programs
from minidnn.programs.spec import TrainSpec
from tests.memory.joint.test_evaluator import HUGE, check
from tests.support.paths import NET_FILES
from tests.support.policies import ABOUT, SOLVED
from tests.support.programs import PROGRAMS, chain, costs, wild_graph
from tests.support.several import made
from tests.support.slow import usual_are


def variant(name: str) -> bool:
    """Whether the policy is a variant of another: its name continues the other's, as vdnn_pp_alt continues vdnn_pp."""
    return any(name.startswith(f"{other}_") for other in names())


def seconds(arrangement, device) -> float:
    return simulate(arrangement.schedules["TRAIN"], device).seconds


@pytest.mark.parametrize("bandwidth", [3e8, 2e9])
@pytest.mark.parametrize("name", usual_are(["nested", 1], ["chain", "diamond", "residual", "nested", 1, 2]))
def test_best_is_never_slower_than_a_policy_that_keeps_the_budget(name, bandwidth):
    program = PROGRAMS[name]() if isinstance(name, str) else wild_graph(name, 9)
    device = costs(bandwidth=bandwidth)
    bound = HostResidents(program, device).bound
    others = [policy for policy in names() if policy not in ("best", *SOLVED, *ABOUT) and not variant(policy)]
    whole = unproved([program], "liveness:p", device, device.memory)["TRAIN"].arena
    for budget in (whole * 3 // 4, whole // 2):
        kept = {}
        for policy in others:
            schedule = unproved([program], policy, device, budget)["TRAIN"]
            if schedule.arena <= budget:
                kept[policy] = simulate(schedule, device).seconds
        if not kept:
            continue
        best = arrange([program], "best", device, budget)
        assert best.arena <= budget
        assert bound.closest(budget).seconds * (1 - 1e-9) <= seconds(best, device)
        assert seconds(best, device) <= min(kept.values(), default=HUGE) * (1 + 1e-9), min(kept, key=kept.get)
        told = best.schedules["TRAIN"].plan.bound
        assert bound.at(budget).seconds * (1 - 1e-6) <= told <= bound.closest(budget).seconds * (1 + 1e-6)


def test_equal_calls_give_equal_plans():
    program, device = PROGRAMS["inception"](), costs(bandwidth=1e9)
    whole = unproved([program], "liveness:p", device, device.memory)["TRAIN"].arena
    once, twice = (str(arrange([program], "best", device, whole * 6 // 10).schedules["TRAIN"]) for _ in range(2))
    assert once == twice


@pytest.mark.parametrize("name", PROGRAMS)
def test_repairs_keep_the_limit_or_give_up(name):
    program = PROGRAMS[name]()
    ev = Evaluator(Index(program, costs()))
    repair = Repair(ev)
    ev.evaluate(HUGE)
    most, start = ev.base + int(ev.view("live", "executions").max()), ev.save()
    kept = []
    for part in (0.9, 0.7, 0.5, 0.3):
        ev.restore(start)
        found = repair.walk(int(most * part), 0)
        kept.append(found is not None)
        if found is not None:
            check(ev, int(most * part))
    assert kept[0] and repair.walk(ev.base, 0) is None


def test_the_last_change_of_a_repair_counts(monkeypatch):
    ev = Evaluator(Index(PROGRAMS["chain"](), costs()))
    repair = Repair(ev)
    ev.evaluate(HUGE)
    limit, start = ev.base + int(ev.view("live", "executions").max()) - 256, ev.save()
    changes = next(n for n in range(1, 50) if (ev.restore(start), repair.within(limit, n))[1] is not None)
    ev.restore(start)
    assert repair.within(limit, changes - 1) is None  # the change was made, and is not evaluated any more
    assert repair.walk(limit, 0).over == 0


def test_a_search_ends_where_it_says_and_is_no_slower():
    program = PROGRAMS["nested"]()
    ev = Evaluator(Index(program, costs(bandwidth=5e8)))
    repair = Repair(ev)
    ev.evaluate(HUGE)
    limit = int((ev.base + ev.view("live", "executions").max()) * 0.7)
    before = repair.walk(limit, 0)
    after = Search(ev, repair).improve(limit, 500, 0)
    assert after.seconds < before.seconds and ev.evaluate(limit) == after
    check(ev, limit)


@pytest.mark.extended
def test_where_no_arena_keeps_the_budget_tensors_leave_and_come_back_with_less_time_to_spare(monkeypatch):
    program, device = PROGRAMS["inception"](), costs(bandwidth=5e8)
    budget = arrange([program], "liveness", device).arena * 43 // 100
    monkeypatch.setattr(planner, "LESS", 0)
    monkeypatch.setattr(planner, "FEWER_LIVE", ())
    assert Planner(program, device).within(budget) is not None
    monkeypatch.setattr(planner, "NARROWER", ())
    monkeypatch.setattr(planner, "NARROWEST", ())
    assert Planner(program, device).within(budget) is None


def test_where_no_arena_keeps_the_budget_fewer_bytes_are_live(monkeypatch):
    program, device = PROGRAMS["inception"](), costs(bandwidth=5e8)
    budget = arrange([program], "liveness", device).arena * 43 // 100
    monkeypatch.setattr(planner, "NARROWER", ())
    found = Planner(program, device).within(budget)
    assert found is not None and probe.fits(program, device, found.plan, budget)


def test_a_repair_in_vain_leaves_no_decisions_behind(monkeypatch):
    program, device = PROGRAMS["inception"](), costs(bandwidth=5e8)
    budget = arrange([program], "liveness", device).arena * 43 // 100
    monkeypatch.setattr(planner, "NARROWER", ())
    monkeypatch.setattr(planner, "FEWER_LIVE", ())
    monkeypatch.setattr(planner, "NARROWEST", ((0.01, 1.0),))  # of the budget: no decisions keep it
    found = Planner(program, device).within(budget)
    assert found is not None and probe.fits(program, device, found.plan, budget)


def test_where_no_plan_is_found_small_tensors_are_decided_about_too(monkeypatch):
    said = []
    program, device = PROGRAMS["inception"](), costs()
    budget = arrange([program], "liveness", device).arena * 3 // 5
    coarse = Planner(program, device, small=1)  # decides about the largest tensors only
    assert coarse.within(budget) is None and Planner(program, device).within(budget) is not None
    module = sys.modules["minidnn.memory.policies.ours.best"]
    monkeypatch.setattr(type(program), "movable", frozenset())
    monkeypatch.setattr(
        module,
        "HostResidents",
        lambda program, costs, small=1, tell=None: HostResidents(program, costs, small, said.append),
    )
    assert best(program, device, budget, []).bound is not None
    assert said.count("the lower bound") == 2 and "over the bound" in said[-1]


def test_a_budget_below_the_bounds_least_is_refused_with_one_that_is_kept():
    program, device = chain(5), costs()
    least = HostResidents(program, device).bound.least()
    with pytest.raises(BudgetError) as refused:
        arrange([program], "best", device, least - 256)
    assert refused.value.smallest >= least
    assert arrange([program], "best", device, refused.value.smallest).arena <= refused.value.smallest


def test_where_no_plan_is_found_the_leanest_is_taken_if_it_keeps_the_budget(monkeypatch):
    program, device = chain(5), costs()
    with pytest.raises(BudgetError) as refused:
        arrange([program], "best", device, 1)
    monkeypatch.setattr(Planner, "within", lambda self, budget, below: None)
    assert arrange([program], "best", device, refused.value.smallest).arena == refused.value.smallest


@pytest.mark.parametrize("what", ["highspy", "compiler"])
def test_without_its_tools_it_takes_the_best_of_the_others_and_says_so(what, monkeypatch, capsys):
    from minidnn.compiled import NotCompiled
    from minidnn.memory.joint import evaluator

    def missing():
        raise NotCompiled("needs a C compiler once")

    if what == "highspy":
        monkeypatch.setitem(sys.modules, "highspy", None)
    else:
        monkeypatch.setattr(evaluator, "SOURCES", type("Sources", (), {"load": staticmethod(missing)}))
    visible.say_once.cache_clear()
    program, device = chain(5), costs()
    whole = arrange([program], "liveness", device).arena
    found = arrange([program], "best", device, whole * 2 // 3)
    others = [
        unproved([program], p, device, whole * 2 // 3)["TRAIN"] for p in ("vdnn_pp", "accudnn", "recompute_cheap")
    ]
    kept = [simulate(s, device).seconds for s in others if s.arena <= whole * 2 // 3]
    assert found.arena <= whole * 2 // 3 and seconds(found, device) <= min(kept)
    assert found.schedules["TRAIN"].plan.bound is None
    said = capsys.readouterr().err
    assert said.startswith("minidnn: best takes the best plan of the other policies") and said.count("\n") == 1
    assert {"highspy": "pip install highspy", "compiler": "needs a C compiler"}[what] in said


def test_random_budgets_of_random_nets_are_kept():
    r = random.Random(7)
    for _ in range(6):
        program, device = wild_graph(r.randrange(1 << 30), r.randint(3, 12)), costs(bandwidth=r.choice([2e8, 1e9]))
        planner = Planner(program, device)
        plan = find("best")(program, device, 1 << 40)
        assert plan.bound is not None
        found = planner.within(int(planner.bound.least() * r.uniform(1.0, 1.5)))
        if found is not None:
            assert found.seconds >= found.bound.seconds * (1 - 1e-9)


@pytest.mark.parametrize("case", usual_are(["normed"], ["normed", "clipped"]))
def test_among_several_ranks_it_is_never_slower_than_a_policy_that_keeps_the_budget(case):
    """What it predicts has the communications in it, and forward runs again though a step begins with gathers."""
    device = among(costs(bandwidth=1e8), Link(2e8, 2e-5, drag=0.2))
    (program,) = made(4, case).values()
    whole = unproved([program], "liveness:m", device, device.memory)["TRAIN"].arena
    again = 0
    for part in (0.95, 0.9):
        budget = int(whole * part)
        schedule = arrange([program], "best", device, budget).schedules["TRAIN"]
        mine = simulate(schedule, device).seconds
        assert schedule.plan.bound is not None and mine >= schedule.plan.bound * (1 - 1e-9)
        again += len(schedule.plan.order) - len(program.ops)
        for policy in ("recompute_cheap", "vdnn_pp", "superneurons"):
            other = unproved([program], policy, device, budget)["TRAIN"]
            assert other.arena > budget or simulate(other, device).seconds >= mine * (1 - 1e-9), policy
    assert again


# ---- what lives on the host


def lenet():
    """TRAIN and TEST of a net whose classifiers have most bytes, on a card; seconds of a step that nothing limits."""
    train = TrainSpec(SGD(momentum=0.9))
    made = list(programs(minidnn.load(NET_FILES / "lenet.yaml").with_batch(8), train, ("TRAIN", "TEST")).values())
    device = costs(bandwidth=1e9)
    return made, device, seconds(arrange(made, "liveness:p", device), device)


def test_weights_stay_on_the_device_where_that_costs_nothing_and_leave_where_it_pays():
    made, device, quickest = lenet()
    whole = arrange(made, "liveness:p", device).arena
    least = max(LowerBound(Index(p, device), may_host=False).least() for p in made)
    tried = set()
    for part in (1.0, 0.8, 0.6):
        budget = int(whole * part)
        found = arrange(made, "best", device, budget)
        host_resident = found.schedules["TRAIN"].program.host_resident
        assert all(s.plan.bound is not None for s in found.schedules.values())
        assert set(found.schedules["TEST"].program.host_resident) <= set(host_resident), "they agree"
        assert bool(host_resident) == (budget < whole)
        assert bool(host_resident) or seconds(found, device) <= quickest * (1 + 1e-9)
        tried.add((bool(host_resident), budget < least))
    assert (True, True) in tried, "a budget that no plan keeps with all weights on the device"


def test_a_plan_with_weights_on_the_host_is_saved_and_used(tmp_path):
    made, device, _ = lenet()
    found = arrange(made, "best", device, int(arrange(made, "liveness:p", device).arena * 0.6))
    plan_file.save(tmp_path / "lenet.plan", found, device)
    again = arrange(made, str(tmp_path / "lenet.plan"), device, found.arena)
    assert digest(again) == digest(found)
