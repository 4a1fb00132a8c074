"""The facts that joint planning needs of a program and a device's costs, computed once: uses, makers, gaps, choices."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from minidnn.costs import Choice, Costs
from minidnn.costs.net import unhindered
from minidnn.memory.lowering.host import host_room, place
from minidnn.memory.plan import Point
from minidnn.program import Op, Pass, Program, Role, Tensor

# ops: in longer programs where a persistent tensor lives is no decision, and what lives on the host is away unless it
# is used
LONG = 4000
SMALL = 2000  # tensors this many times smaller than the largest are mostly not worth a decision


@dataclass(frozen=True, eq=False)
class Gap:
    """The ops between two neighbouring uses of a tensor: [last + 1, use). An Evaluator has one before the first
    use, too, with `last` -1, and one behind the last, whose `use` is the number of ops."""

    tensor: Tensor
    last: Point  # the op that uses it before
    use: Point  # the op that uses it next
    crosses: bool  # whether it is the tensor's way from forward to backward


class Index:
    """The uses, makers and durations of a program's ops. Points are positions in `program.ops`.

    given:   the costs of the device
    costs:   those of ops and copies. Communications between ranks run beside these, and take no time here
    net:     for each op the seconds of its communication, or 0
    drag:    seconds of an op's work that a second of a communication takes (costs.net_drag)
    forward: number of ops before backward
    uses:    {tensor that is not persistent: the ops that read or write it}
    writers: {tensor: the ops that write it}
    maker:   {tensor: the op of forward that makes it, and may do so again}
    inputs:  tensors that come from the host within the step: inputs and host-resident ones
    arrives: {input whose first use reads it: the op of that use}. Others are written first
    gaps:    those of the tensors that are worth a decision: not persistent, not very small, written at most once
    small:   a tensor this many times smaller than the largest is very small
    copies:  whether tensors may leave for the host. If not, those that came from there may still be dropped, and come
             again
    free:    host-resident tensors that may live on the device instead
    host_room: host bytes left for offloaded tensors, and for tensors of `free`; None: no limit
    choices: for each op its algorithms with less time for more workspace; the leanest first
    together: {an op that is a part of another: all parts of that one}; they have one algorithm
    """

    def __init__(
        self,
        program: Program,
        costs: Costs,
        small: int = SMALL,
        copies: bool = True,
        free: frozenset[Tensor] = frozenset(),
    ) -> None:
        ops, self.given = program.ops, costs
        self.free, self.host_room = free, host_room(program, costs, free)
        self.ops = ops
        self.net = [costs.choices(op)[0].seconds if op.on_net else 0.0 for op in ops]
        self.drag = costs.net_drag
        costs = unhindered(costs)
        self.program, self.costs, self.small = program, costs, small
        self.copies = copies and (self.host_room is None or self.host_room > 0)
        self.forward = program.forward
        self.persistent = frozenset(program.persistent)
        self.inputs = tuple(t for t in (*program.inputs, *program.host_resident) if t not in self.persistent)
        self.uses: dict[Tensor, list[Point]] = defaultdict(list)
        self.writers: dict[Tensor, list[Point]] = defaultdict(list)
        for p, op in enumerate(ops):
            for t in op.tensors:
                if t not in self.persistent:
                    self.uses[t].append(p)
            for t in op.writes:
                self.writers[t].append(p)
        firsts = {t: self.uses[t][0] for t in self.inputs if t in self.uses}
        reads = {p: frozenset(ops[p].reads) for p in set(firsts.values())}
        self.arrives = {t: p for t, p in firsts.items() if t in reads[p]}
        self.maker = self._makers()
        self.gaps = self._gaps()
        self.choices = [fronts(costs.choices(op)) for op in ops]
        self.together = _together(ops)

    def place(self, tensor: Tensor) -> int:
        """Bytes of the host that a tensor takes only if it travels."""
        return 0 if tensor in self.program.fixed else place(tensor, self.costs)

    def may_offload(self, tensor: Tensor) -> bool:
        """Whether a tensor that is not persistent may come from the host between two uses."""
        return self.copies or tensor in self.inputs

    def least(self) -> float:
        """A lower bound on the seconds of a step, whatever its bytes: each communication comes after the ops that write
        its reads, and before the ops that read its writes."""
        done: dict[Tensor, float] = {}
        compute = net = 0.0
        for op, choices, seconds in zip(self.ops, self.choices, self.net, strict=True):
            if op.on_net:
                net = max([net, *(done[t] for t in op.reads if t in done)]) + seconds
            else:
                compute = max([compute, *(done[t] for t in op.reads if t in done)]) + choices[-1].seconds
            done |= dict.fromkeys(op.writes, net if op.on_net else compute)
        return max(compute, net)

    def _makers(self) -> dict[Tensor, Point]:
        result: dict[Tensor, Point] = {}
        for p, op in enumerate(self.ops[: self.forward]):
            if not op.on_net and not any(t in op.reads or t in self.persistent for t in op.writes):
                result |= dict.fromkeys(op.writes, p)
        return result

    def _gaps(self) -> list[Gap]:
        result, worth = [], large(self)
        for t, uses in self.uses.items():
            if t in worth:
                result += [
                    Gap(t, p, q, p < self.forward <= q)
                    for p, q in pairwise(uses)
                    if q > p + 1 or any(read == t for read, _ in self.ops[p].inplace)
                ]
        return result


def shortest(program: Program, costs: Costs) -> float:
    """Seconds of all ops but communications, each with its fastest algorithm: no plan's step takes less."""
    return sum(min(c.seconds for c in costs.choices(op)) for op in program.ops if not op.on_net)


