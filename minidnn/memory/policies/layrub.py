"""Layrub (Jin, Liu, Jiang, Ma, Shi, He, Zhao: "Layer-Centric Memory Reuse and Data Migration for Extreme-Scale Deep
Learning on Many-Core Architectures", ACM TACO 15(3), 2018).

  layrub_intra: reuse within a layer (section 3.2). All tensors have bytes for the whole step, as in Caffe, but an
                activation's gradient takes the activation's bytes once nothing reads the activation any more. For this
                the gradients of a layer's parameters are computed before that of its data (3.1), as in all programs
                here.
  layrub_inter: reuse between layers (3.3). A feature map goes to the host beside the layer after its last consumer.
                It comes back beside the backward of the layer before the one that needs it. Both streams are
                synchronized at each layer's end. Maps take turns in a small fixed set of blocks.
  layrub:       both (the paper's hybrid, its default). A map that is fetched into a block leaves its bytes to the
                gradient, and all gradients of maps lie in blocks.

As in the authors' code, a layer here is a main layer with the layers attached to it. These work on its output element
by element or channel by channel (BatchNorm, Scale, ReLU, Dropout). Tensors that layers keep for themselves travel like
maps, in blocks of their own. They are ReLU's mask, a pool's index, and BatchNorm's and Scale's copies if the memory
facts have them. The workspaces of BatchNorm and Scale share one scratch buffer. Parameters, their gradients and the
workspaces of other layers are not optimized. The gradients of parameters are held for the whole step, as in Caffe.

Where the paper is silent we read it so:

- The batch is only fetched again, since the host still has a copy of it.
- A map that backward does not read is not fetched.
- Maps of the last layers stay, as in the code: backward would need them as soon as they are gone.
- The paper's code aliases gradients by a list of layer types. Here every gradient is aliased for which that is right.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from minidnn.costs import Costs
from minidnn.memory.lowering.lower import group, residencies
from minidnn.memory.plan import Plan, Point, Share, Slot, Trip, complete, in_place_sharing
from minidnn.memory.policies.algorithms import Algorithms, choose
from minidnn.memory.schedule import Buffer
from minidnn.program import FORWARD, Op, Pass, Program, Role, Tensor

MAPS = frozenset({Role.INPUT, Role.ACTIVATION})
ATTACHED = ("batch_norm", "scale", "relu", "dropout", "identity")  # families attached to the main layer before them
SCRATCH = ("batch_norm", "scale")  # families whose workspaces share one buffer
SMALL = 64  # a kept tensor of less than 1/64 of its op's largest (BatchNorm's means) stays


def layrub_intra(program: Program, costs: Costs, budget: int, algorithms: Algorithms = "m") -> Plan:
    share = over_activations(program, in_place_sharing(program), held=True)
    carried = set(program.carried)
    hold = frozenset(t for t in program.tensors if t not in share and t not in carried)
    return Plan(algorithm=choose(program, costs, algorithms), share=share, hold=hold)


def layrub_inter(program: Program, costs: Costs, budget: int, algorithms: Algorithms = "m") -> Plan:
    return _migrating(program, costs, algorithms, in_place_sharing(program), MAPS)


def layrub(program: Program, costs: Costs, budget: int, algorithms: Algorithms = "m") -> Plan:
    share = over_activations(program, in_place_sharing(program), held=False)
    return _migrating(program, costs, algorithms, share, MAPS | {Role.GRADIENT})


# ---- reuse within a layer


def over_activations(program: Program, share: Share, held: bool) -> Share:
    """`share`, extended by {gradient that a layer writes: the activation below the layer whose bytes it takes}.

    That is legal if every tensor in those bytes has had its last access before; it then needs no kernel's permission.
    Unless activations are `held` anyway, backward must have read the activation: else its bytes would be kept for
    nothing.
    """
    fixed = {*program.inputs, *program.carried, *program.outputs}
    last: dict[Tensor, Point] = {}
    first: dict[Tensor, Point] = {}  # {tensor: point of its first access}; a later op may update it in place
    bottoms: dict[str, dict[Tensor, None]] = defaultdict(dict)
    for p, op in enumerate(program.ops):
        for t in op.tensors:
            last[t] = p
            first.setdefault(t, p)
            if op.during in FORWARD and t in op.reads and t.role is Role.ACTIVATION:
                bottoms[op.layer][t] = None
    used = dict(last)
    root: dict[Tensor, Tensor] = {}

    def of(t: Tensor) -> Tensor:
        """The tensor whose bytes `t` takes, through all sharing."""
        while t in root:
            t = root[t]
        return t

    for holder, target in share.items():
        if isinstance(holder, Tensor) and isinstance(target, Tensor):
            _join(root, last, of(holder), of(target))
    found = dict(share)
    for p, op in enumerate(program.ops):
        if op.during is not Pass.BACKWARD:
            continue
        for dx in op.writes:
            if dx.role is not Role.GRADIENT or dx in found or dx in fixed or first[dx] < p:
                continue
            for x in bottoms[op.layer]:
                there = held or program.ops[used[x]].during not in FORWARD
                if there and x not in fixed and x.nbytes == dx.nbytes and last[of(x)] < p:
                    found[dx] = x
                    _join(root, last, of(dx), of(x))
                    break
    return found


def _join(root: dict[Tensor, Tensor], last: dict[Tensor, Point], a: Tensor, b: Tensor) -> None:
    """Note that `a` takes the bytes of `b` from here on."""
    if a != b:
        root[a] = b
        last[b] = max(last[a], last[b])


# ---- reuse between layers


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
    for p, op in enumerate(program.ops):
        if op.during in FORWARD and op.kind != "objective.forward":
            if op.layer not in owner:
                if not layers or op.family not in ATTACHED:
                    layers.append(_Layer(p))
                owner[op.layer] = layers[-1]
            layers[-1].end = p + 1
        elif op.during is Pass.BACKWARD and op.layer in owner:
            layer = owner[op.layer]
            layer.back = p if layer.back is None else min(p, layer.back)
    return layers


def trips(program: Program) -> list[Trip]:
    """The absences of all maps, and of tensors that layers keep besides them, if backward reads them."""
    layers = main_layers(program)
    starts = [layer.start for layer in layers]
    ends = [layer.end for layer in layers]
    backs = sorted(layer.back for layer in layers if layer.back is not None)
    forward: dict[Tensor, Point] = {}  # last use in forward
    backward: dict[Tensor, Point] = {}  # first use in backward
    begun: dict[Tensor, Op | None] = dict.fromkeys(program.inputs)
    for p, op in enumerate(program.ops):
        for t in op.tensors:
            if op.during in FORWARD:
                forward[t] = p
                begun.setdefault(t, op)
            elif t not in backward:
                backward[t] = p
    found = []
    for t, by in begun.items():
        if not _travels(t, by) or t not in backward or t not in forward or t in program.outputs:
            continue
        k = bisect_right(starts, forward[t]) - 1  # the layer that is its last consumer
        j = bisect_right(backs, backward[t]) - 1  # the place in backward of the layer that needs it
        ahead = k + 1 if by is None else k + 2  # the batch is not copied, so its bytes are free at once
        if ahead > len(layers) or j < 1:
            continue
        out, free = ends[k], ends[ahead - 1]
        if free < backs[j - 1]:
            found.append(Trip(t, None if by is None else out, free, backs[j - 1], backs[j]))
    return found


def _travels(t: Tensor, by: Op | None) -> bool:
    """Whether `t` travels: a map, or a tensor that its writer `by` keeps for backward, unless it is much smaller."""
    if t.role in MAPS:
        return True
    if t.role is not Role.EXTRA or by is None:
        return False
    return t.nbytes * SMALL >= max(x.nbytes for x in by.tensors)


def _migrating(program: Program, costs: Costs, algorithms: Algorithms, share: Share, reused: frozenset[Role]) -> Plan:
    """The plan whose maps travel. `reused`: a buffer lies in a block if its first tensor has one of these roles."""
    algorithm = choose(program, costs, algorithms)
    fixed = {*program.carried, *program.outputs}
    hold = frozenset(t for t in program.tensors if t.role is Role.PARAM_GRADIENT and t not in fixed)
    bare = Plan(algorithm=algorithm, share=share, hold=hold, trips=tuple(trips(program)))
    plan = complete(program, costs, bare)
    writer = {t: op for op in reversed(program.ops) for t in op.writes}
    maps: list[Buffer] = []
    kept: list[Buffer] = []
    for b in group(program, plan, residencies(program, plan)):
        t = b.stays[0].tensor
        if not any(s.tensor in fixed for s in b.stays):
            if t.role in reused:
                maps.append(b)
            elif t.role is Role.EXTRA and _travels(t, writer[t]):
                kept.append(b)
    written: Share = {}
    into: dict[Trip, Slot] = {}
    for b, slot in [*in_turns(maps, "block"), *in_turns(kept, "kept")]:
        first = b.stays[0]
        if first.arrives is None:
            written[first.tensor] = slot
        else:
            into[first.arrives] = slot
    scratch: Share = {op: Slot("scratch") for op, a in algorithm.items() if a.workspace and op.family in SCRATCH}
    placed = tuple(replace(trip, into=into.get(trip)) for trip in plan.trips)
    return replace(bare, trips=placed, share={**share, **written, **scratch})


def in_turns(buffers: Iterable[Buffer], name: str) -> list[tuple[Buffer, Slot]]:
    """Each buffer with a block that is free for the buffer's whole life.

    The largest buffers come first, and each takes the first free block. So few blocks are as large as the largest
    buffer.
    """
    busy: list[list[tuple[Point, Point]]] = []  # for each block the lives of its buffers, sorted
    found: list[tuple[Buffer, Slot]] = []
    for b in sorted(buffers, key=lambda b: (-b.nbytes, b.lo)):
        k = next((k for k, spans in enumerate(busy) if _free(spans, b.lo, b.hi)), len(busy))
        if k == len(busy):
            busy.append([])
        insort(busy[k], (b.lo, b.hi))
        found.append((b, Slot(f"{name} {k}")))
    return found


def _free(spans: Sequence[tuple[Point, Point]], lo: Point, hi: Point) -> bool:
    """Whether [lo, hi) overlaps none of the spans, which are sorted and do not overlap one another."""
    i = bisect_left(spans, (lo, lo))
    return not (i < len(spans) and spans[i][0] < hi) and not (i and spans[i - 1][1] > lo)
