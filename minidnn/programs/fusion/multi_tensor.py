"""Small ops of one kind that lie apart in the program, as one op that does each of them. A GPU runs it by one launch,
for up to 80 weights. Only `cuda` and `reference` have such kernels.

updates:     the updates of weights move back to the last of a group, and so their gradients wait for it.
statistics:  the updates of BatchNorm's running statistics move back, too; the batch's statistics wait.
casts:       the casts of parameters to 16 bits move forward to the first of a group, and so the copies wait.

Waiting tensors take memory. Under every policy a step needs the bytes of all persistent tensors, and those of its
largest op. At most the part WAITING of these bytes waits for one op, so a budget grows by little. Never more than MOST
bytes
wait: a launch for more of them takes long beside its start. A large gradient never waits: it ends its group, as the
cast of a large weight begins one. Where no op lies between two others, nothing waits for them. That is so with
clipping, since all updates come last.

The results have the same bits as those of the ops apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from minidnn.program import MULTI_TENSOR, Member, MultiTensor, Op, Pass, Program, Tensor, nbytes

WAITING = 0.01
MOST = 16 << 20  # bytes
CASTS, STATISTICS = "cast.forward", "batch_norm.statistics"


def groups(program: Program) -> Iterator[tuple[tuple[Op, ...], Op, Op]]:
    """(several ops, the op that does each of them, which of them it replaces) for each group; the others go."""
    persistent = frozenset(program.persistent)
    most = min(int(WAITING * _least(program, persistent)), MOST)

    def to_last(kind: str) -> Iterator[tuple[Op, ...]]:
        return _back(program.ops, lambda op: op.kind == kind, lambda op: op.reads, persistent, most)

    def is_cast(op: Op) -> bool:
        return op.kind == CASTS and persistent.issuperset(op.reads)

    updates = dict.fromkeys(op.kind for op in program.ops if op.during is Pass.UPDATE and op.kind.endswith(".update"))
    for kind in (*updates, STATISTICS):
        for ops in to_last(kind):
            yield ops, joined(ops, ops[-1]), ops[-1]
    # to the first: back, reversed
    for ops in _back(program.ops[::-1], is_cast, lambda op: op.writes, persistent, most):
        yield ops[::-1], joined(ops[::-1], ops[-1]), ops[-1]


def _least(program: Program, persistent: frozenset[Tensor]) -> int:
    """Bytes that the program needs under any policy."""
    return nbytes(persistent) + max(
        (nbytes(t for t in op.tensors if t not in persistent) for op in program.ops), default=0
    )


def _back(
    ops: Sequence[Op],
    accepts: Callable[[Op], bool],
    waits: Callable[[Op], Iterable[Tensor]],
    persistent: frozenset[Tensor],
    most: int,
) -> Iterator[tuple[Op, ...]]:
    """Groups of wanted ops that may all move back to the last of them. At most `most` bytes wait for a group: of the
    tensors that `waits` gives for an op, those that are not persistent."""
    group: list[Op] = []
    waiting = 0  # bytes of the group's tensors
    between = False  # whether other ops lie behind the group's last one
    reads: set[Tensor] = set()
    writes: set[Tensor] = set()
    for op in (*ops, None):
        joins = op is not None and accepts(op)
        ends = op is None or not writes.isdisjoint(op.reads) or not (writes | reads).isdisjoint(op.writes)
        if group and (ends or (joins and between and waiting > most)):
            if len(group) > 1:
                yield tuple(group)
            group, waiting, reads, writes = [], 0, set(), set()
        between = not joins
        if op is not None and joins:
            group.append(op)
            waiting += nbytes(t for t in waits(op) if t not in persistent)
            reads.update(op.reads)
            writes.update(op.writes)


def joined(ops: Sequence[Op], at: Op) -> Op:
    """The op that does each of these, in place of the op `at`."""
    reads = tuple(dict.fromkeys(t for op in ops for t in op.reads))
    writes = tuple(dict.fromkeys(t for op in ops for t in op.writes))
    read, write = ({t: i for i, t in enumerate(of)} for of in (reads, writes))
    members = (
        Member(op.attrs, tuple(read[t] for t in op.reads), tuple(write[t] for t in op.writes), op.name, op.layer)
        for op in ops
    )
    return replace(
        at, name=f"{at.name}+{len(ops) - 1}", kind=at.kind + MULTI_TENSOR, reads=reads, writes=writes,
        attrs=MultiTensor(tuple(members)), inplace=(), flops=sum(op.flops for op in ops),
    )  # fmt: skip
