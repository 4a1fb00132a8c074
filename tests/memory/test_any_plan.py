"""Plans at random: whatever a policy or a file may say, it is refused or it is right. And the policies' own plans, on
programs at random: they are always right, under every budget from the smallest that a refusal names."""

from __future__ import annotations

import json
import random
from collections import defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minidnn.memory import offload_check
from minidnn.memory.budget import BudgetError
from minidnn.memory.lowering.lower import lower
from minidnn.memory.lowering.placement import place
from minidnn.memory.plan import OffloadInterval, Plan, Slot, complete, in_place_sharing
from minidnn.memory.planning import arrange
from minidnn.memory.policies import plan_file
from minidnn.memory.policies.plan_file import PlanError
from minidnn.memory.proof.verify import ScheduleError, verify
from minidnn.program import FORWARD
from tests.support.examples import examples
from tests.support.oracle import broken
from tests.support.policies import EVERY, PLANNED
from tests.support.programs import costs, forward_only, random_graph, wild_graph
from tests.support.slow import quick_are, usual_are


def any_plan(program, r: random.Random) -> Plan:
    """Mostly sensible: offload intervals between two uses, some into slots; runs again; bytes shared as it comes."""
    order = list(program.ops)
    forward = [op for op in order if op.during in FORWARD]
    for _ in range(r.choice([0, 0, 1, 3])):
        op = r.choice(forward if r.random() < 0.9 else program.ops)
        order.insert(r.randint(order.index(op) + 1, len(order)), op)
    if r.random() < 0.05:
        order.insert(r.randrange(len(order)), order.pop(r.randrange(len(order) - 1)))
    uses = defaultdict(list)
    for p, op in enumerate(order):
        for t in op.tensors:
            uses[t].append(p)
    slots = [Slot(f"slot {k}") for k in range(r.choice([1, 3, 9]))]
    movable = [t for t in program.tensors if t not in program.persistent or r.random() < 0.02]
    offloads = []
    for t in r.sample(movable, min(len(movable), r.choice([0, 1, 3, 8]))):
        k = r.randrange(len(uses[t]))
        lo, hi = uses[t][k] + 1, [*uses[t], len(order)][k + 1]
        if r.random() < 0.03:
            lo, hi = 0, len(order)
        if lo > hi:
            continue
        out, free, back, arrive = sorted(r.randint(lo, hi) for _ in range(4))
        if hi == len(order) or r.random() < 0.05:
            back = arrive = None
        early = r.choice([out, out, uses[t][0] + 1, None])
        offloads.append(OffloadInterval(t, early, free, back, arrive, r.choice([None, r.choice(slots)])))
    share = dict(in_place_sharing(program)) if r.random() < 0.8 else {}
    for _ in range(r.choice([0, 0, 0, 1, 2])):
        share[r.choice(movable)] = r.choice([r.choice(movable), r.choice(slots)])
    for p in r.sample(range(len(order)), r.choice([0, 0, 1, 3])):
        if pairs := [*order[p].inplace, *((r.choice(movable), t) for t in order[p].writes)]:
            read, write = r.choice(pairs)
            share[write, p] = read
    algorithm = {op: r.choice(costs().choices(op)).algorithm for op in program.ops}
    share |= {op: r.choice(slots) for op, a in algorithm.items() if a.workspace and r.random() < 0.2}
    hold = frozenset(t for t in movable if r.random() < r.choice([0, 0, 0, 0.2]))
    return Plan(tuple(order), tuple(offloads), algorithm, share, hold)


@pytest.mark.slow
def test_what_is_accepted_of_any_plans_is_right_and_what_is_refused_says_so():
    """No other exceptions than the two that speak of plans and schedules; and enough of each kind. No offload is blamed
    of a plan that is right."""
    r = random.Random(1)
    accepted = contradicted = refused = wrong = blamed = 0
    for _ in range(500):
        program = wild_graph(r.randrange(1 << 30), r.randint(2, 6))
        plan = any_plan(program, r)
        why = offload_check.wrong(program, plan)
        blamed += why is not None
        try:
            s = place(lower(program, complete(program, costs(), plan)))
        except ValueError:
            contradicted += 1
            continue
        try:
            verify(s)
        except ScheduleError:
            refused += 1
            wrong += broken(s) is not None
        else:
            accepted += 1
            assert broken(s) is None and why is None, why
    print(
        f"{accepted} right, {contradicted} contradict themselves, {refused} refused, "
        f"{wrong} of them by the oracle too; "
        f"{blamed} have a wrong offload interval"
    )
    assert min(accepted, contradicted, wrong, blamed) > 50


