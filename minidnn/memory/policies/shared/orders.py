"""Orders of executions that a policy makes op by op: which ops may run again, and which bytes results then take.

The policies of recompute.py decide by layers and by units that share bytes. The policies that use this module decide by
single executions. The order alone decides what works in place: an execution writes over a tensor if nothing reads it
before it is made again. So a tensor may lie in place in forward and not where it runs again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set

from minidnn.costs import Costs
from minidnn.memory.joint.index import Index, repeatable
from minidnn.memory.plan import Point, Share
from minidnn.program import Op, Program, Tensor


def makers(program: Program, costs: Costs) -> dict[Tensor, Op]:
    """{tensor: the op of forward that may run again for it}"""
    return {t: program.ops[p] for t, p in repeatable(Index(program, costs)).items()}


def last_uses(ops: Sequence[Op]) -> dict[Tensor, Point]:
    """{tensor: the last execution that reads or writes it}"""
    return {t: p for p, op in enumerate(ops) for t in op.tensors}


def in_place(program: Program, order: Sequence[Op]) -> Share:
    """{(tensor, execution that writes it): the tensor whose bytes it takes}, wherever the kernel permits it and nothing
    reads the overwritten value later."""
    fixed, share = program.fixed, Share()
    needed: set[Tensor] = set()  # tensors whose values at this point are read later
    for p in reversed(range(len(order))):
        op = order[p]
        taken: set[Tensor] = set()
        for read, write in op.inplace:
            free = read not in needed and read not in fixed and write not in fixed and write not in op.reads
            if free and (write, p) not in share and read not in taken and write.nbytes <= read.nbytes:
                share[write, p] = read
                taken.add(read)
        needed.difference_update(t for t in op.writes if t not in op.reads)
        needed.update(op.reads)
    return share


def lineage(tensors: Iterable[Tensor], make: Mapping[Tensor, Op], gone: Callable[[Tensor], bool]) -> list[Op]:
    """The ops that bring the wanted tensors back, each behind the makers of its reads. gone: whether a tensor of `make`
    is not on the device; all others are."""
    result: dict[Op, None] = {}
    stack = [(make[t], False) for t in tensors if gone(t)]
    while stack:
        op, made = stack.pop()
        if made:
            result[op] = None
        elif op not in result:
            stack.append((op, True))
            stack += [(make[t], False) for t in op.reads if t in make and gone(t) and make[t] not in result]
    return list(result)


def on_demand(program: Program, make: Mapping[Tensor, Op], dropped: Set[Tensor]) -> tuple[Op, ...]:
    """The order of a step in which these tensors are dropped behind forward, and made again where an op reads them.

    Then they stay until their last use. Tensors that are made on the way to them, and not used later, are freed at
    once.
    """
    last, order = last_uses(program.ops), list(program.ops[: program.forward])
    there: set[Tensor] = set()
    for p, op in enumerate(program.ops[program.forward :], program.forward):

        def gone(t: Tensor, p: Point = p) -> bool:
            return last[t] < p or (t in dropped and t not in there)

        runs = lineage((t for t in op.reads if t in dropped), make, gone)
        there.update(t for run in runs for t in run.writes if last[t] >= p)
        order += [*runs, op]
    return tuple(order)
