"""Selective activation recomputation (Korthikanti, Casper, Lym, McAfee, Andersch, Shoeybi, Catanzaro: "Reducing
Activation Recomputation in Large Transformer Models", 2022, section 5).

The core of attention takes most bytes of a transformer's layer and little of its arithmetic: the product of queries and
keys, the softmax, its dropout, and the product with the values. These bytes grow with the square of the tokens. So only
the core runs again in backward, for the layer's first op that needs any of it. Everything else is kept.

The core is found by what ops read, not by names. It is the products of maps with one another, and what lies between two
of them: the ops that are computed from the one and lead to the other without a product with weights. Its inner tensors
are dropped. Its result is kept, which the next product with weights reads; so the last product need not run again.

A fused kernel is a core in one op, and has no inner tensors but a few bytes. The paper is older than these. Such a core
runs again whole, and its result is dropped, too.

The budget changes nothing.
"""

from __future__ import annotations

from collections import defaultdict

from minidnn.costs import Costs
from minidnn.memory.plan import Plan, in_place_sharing
from minidnn.memory.policies.shared.algorithms import Algorithms, choose
from minidnn.memory.policies.shared.lacking import Lacking
from minidnn.memory.policies.shared.recompute import Repeatable, by_segments, preserving, read_in_backward
from minidnn.program import PRODUCTS, Op, Program, Role, Tensor

FUSED = "attention"
FACTORS = PRODUCTS - {"convolution", "recurrent"}  # families whose ops multiply what they read


def selective(program: Program, costs: Costs, budget: int, algorithms: Algorithms = "m") -> Plan:
    """Attention's core is recomputed; all else is kept.

    Raises Lacking for a net without attention.
    """
    inner = _inner(program, _core(program))
    if not inner and program.forward < len(program.ops):
        raise Lacking(
            f"selective runs the core of attention again, and {program.name} has none: no two products of maps with "
            "one another, nor a fused one; recompute_cheap runs what is cheap of any net again"
        )
    share = preserving(program, in_place_sharing(program), inner)
    able = Repeatable(program, share)
    dropped = inner & able.maker.keys()
    segment = _cores(program, able, dropped)
    return Plan(by_segments(able, segment, dropped), algorithm=choose(program, costs, algorithms), share=share)


def _products_of_maps(program: Program) -> set[Op]:
    """The products of forward of which two factors are computed from the batch. All others have weights."""
    maps = {t for t in program.tensors if t.role is Role.INPUT}
    result: set[Op] = set()
    for op in program.ops[: program.forward]:
        factors = maps.intersection(op.reads)
        if factors:
            maps.update(op.writes)
        both = len(factors) > 1 or op.family == FUSED or len(op.reads) == 1  # both may be views of one tensor
        if op.family in FACTORS and factors and both:
            result.add(op)
    return result


def _core(program: Program) -> set[Op]:
    """The ops of attention's core: products of maps, and what lies between two of them."""
    forward, products = program.ops[: program.forward], _products_of_maps(program)
    behind: set[Tensor] = set()  # a product of maps, without one with weights in between
    after: set[Op] = set()
    for op in forward:
        if op in products or (op.family not in PRODUCTS and not behind.isdisjoint(op.reads)):
            behind.update(op.writes)
            after.add(op)
    ahead: set[Tensor] = set()  # of a product of maps, likewise
    result: set[Op] = set()
    for op in reversed(forward):
        if op in products or (op.family not in PRODUCTS and not ahead.isdisjoint(op.writes)):
            ahead.update(op.reads)
            if op in after:
                result.add(op)
    return result


def _inner(program: Program, core: set[Op]) -> set[Tensor]:
    """The tensors of the core that no other op of forward reads, and all that a fused one makes."""
    readers: dict[Tensor, list[Op]] = defaultdict(list)
    for op in program.ops[: program.forward]:
        for t in op.reads:
            readers[t].append(op)
    return {
        t for op in core for t in op.writes
        if op.family == FUSED or (readers[t] and core.issuperset(readers[t]))
    }  # fmt: skip


def _cores(program: Program, able: Repeatable, dropped: set[Tensor]) -> dict[Tensor, int]:
    """{dropped tensor that backward reads: the number of its core}. A core's ops read one another's results."""
    number: dict[Tensor, int] = {}
    for k, op in enumerate(program.ops[: program.forward]):
        if not dropped.isdisjoint(op.writes):
            known = [number[t] for t in op.reads if t in number]
            number |= dict.fromkeys(op.writes, min(known, default=k))
    return {t: number[t] for t in read_in_backward(program, dropped)}