LONG = ["superneurons_on_demand", "best"]
OTHERS = [policy for policy in EVERY if policy not in LONG]


@pytest.mark.parametrize(
    "policy", [*quick_are(["vdnn_all:m", "vdnn_dyn", "superneurons", "layrub:m"], OTHERS), *usual_are([], LONG)]
)
@given(st.integers(0, 1 << 30), st.integers(2, 14), st.sampled_from([wild_graph, random_graph]), st.booleans())
@examples(3)
def test_every_policy_keeps_the_budget_that_its_refusal_names_and_any_larger_one(policy, seed, layers, graph, both):
    program = graph(seed, layers)
    programs = [program, forward_only(program)] if both else [program]
    whole = arrange(programs, policy, costs())
    assert broken(whole.schedules["TRAIN"]) is None
    with pytest.raises(BudgetError) as refused:
        arrange(programs, policy, costs(), budget=0)
    smallest = refused.value.smallest
    assert smallest <= whole.arena
    for budget in (smallest, smallest + (whole.arena - smallest) // 3, whole.arena):
        kept = arrange(programs, policy, costs(), budget)
        assert kept.arena <= budget
        assert broken(kept.schedules["TRAIN"]) is None
    try:
        assert arrange(programs, policy, costs(), smallest - 1).arena < smallest
    except BudgetError as error:
        assert error.smallest == smallest


def edited(described: dict, r: random.Random) -> None:
    """A hand's change to one program of a plan file: a line gone or twice, a point elsewhere, another's name."""
    field = r.choice(["order", "offloads", "offloads", "share", "algorithm", "hold"])
    value = described[field]
    names, ops = list(described["tensors"]), list(described["ops"])
    if field == "order":
        i, j = r.randrange(len(value)), r.randrange(len(value))
        r.choice([lambda: value.pop(i), lambda: value.insert(j, value[i]), lambda: value.insert(j, value.pop(i))])()
    elif field == "offloads" and value and r.random() < 0.3:
        r.choice([lambda: value.pop(r.randrange(len(value))), lambda: value.append(r.choice(value))])()
    elif field == "offloads" and value:
        offload = r.choice(value)
        point = r.choice(["tensor", *plan_file.POINTS])
        offload[point] = r.choice(names) if point == "tensor" else r.choice([*described["order"], "end", None])
    elif field == "share":
        stay = r.choice(["", f" at {r.choice(described['order'])}"])
        value[r.choice(names) + stay] = r.choice([r.choice(names), {"slot": "s", "nbytes": r.choice([0, 5, -5])}])
    elif field == "algorithm":
        r.choice(
            [lambda: value.pop(r.choice(ops)), lambda: value.update({r.choice(ops): ["fast", r.choice([0, 9])]})]
        )()
    else:
        value.append(r.choice(names))


@pytest.mark.slow
def test_a_plan_file_that_was_edited_at_random_is_refused_as_such_or_right(tmp_path):
    r = random.Random(3)
    path = tmp_path / "it.plan"
    refused = right = 0
    for k in range(200):
        program = wild_graph(r.randrange(1 << 30), 4)
        plan_file.save(path, arrange([program], PLANNED[k % len(PLANNED)], costs()), costs())
        content = json.loads(path.read_text())
        for _ in range(r.choice([1, 1, 3])):
            edited(content["programs"]["TRAIN"], r)
        path.write_text(json.dumps(content))
        try:
            s = arrange([program], str(path), costs()).schedules["TRAIN"]
        except PlanError:
            refused += 1
        else:
            right += 1
            assert broken(s) is None
    print(f"{refused} refused, {right} right")
    assert min(refused, right) > 20
