"""best that looks longer: never slower, ended by a clock or by Ctrl-C, and nowhere without being asked."""

from __future__ import annotations

import itertools
from functools import partial

import pytest

import minidnn
from minidnn.errors import InvalidInput
from minidnn.memory.effort import Effort, asked, looking
from minidnn.memory.joint import rounds
from minidnn.memory.joint.adopted import adopt
from minidnn.memory.joint.evaluator import OFFLOAD, RECOMPUTE
from minidnn.memory.joint.planner import Planner
from minidnn.memory.planning import arrange, unproved
from minidnn.memory.policies import find
from minidnn.memory.policies.ours.best_longer import longer
from minidnn.memory.policies.shared import kept, probe
from minidnn.visible import say_once
from tests.support.programs import PROGRAMS, costs
from tests.support.slow import usual_are


@pytest.fixture(autouse=True)
def small_rounds(monkeypatch):
    for name, number in (("FIRST", 60), ("FEWEST", 60), ("MOST", 60)):
        monkeypatch.setattr(rounds, name, number)
    say_once.cache_clear()


def ticking(seconds: float) -> Effort:
    """An effort whose clock counts how often it is asked."""
    return Effort(seconds, partial(next, itertools.count()))


# The link is slow, and so are the plans that are found at once.
DEVICE = costs(bandwidth=3e8)


def tight(name: str, part: float = 0.5):
    program = PROGRAMS[name]()
    return program, int(unproved([program], "liveness:p", DEVICE, DEVICE.memory)["TRAIN"].arena * part)


def usual(name: str, part: float = 0.5):
    """A program, a budget, and a plan within it that no search has improved."""
    program, budget = tight(name, part)
    first = Planner(program, DEVICE, search=False).within(budget)
    assert first is not None
    return program, budget, first.with_bound


def sought(program, budget: int, plan, effort: Effort):
    return longer(program, DEVICE, budget, plan, False, [find("sqrt_n:p", budgeted=True)], effort)


def seconds(program, plan) -> float:
    return probe.seconds(program, DEVICE, plan)


@pytest.mark.parametrize("name", ["inception", "residual"])
def test_more_effort_is_never_slower_and_keeps_the_budget(name):
    program, budget, plan = usual(name)
    taken = [seconds(program, plan)]
    for effort in (10, 40, 80):
        found = sought(program, budget, plan, ticking(effort))
        assert probe.fits(program, DEVICE, found, budget)
        taken.append(seconds(program, found))
    assert taken == sorted(taken, reverse=True)
    assert name == "residual" or taken[-1] < taken[0]


@pytest.mark.parametrize("name", usual_are(["chain"], ["chain", "nested"]))
def test_without_effort_plans_are_as_before(name, monkeypatch):
    program, budget = tight(name, 0.7)
    before = arrange([program], "best@1", DEVICE, budget)
    with looking(ticking(20)):
        sought_longer = arrange([program], "best@1", DEVICE, budget)
    assert sought_longer.arena <= budget
    monkeypatch.setattr(rounds.Rounds, "run", lambda *args: pytest.fail("nobody has asked for a longer search"))
    after = arrange([program], "best@1", DEVICE, budget)
    assert str(after.schedules["TRAIN"]) == str(before.schedules["TRAIN"])


def test_an_interrupt_returns_the_best_so_far(monkeypatch, capsys):
    program, budget, plan = usual("inception")
    place, tried = rounds.Rounds._place, []

    def interrupted(self, lane):
        place(self, lane)
        tried.append(self.seconds)
        if len(tried) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(rounds.Rounds, "_place", interrupted)
    effort = ticking(1000)
    with looking(effort):
        found = sought(program, budget, plan, effort)
        assert asked() is None, "what is planned next is not looked for either"
    assert len(tried) == 3 and effort.over
    assert seconds(program, found) == pytest.approx(tried[-1]) and tried[-1] < seconds(program, plan)
    assert "interrupted: the quickest plan of TRAIN so far is taken" in capsys.readouterr().err
    tried.clear()
    sought(program, budget, plan, ticking(1000))
    assert tried, "a plan that was interrupted is not kept as what the whole time has found"


def test_a_plan_is_kept_under_its_effort(monkeypatch):
    program, budget, plan = usual("inception")
    once = sought(program, budget, plan, ticking(30))
    assert len({kept.place(program, DEVICE, budget, True, effort) for effort in (30, 31, 30.5)}) == 3
    monkeypatch.setattr(rounds.Rounds, "run", lambda *args: pytest.fail("it is looked for"))
    again = sought(program, budget, plan, ticking(30))
    assert seconds(program, again) == seconds(program, once) and again.order == once.order
    with pytest.raises(pytest.fail.Exception, match="it is looked for"):
        sought(program, budget, plan, ticking(31))


@pytest.mark.parametrize("policy", ["capuchin:p", "sqrt_n:p", "dtr:p"])
@pytest.mark.parametrize("name", ["inception", "residual"])
def test_a_plan_of_another_policy_is_a_start(name, policy):
    program, budget = tight(name, 0.7)
    planner = Planner(program, DEVICE)
    ev = planner.evaluator
    plan = find(policy, budgeted=True)(program, DEVICE, budget)
    adopt(ev, ev.save(), plan)
    again = {op for op in plan.order if plan.order.count(op) > 1}
    moved = {offload.tensor for offload in plan.offloads if offload.free_at is not None}
    fates = {(ev.gaps[i].tensor, int(ev.fate[i])) for i in range(len(ev.gaps)) if ev.gaps[i].last >= 0}
    assert {t for t, fate in fates if fate == OFFLOAD} <= moved
    assert {t for t, fate in fates if fate == RECOMPUTE} <= {t for op in again for t in op.writes}
    assert planner.repair.walk(budget, 0) is not None


NET = "lenet"


@pytest.mark.parametrize("effort", [0, -1, "long", True, float("inf"), float("nan")])
def test_an_effort_is_a_number_of_seconds(effort):
    with pytest.raises(InvalidInput, match=r"effort .*: expected a number of seconds above 0"):
        minidnn.plan(NET, "best", gpu="k40", budget="6MiB", effort=effort)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (
            lambda: minidnn.plan(NET, "vdnn_all", gpu="k40", effort=1),
            "effort: vdnn_all makes its plan without a search.*best",
        ),
        (lambda: minidnn.plan(NET, gpu="k40", effort=1), "effort: liveness makes its plan without a search"),
        (lambda: minidnn.plan(NET, "best", ram="1GiB", effort=1), "effort: with ram a policy plans several times"),
        (lambda: minidnn.frontier(NET, gpu="k40", effort=1), "effort: frontier makes many plans"),
        (lambda: minidnn.cards(NET, effort=1), "effort: cards makes many plans"),
        (
            lambda: minidnn.compare(NET, ["best"], device="reference", effort=1),
            "effort: a comparison that runs policies",
        ),
    ],
)
def test_where_nothing_is_looked_for_an_effort_is_refused(call, said):
    with pytest.raises(InvalidInput, match=said):
        call()
