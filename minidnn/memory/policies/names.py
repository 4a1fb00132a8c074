"""The names of policies: the tables of all there are, and what a name means.

    NAME[:ALGORITHMS][@N]   or   FILE.plan

NAME is a policy of the tables below. ALGORITHMS is "f" (the fastest that fit the budget, the default), "m"
(memory-optimal) or "p" (performance-optimal). N is the number of parts of the batch in which large ops run
(shared/in_parts.py). FILE.plan is a saved plan, which is used as it is (plan_file.py).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from minidnn.costs import Costs
from minidnn.errors import BadInput, near
from minidnn.memory.effort import asked
from minidnn.memory.lowering.host import host_room
from minidnn.memory.plan import Plan, Policy
from minidnn.memory.policies import plan_file
from minidnn.memory.policies.ours.best import best, staying
from minidnn.memory.policies.ours.best_longer import longer
from minidnn.memory.policies.ours.liveness import liveness
from minidnn.memory.policies.ours.surer import surer
from minidnn.memory.policies.papers import poet as by_poet
from minidnn.memory.policies.papers.accudnn import accudnn
from minidnn.memory.policies.papers.baseline import baseline
from minidnn.memory.policies.papers.baseline_caffe import baseline_caffe
from minidnn.memory.policies.papers.baseline_sum import baseline_sum
from minidnn.memory.policies.papers.capuchin import capuchin
from minidnn.memory.policies.papers.checkmate import checkmate
from minidnn.memory.policies.papers.checkpoint_blocks import checkpoint_blocks
from minidnn.memory.policies.papers.dtr import dtr
from minidnn.memory.policies.papers.flashneuron import flashneuron
from minidnn.memory.policies.papers.l2l import l2l
from minidnn.memory.policies.papers.layrub import layrub, layrub_inter, layrub_intra
from minidnn.memory.policies.papers.layrub_2018 import layrub_2018, layrub_2018_inter, layrub_2018_intra
from minidnn.memory.policies.papers.monet import monet
from minidnn.memory.policies.papers.poet import poet
from minidnn.memory.policies.papers.recompute_all import recompute_all
from minidnn.memory.policies.papers.recompute_cheap import recompute_cheap, recompute_cheap_within
from minidnn.memory.policies.papers.selective import selective
from minidnn.memory.policies.papers.sqrt_n import sqrt_n, sqrt_n_within
from minidnn.memory.policies.papers.superneurons import superneurons, superneurons_on_demand
from minidnn.memory.policies.papers.superneurons_steps import STEPS
from minidnn.memory.policies.papers.vdnn import vdnn_all, vdnn_conv, vdnn_dyn
from minidnn.memory.policies.papers.vdnn_pp import vdnn_pp, vdnn_pp_alt, vdnn_pp_conv
from minidnn.memory.policies.papers.zero_offload import zero_offload
from minidnn.memory.policies.shared.algorithms import ATTEMPTS, fastest_that_fit
from minidnn.memory.policies.shared.in_parts import in_parts
from minidnn.memory.policies.users import checked, is_own
from minidnn.program import Program

# Policies that take `algorithms` (shared/algorithms.py); those in CHOOSING choose algorithms themselves.
POLICIES: dict[str, Callable[..., Plan]] = {
    "baseline": baseline,
    "baseline_sum": baseline_sum,
    "baseline_caffe": baseline_caffe,
    "liveness": liveness,
    "vdnn_all": vdnn_all,
    "vdnn_conv": vdnn_conv,
    "vdnn_pp": vdnn_pp,
    "vdnn_pp_conv": vdnn_pp_conv,
    "vdnn_pp_alt": vdnn_pp_alt,
    **STEPS,
    "layrub": layrub,
    "layrub_intra": layrub_intra,
    "layrub_inter": layrub_inter,
    "layrub_2018": layrub_2018,
    "layrub_2018_intra": layrub_2018_intra,
    "layrub_2018_inter": layrub_2018_inter,
    "accudnn": accudnn,
    "flashneuron": flashneuron,
    "l2l": l2l,
    "sqrt_n": sqrt_n,
    "checkpoint_blocks": checkpoint_blocks,
    "selective": selective,
    "recompute_all": recompute_all,
    "recompute_cheap": recompute_cheap,
    "zero_offload": zero_offload,
    "capuchin": capuchin,
    "dtr": dtr,
    "checkmate": checkmate,
}
# Policies of POLICIES that stop at a budget, if one is named; without one, each has its paper's plan, as in POLICIES.
STOPPING: dict[str, Callable[..., Plan]] = {"sqrt_n": sqrt_n_within, "recompute_cheap": recompute_cheap_within}
SOME_NETS = frozenset({"checkpoint_blocks", "selective"})  # policies that refuse other nets (shared/lacking.py)
NEAR = 1.01  # with these, ":f" looks for no mixture of algorithms that could save only a hundredth of a step
FEW = {"checkmate": 2}  # attempts of ":f" where each solves programs for seconds; and it looks no closer than NEAR
DEFAULT = "liveness"  # the policy if none is named: the fastest of those that need no copies
SEARCHING = frozenset({"best"})  # policies that look for a quicker plan as long as they are asked to (memory/effort.py)
BUDGETED = "best"  # the policy if none is named, but a budget is
AT = "@"  # before the number of parts in which large ops run
SUFFIXES = {"f": "the fastest that fit the budget", "m": "memory-optimal", "p": "performance-optimal"}
STAYING = "liveness", "recompute_cheap", "sqrt_n", "recompute_all"  # policies that copy nothing but inputs and outputs
LONG = 1000  # ops
QUICK = "capuchin:p", "dtr:p", "sqrt_n:p"  # policies whose plans are starts where `best` looks longer
OTHERS = *STAYING, "vdnn_pp", "accudnn", "superneurons", "layrub"


def _best(program: Program, costs: Costs, budget: int, parts: bool = True) -> Plan:
    """Copies, recomputation, algorithms, parts: by cost."""
    room = host_room(program, costs)
    stay = room is not None and room <= 0  # tensors have nowhere to go
    others = [find(name, budgeted=True) for name in (STAYING if stay else OTHERS)]
    others += [by_poet.candidate] if not stay and by_poet.quick(program, costs) else []
    plan = best(program, costs, budget, others, parts)
    if (effort := asked()) is not None:
        starts = QUICK if len(program.ops) <= LONG else ()  # else these policies plan for seconds
        plan = longer(program, costs, budget, plan, parts, [find(name, budgeted=True) for name in starts], effort)
    if budget:
        still = [find(name, budgeted=True) for name in STAYING]
        plan = surer(program, costs, plan, partial(staying, program, costs, budget, still, parts))
    return replace(plan, asap=True)


CHOOSING: dict[str, Policy] = {
    "best": _best, "vdnn_dyn": vdnn_dyn, "superneurons": superneurons,
    "superneurons_on_demand": superneurons_on_demand, "poet": poet, "monet": monet,
}  # fmt: skip
PARTING: dict[str, Policy] = {"best": partial(_best, parts=False)}  # that choose parts: what "@N" takes of them


class NoSuchPolicy(BadInput, KeyError):
    """No policy has that name; the message has the nearest name, or lists all."""


def names() -> list[str]:
    """The names of all policies."""
    return [*POLICIES, *CHOOSING]


def base(name: str) -> str:
    """The name without its suffixes: as in the tables, if it is no file's."""
    return name.partition(AT)[0].partition(":")[0]


