"""Migration between layers, and the blocks in which feature maps take turns: what Layrub's policies share.

A feature map goes to the host beside the layer after its last consumer. It comes back beside the backward of the layer
before the one that needs it. Both streams are synchronized at each layer's end (Jin et al., ACM TACO 15(3), 2018,
section 3.3).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from minidnn.costs import Costs
from minidnn.memory.lowering.lower import group, residencies_of
from minidnn.memory.plan import OffloadInterval, Plan, Point, Share, Slot, complete
from minidnn.memory.policies.shared.algorithms import Algorithms, choose
from minidnn.memory.policies.shared.layers import calls, is_elementwise
from minidnn.memory.schedule import Buffer
from minidnn.program import FORWARD, Op, Pass, Program, Role, Tensor

MAPS = frozenset({Role.INPUT, Role.ACTIVATION})
# families attached to the main layer before them
ATTACHED = ("batch_norm", "scale", "relu", "unary", "prelu", "dropout", "identity")
SCRATCH = ("batch_norm", "scale")  # families whose workspaces share one buffer
SMALL = 64  # a kept tensor of less than 1/64 of its op's largest (BatchNorm's means) stays


@dataclass
class _Layer:
    """A main layer with its attached layers. Points: its forward is [start, end), its backward begins at `back`."""

    start: Point
    end: Point = 0
    back: Point | None = None


def main_layers(program: Program) -> list[_Layer]:
    """The main layers in forward order, losses included. The op that adds up the losses belongs to none."""
    layers: list[_Layer] = []
    owner: dict[str, _Layer] = {}
    call = calls(program)
    for p, op in enumerate(program.ops):
        if op.during in FORWARD and op.kind != "objective.forward":
            if call[op] not in owner:
                if not layers or not is_attached(op):
                    layers.append(_Layer(p))
                owner[call[op]] = layers[-1]
            layers[-1].end = p + 1
        elif op.during is Pass.BACKWARD and call[op] in owner:
            layer = owner[call[op]]
            layer.back = p if layer.back is None else min(p, layer.back)
    return layers


def is_attached(op: Op) -> bool:
    """Whether the op's layer is attached to the main layer before it."""
    return op.family in ATTACHED or is_elementwise(op)


def offloads(program: Program, promptly: bool = False) -> list[OffloadInterval]:
    """The absences of all maps, and of tensors that layers keep besides them, if backward reads them.

    promptly: what layers keep leaves at the end of the op that writes it, and comes back before the one that reads it
    """
    layers = main_layers(program)
    starts = [layer.start for layer in layers]
    ends = [layer.end for layer in layers]
    backs = sorted(layer.back for layer in layers if layer.back is not None)
    forward: dict[Tensor, Point] = {}  # last use in forward
    backward: dict[Tensor, Point] = {}  # first use in backward
    begun: dict[Tensor, Op | None] = dict.fromkeys(program.inputs)
    stays = {*program.outputs, *program.lasting} - begun.keys()
    for p, op in enumerate(program.ops):
        for t in op.tensors:
            if op.during in FORWARD:
                forward[t] = p
                begun.setdefault(t, op)
            elif t not in backward:
                backward[t] = p
    result = []
    for t, by in begun.items():
        if not travels(t, by) or t not in backward or t not in forward or t in stays:
            continue
        if promptly and t.role is Role.EXTRA:
            out, arrive = forward[t] + 1, backward[t]
            if out < arrive - 1:
                result.append(OffloadInterval(t, out, out, arrive - 1, arrive))
            continue
        k = bisect_right(starts, forward[t]) - 1  # the layer that is its last consumer
        j = bisect_right(backs, backward[t]) - 1  # the place in backward of the layer that needs it
        ahead = k + 1 if by is None else k + 2  # the batch is not copied, so its bytes are free at once
        if ahead > len(layers) or j < 1:
            continue
        out, free = ends[k], ends[ahead - 1]
        if free < backs[j - 1]:
            result.append(OffloadInterval(t, None if by is None else out, free, backs[j - 1], backs[j]))
    return result


def travels(t: Tensor, by: Op | None) -> bool:
    """Whether `t` travels: a map, or a tensor that its writer `by` keeps for backward, unless it is much smaller."""
    if t.role in MAPS:
        return True
    if t.role is not Role.EXTRA or by is None:
        return False
    return t.nbytes * SMALL >= max(x.nbytes for x in by.tensors)


def writers(program: Program) -> dict[Tensor, Op]:
    """{tensor: the first op that writes it}"""
    return {t: op for op in reversed(program.ops) for t in op.writes}


def migrating(
    program: Program,
    costs: Costs,
    algorithms: Algorithms,
    share: Share,
    pool: Callable[[Tensor], str | None],
    promptly: bool = False,
) -> Plan:
    """The plan whose maps travel.

    pool: the name of the set of blocks that a buffer lies in, by the buffer's first tensor; None: it has its own bytes
    promptly: as in `offload intervals`
    """
    algorithm = choose(program, costs, algorithms)
    fixed = {*program.persistent, *program.outputs}
    hold = frozenset(t for t in program.tensors if t.role is Role.PARAM_GRADIENT and t not in fixed)
    share = {t: of for t, of in share.items() if t not in hold or of in hold}
    bare = Plan(algorithm=algorithm, share=share, hold=hold, offloads=tuple(offloads(program, promptly)))
    plan = complete(program, costs, bare)
    pools: dict[str, list[Buffer]] = defaultdict(list)
    for b in group(program, plan, residencies_of(program, plan)):
        name = pool(b.residencies[0].tensor)
        if name is not None and not any(s.tensor in fixed for s in b.residencies):
            pools[name].append(b)
    written: Share = {}
    into: dict[OffloadInterval, Slot] = {}
    for name, buffers in pools.items():
        for b, slot in in_turns(buffers, name):
            first = b.residencies[0]
            if first.arrives is None:
                written[first.tensor] = slot
            else:
                into[first.arrives] = slot
    scratch: Share = {op: Slot("scratch") for op, a in algorithm.items() if a.workspace and op.family in SCRATCH}
    placed = tuple(replace(offload, into=into.get(offload)) for offload in plan.offloads)
    return replace(bare, offloads=placed, share={**share, **written, **scratch})


def in_turns(buffers: Iterable[Buffer], name: str) -> list[tuple[Buffer, Slot]]:
    """Each buffer with a block that is free for the buffer's whole life.

    The largest buffers come first, and each takes the first free block. So few blocks are as large as the largest
    buffer.
    """
    busy: list[list[tuple[Point, Point]]] = []  # for each block the lives of its buffers, sorted
    result: list[tuple[Buffer, Slot]] = []
    for b in sorted(buffers, key=lambda b: (-b.nbytes, b.lo)):
        k = next((k for k, spans in enumerate(busy) if _free(spans, b.lo, b.hi)), len(busy))
        if k == len(busy):
            busy.append([])
        insort(busy[k], (b.lo, b.hi))
        result.append((b, Slot(f"{name} {k}")))
    return result


def _free(spans: Sequence[tuple[Point, Point]], lo: Point, hi: Point) -> bool:
    """Whether [lo, hi) overlaps none of the spans, which are sorted and do not overlap one another."""
    i = bisect_left(spans, (lo, lo))
    return not (i < len(spans) and spans[i][0] < hi) and not (i and spans[i - 1][1] > lo)