def _together(ops: Sequence[Op]) -> dict[Point, list[Point]]:
    """{a part of an op (memory/parts/): all its parts}. They are equally large, so their choices are the same."""
    parts: dict[Op, list[Point]] = defaultdict(list)
    for p, op in enumerate(ops):
        if op.part is not None:
            parts[op.part.of].append(p)
    return {p: points for points in parts.values() for p in points}


def fronts(choices: tuple[Choice, ...]) -> list[Choice]:
    """The choices that no other beats in both seconds and workspace, by rising workspace and falling seconds."""
    result: list[Choice] = []
    for c in sorted(choices, key=lambda c: (c.algorithm.workspace, c.seconds)):
        if not result or c.seconds < result[-1].seconds:
            result.append(c)
    return result


def overwrites(index: Index, p: Point) -> list[tuple[Tensor, Tensor]]:
    """The pairs (read, write) of an op that may share bytes, persistent tensors apart."""
    op: Op = index.ops[p]
    return [(a, b) for a, b in op.inplace if a not in index.persistent and b not in index.persistent]


def repeatable(index: Index) -> dict[Tensor, Point]:
    """{tensor: the op of forward that may run again for it}.

    Ops that write outputs or persistent tensors run once, like those that read what changes within the step.
    """
    ends = {*index.program.outputs, *index.persistent}
    result: dict[Tensor, Point] = {}
    for p, op in enumerate(index.ops[: index.forward]):
        kept = any(t in ends or t in op.reads or t.role not in (Role.ACTIVATION, Role.EXTRA) for t in op.writes)
        kept = kept or any(len(index.writers[t]) > 1 for t in op.writes)
        if not (kept or op.on_net or any(_changes(index, t, p) for t in op.reads)):
            result |= dict.fromkeys(op.writes, p)
    return result


def _changes(index: Index, t: Tensor, p: Point) -> bool:
    """Whether an op of forward or backward writes a value over the one that the op at p reads."""
    if t not in index.persistent:
        return len(index.writers[t]) > 1
    return any(w > p and index.ops[w].during is not Pass.UPDATE for w in index.writers[t])


def large(index: Index) -> set[Tensor]:
    """Tensors that are worth a decision: not persistent, not very small, written once at most."""
    least = max((t.nbytes for t in index.uses), default=0) / index.small
    return {t for t in index.uses if t.nbytes >= max(least, 1) and len(index.writers[t]) <= 1}
