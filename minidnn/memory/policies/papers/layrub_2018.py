"""Layrub as its authors' code has it, where `layrub` (layrub.py) goes further than that code.

  layrub_2018_intra: a gradient takes its activation's bytes only between the layer types of the code's two lists
  layrub_2018_inter: the inputs of forks take turns in two blocks of their own, so they do not leave room to other maps
  layrub_2018:       both; the gradients of a fork's branches lie in a block for each branch, in turns of all forks

A gradient that takes no activation's bytes has its own, while it lives. The paper's figures are those of this code, of
which its ResNets' 759.5 MiB is the exact one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection

from minidnn.costs import Costs
from minidnn.memory.plan import Plan, Share, in_place_sharing
from minidnn.memory.policies.papers.layrub import intra, over_activations
from minidnn.memory.policies.papers.layrub_migration import MAPS, is_attached, migrating, travels, writers
from minidnn.memory.policies.shared.algorithms import Algorithms, choose
from minidnn.program import FORWARD, Op, Program, Role, Tensor

# The code's lists: the layers below which a gradient may take an activation's bytes, and those that make the activation
BELOW = frozenset({"softmax_loss", "inner_product", "pooling", "convolution", "concat", "gradient", "eltwise"})
MAKERS = frozenset({"inner_product", "pooling", "convolution", "concat", "eltwise"})


def layrub_2018_intra(program: Program, costs: Costs, budget: int, algorithms: Algorithms = "m") -> Plan:
    """layrub_intra as in its authors' code."""
    share = over_activations(program, in_place_sharing(program), held=True, listed=listed(program, BELOW, MAKERS))
    return intra(choose(program, costs, algorithms), program, share)


def layrub_2018_inter(program: Program, costs: Costs, budget: int, algorithms: Algorithms = "m") -> Plan:
    """layrub_inter as in its authors' code."""
    return migrating(program, costs, algorithms, in_place_sharing(program), _pools(program, {}, {}), promptly=True)


def layrub_2018(program: Program, costs: Costs, budget: int, algorithms: Algorithms = "m") -> Plan:
    """layrub as in its authors' code."""
    share, accepts = in_place_sharing(program), listed(program, BELOW, MAKERS)
    taken = over_activations(program, share, held=True, listed=accepts)
    share = over_activations(program, share, held=False, listed=accepts)
    return migrating(program, costs, algorithms, share, _pools(program, taken, _branches(program)), promptly=True)


def listed(program: Program, below: Collection[str], makers: Collection[str]) -> Callable[[Op, Tensor], bool]:
    """Whether lists of families accept the op that writes a gradient, and the maker of the activation whose bytes this
    would take. The maker is a main layer: the layers attached to it work in its bytes."""
    writer = writers(program)

    def accepts(op: Op, x: Tensor) -> bool:
        while x in writer and is_attached(writer[x]):
            maps = [t for t in writer[x].reads if t.role in MAPS]
            if not maps:
                return False
            x = maps[0]
        return op.family in below and x in writer and writer[x].family in makers

    return accepts


def _pools(program: Program, share: Share, branch: dict[Tensor, int]) -> Callable[[Tensor], str | None]:
    """Where a buffer lies, by its first tensor: in blocks of forks, of branches' gradients, of other maps, or of what
    the layers of one family keep. Gradients that are no branch's have bytes of their own."""
    writer = writers(program)
    read: dict[Tensor, list[str]] = defaultdict(list)
    for op in program.ops:
        if op.during in FORWARD:
            for t in op.reads:
                if t.role is Role.ACTIVATION and op.layer not in read[t]:
                    read[t].append(op.layer)

    def pool(t: Tensor) -> str | None:
        if t in branch:
            return f"branch {branch[t]}"
        if t.role is Role.GRADIENT and t in share:
            x = share[t]
            return pool(x) if isinstance(x, Tensor) else None
        if t.role in MAPS:
            return "fork" if len(read[t]) > 1 else "block"
        return f"kept by {writer[t].family}" if t.role is Role.EXTRA and travels(t, writer[t]) else None

    return pool


def _branches(program: Program) -> dict[Tensor, int]:
    """{gradient of a fork's branch: the number of the branch}, of the branches that every fork has."""
    added: dict[Tensor, list[Tensor]] = {}  # {sum: the gradients of which it is the sum}
    inner: set[Tensor] = set()
    for op in program.ops:
        if op.kind == "gradient.add" and op.writes[0].role is Role.GRADIENT:  # not of weights that layers share
            terms = [x for t in op.reads for x in added.get(t, [t])]
            inner.update(t for t in op.reads if t in added)
            added[op.writes[0]] = terms
    forks = [terms for total, terms in added.items() if total not in inner]
    shared = min(map(len, forks), default=0)
    return {t: k for terms in forks for k, t in enumerate(terms[:shared])}
