"""A policy of the user's own: what is wrong with it is told as its author's, with policy, offload interval and op."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import pairwise

import pytest

from minidnn.cli.main import main
from minidnn.costs import profile
from minidnn.memory.offload_check import wrong
from minidnn.memory.plan import OffloadInterval, Plan
from minidnn.memory.planning import arrange, unproved
from minidnn.memory.policies import CHOOSING, POLICIES, find, names
from minidnn.memory.policies.users import PolicyError
from minidnn.program import Role
from minidnn.programs.build import programs
from minidnn.zoo import load
from tests.support.paths import NET_FILES
from tests.support.policies import EVERY
from tests.support.texts import NET

TITAN = profile("titan_x")


def lowered(net):
    """The TRAIN program of a net of tests/support/nets."""
    return programs(load(NET_FILES / f"{net}.yaml"), None, ("TRAIN",))["TRAIN"]


def right(program) -> OffloadInterval:
    """An offload interval that can be: of a map that nothing reads for a while, from its last reader to the next
    one."""
    for tensor in (t for t in program.tensors if t.role is Role.ACTIVATION):
        reads = [p for p, op in enumerate(program.ops) if tensor in op.reads]
        for out, arrive in pairwise(reads):
            if arrive - out >= 4:
                return OffloadInterval(tensor, out, out + 1, arrive - 2, arrive)
    raise AssertionError("the program has no such map")


WRONG = {  # {what is done to the offload interval: what is said of it}
    "out before it exists": (
        lambda x, p: replace(x, offload_at=0),
        r"does not exist before \S+ \(point \d+\) writes it",
    ),
    "free before it exists": (lambda x, p: replace(x, offload_at=0, free_at=0), "does not exist before"),
    "out after free": (
        lambda x, p: replace(x, offload_at=x.free_at + 1),
        r"copied out at \d+, after its bytes are free",
    ),
    "back before free": (
        lambda x, p: replace(x, prefetch_at=x.free_at - 1),
        r"comes back at \d+, before its bytes are free",
    ),
    "arrive before back": (
        lambda x, p: replace(x, prefetch_at=x.needed_at, needed_at=x.needed_at - 1),
        "before the copy back at",
    ),
    "back after the read": (
        lambda x, p: replace(x, prefetch_at=x.needed_at + 1, needed_at=x.needed_at + 1),
        "before it is back",
    ),
    "arrive after the read": (
        lambda x, p: replace(x, needed_at=x.needed_at + 1),
        r"\(point \d+\) reads it before it is back",
    ),
    "never back": (lambda x, p: replace(x, prefetch_at=None, needed_at=None), r"\(point \d+\) reads it later"),
    "never out": (lambda x, p: replace(x, offload_at=None), "offload_at is None, but the host has no copy of it"),
    "no arrival": (lambda x, p: replace(x, needed_at=None), "prefetch_at and needed_at go together"),
    "not freed": (lambda x, p: replace(x, free_at=None), "free_at is None, but it is not on the host"),
    "before the step": (
        lambda x, p: replace(x, offload_at=-1, free_at=-1),
        "offload_at is no point: points are whole numbers from 0",
    ),
    "beyond the step": (lambda x, p: replace(x, prefetch_at=10**6, needed_at=10**6), "prefetch_at is no point"),
    "between points": (lambda x, p: replace(x, offload_at=x.offload_at + 0.5), "offload_at is no point"),
    "another's tensor": (lambda x, p: replace(x, tensor=replace(x.tensor, name="other")), "has no such tensor"),
    "a lost weight": (lambda x, p: OffloadInterval(p.persistent[0], 0, 1, None, None), "so it must come back"),
    "a late input": (
        lambda x, p: OffloadInterval(p.inputs[0], None, None, 3, 3),
        r"\(point \d+\) reads it before it is back",
    ),
    "an absent input": (lambda x, p: OffloadInterval(p.inputs[0], None, None, None, None), "never comes to the device"),
}


@pytest.fixture
def own(monkeypatch):
    """Enters a function that makes a plan of a program as the policy "mine"."""

    def enter(plan):
        monkeypatch.setitem(POLICIES, "mine", lambda program, costs, budget, algorithms="m": plan(program))

    return enter


@pytest.mark.parametrize("change", WRONG)
@pytest.mark.parametrize("name", ["mine", "mine:m"])
def test_a_wrong_offload_is_named_with_what_is_wrong(own, change, name):
    alter, says = WRONG[change]
    program = lowered("chain")
    offload = alter(right(program), program)
    own(lambda program: Plan(offloads=(offload,)))
    points = f"offload_at={offload.offload_at}, free_at={offload.free_at}, prefetch_at={offload.prefetch_at}, "
    told = f"policy mine: TRAIN: OffloadInterval({offload.tensor.name}, {points}"
    for plan in (arrange, unproved):
        with pytest.raises(PolicyError, match=f"^{re.escape(told)}.*{says}"):
            plan([program], name, TITAN, 1 << 30)


def test_the_offload_that_they_were_made_of_is_right(own):
    own(lambda program: Plan(offloads=(right(program),)))
    assert arrange([lowered("chain")], "mine:m", TITAN).arena > 0


OTHERWISE = {  # {plan: what is said of it}
    "twice": (lambda p: Plan(offloads=(right(p),) * 2), "the offload interval before it brings the tensor back at"),
    "after an offload interval for good": (
        lambda p: Plan(
            offloads=(
                replace(right(p), prefetch_at=None, needed_at=None),
                replace(right(p), free_at=right(p).free_at + 1),
            )
        ),
        "reads it later",
    ),
    "held": (lambda p: Plan(offloads=(right(p),), hold=frozenset(p.tensors)), "it is in hold, too"),
    "no interval": (
        lambda p: Plan(offloads=(None,)),
        "among its offload intervals is None, which is no OffloadInterval",
    ),
    "no plan": (lambda p: [], "it returned list instead of a Plan"),
    "no op": (lambda p: Plan(order=p.ops[1:]), "the plan does not hold: .* reads .*, which is not on the device then"),
    "backwards": (lambda p: Plan(order=p.ops[::-1]), "the plan does not hold: "),
    "words": (lambda p: Plan(order=("a", "b")), "the plan does not hold: 'str' object has no attribute 'reads'"),
    "what is read later": (lambda p: Plan(share={p.ops[-1].writes[0]: p.persistent[0]}), "the plan does not hold: "),
    "an error": (lambda p: {}["far"], r"tests/memory/policies/test_users\.py:\d+: KeyError: 'far'"),
}


@pytest.mark.parametrize("what", OTHERWISE)
def test_whatever_else_is_wrong_is_the_author_s_too(own, what):
    plan, says = OTHERWISE[what]
    own(plan)
    with pytest.raises(PolicyError, match=f"^policy mine(:m)?: .*{says}"):
        arrange([lowered("chain")], "mine:m", TITAN)


def test_a_policy_that_takes_other_arguments(monkeypatch):
    monkeypatch.setitem(CHOOSING, "mine", lambda program: Plan())
    with pytest.raises(PolicyError, match=r"^policy mine: TypeError: .*takes 1 positional argument but 3 were given$"):
        arrange([lowered("chain")], "mine", TITAN)


@pytest.mark.parametrize("verb", ["plan", "compare", "time", "tune", "search --max batch"])
def test_commands_end_as_for_bad_input(own, verb, tmp_path, own_cache, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.yaml").write_text(NET)
    own(lambda program: Plan(offloads=(replace(right(program), prefetch_at=None, needed_at=None),)))
    option = "--policies" if verb in ("compare", "frontier") else "--policy"
    assert (
        main(
            [*verb.split(), "net.yaml", "--gpu", "k40", option, "mine", "--budget", "1GiB"][
                : -2 if verb == "frontier" else None
            ]
        )
        == 2
    )
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.startswith("minidnn: policy mine: TRAIN: OffloadInterval(") and said.endswith(" reads it later")


@pytest.mark.parametrize("net", ["chain", "inception"])
def test_no_offload_of_our_policies_is_blamed(net):
    program = lowered(net)
    whole = sum(t.nbytes for t in program.tensors)
    for name in set(EVERY) - {"best"}:  # tests/memory/test_any_plan.py has plans of any kind
        for budget in (0, whole // 4, whole):
            assert wrong(program, find(name, True)(program, TITAN, budget)) is None, (name, budget)
    assert len(names()) > 20


def test_a_tensor_does_not_come_back_to_be_overwritten():
    program = lowered("residual")
    gradient = next(t for t in program.persistent if t.role is Role.PARAM_GRADIENT)
    made = next(p for p, op in enumerate(program.ops) if gradient in op.writes)
    plan = Plan(host_resident=frozenset([gradient]), offloads=(OffloadInterval(gradient, None, None, made - 1, made),))
    assert f"{program.ops[made].name} (point {made}) overwrites it before anything reads it" in wrong(program, plan)