def summary(name: str) -> str:
    """What the policy of this name does: the first line of its docstring, without the full stop, or nothing."""
    decide = (POLICIES | CHOOSING)[name]
    while isinstance(decide, partial):
        decide = decide.func
    return (inspect.getdoc(decide) or "").partition("\n")[0].removesuffix(".")


def is_users(name: str) -> bool:
    """Whether the policy of that name is the user's: a function that they have entered in a table, or a plan file."""
    decide = (POLICIES | CHOOSING).get(base(name))
    return name.endswith(plan_file.SUFFIX) or (decide is not None and is_own(decide))


def parts(name: str) -> int | None:
    """In how many parts of the batch large ops run under this policy; 1: as a whole; None: as many as it chooses."""
    policy, _, count = name.partition(AT)
    if name.endswith(plan_file.SUFFIX):
        return 1
    if count:
        return int(count)
    return None if policy in PARTING else 1


def find(name: str, budgeted: bool = False) -> Policy:
    """The policy of that name. Raises NoSuchPolicy, with a hint or with all names, and PlanError or OSError for a file.

    budgeted: whether a user has named a budget; False: the budget is the device's memory, at which STOPPING do not stop
    """
    if name.endswith(plan_file.SUFFIX):
        return plan_file.load(name)
    policy, at, count = name.partition(AT)
    if not at:
        return _whole(policy, budgeted)
    if not count.isdecimal() or int(count) < 1:
        raise NoSuchPolicy(f"{name}: after {AT} comes a number of parts, such as {policy}{AT}4")
    return in_parts(int(count), PARTING.get(policy) or find(policy, budgeted))


def _whole(name: str, budgeted: bool) -> Policy:
    """The policy NAME[:ALGORITHMS]."""
    policy, _, algorithms = name.partition(":")
    if policy in CHOOSING:
        if algorithms:
            raise NoSuchPolicy(f"{policy} chooses its algorithms itself: leave out ':{algorithms}'")
        return _checked(policy, CHOOSING[policy])
    if policy not in POLICIES:
        hint = near(policy, names()) or f"; there are {', '.join(names())}, and files that end in {plan_file.SUFFIX}"
        raise NoSuchPolicy(f"there is no policy {policy!r}{hint}")
    if algorithms not in ("", *SUFFIXES):
        raise NoSuchPolicy(f"{name!r}: after the colon comes {', '.join(f'{k} ({v})' for k, v in SUFFIXES.items())}")
    stops = budgeted and policy in STOPPING
    decide = _checked(policy, STOPPING[policy] if stops else POLICIES[policy])
    if algorithms in ("", "f"):
        enough = NEAR if stops or policy in FEW else 0.0
        return partial(fastest_that_fit, decide, enough=enough, attempts=FEW.get(policy, ATTEMPTS))
    return partial(decide, algorithms=algorithms)


def _checked(name: str, decide: Callable[..., Plan]) -> Callable[..., Plan]:
    return checked(name, decide) if is_own(decide) else decide
