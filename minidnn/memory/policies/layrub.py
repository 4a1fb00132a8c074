"""Layrub (Jin, Liu, Jiang, Ma, Shi, He, Zhao: "Layer-Centric Memory Reuse and Data Migration for Extreme-Scale Deep
Learning on Many-Core Architectures", ACM TACO 15(3), 2018).

  layrub_intra: reuse within a layer (section 3.2). Everything is there for the whole step, as in Caffe, but the
                gradient of an activation takes the activation's bytes, once nobody reads that any more. For this the
                gradients of a layer's parameters are computed before that of its data (3.1), as all programs here do.
  layrub_inter: reuse between layers (3.3). A feature map goes to the host beside the layer behind its last consumer,
                and comes back beside the backward of the layer before the one that wants it; both streams are
                synchronized at each layer's end. Maps lie in a small fixed set of blocks, which they take in turns.
  layrub:       both (the paper's hybrid, its default): what is fetched into a block leaves its bytes to the gradient,
                and all gradients of maps lie in blocks.

A layer is here, as in the authors' code, a main layer with those that work on its output element by element or channel
by channel (BatchNorm, Scale, ReLU, Dropout). What layers keep for themselves (ReLU's mask, a pool's index, BatchNorm's
and Scale's copies where the memory facts have them) travels like a map, in blocks of its own, and their workspaces are
one scratch. Parameters, their gradients and the workspaces of other layers are not optimized, and the gradients of
parameters are held, as in Caffe.

Where the paper is silent we read it so: of the batch, the host still has a copy, so it is only fetched again; a map
that backward does not read is not fetched; maps of the last layers, which would be wanted back as soon as they are
gone, stay, as in the code. The paper's code aliases by a list of layer types; here every gradient is aliased for which
that is right.
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
ATTACHED = ("batch_norm", "scale", "relu", "dropout", "identity")  # families that belong to the layer before them
SCRATCH = ("batch_norm", "scale")  # families whose workspaces are one
SMALL = 64  # what is kept beside a map and takes less than this part of it (BatchNorm's means) stays


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
    """`share`, and for each gradient that a layer writes the activation below it whose bytes it takes.

    Legal where every tensor of those bytes has had its last access before: then no kernel's permission is needed.
    Unless activations are `held` anyway, it is one that backward has read: else its bytes would be kept for nothing.
    """
    fixed = {*program.inputs, *program.carried, *program.outputs}
    last: dict[Tensor, Point] = {}
    first: dict[Tensor, Point] = {}  # from when on it takes bytes: an op may update it in place later
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
    """The bytes of `a` are those of `b` from here on."""
    if a != b:
        root[a] = b
        last[b] = max(last[a], last[b])


# ---- reuse between layers


@dataclass
class _Layer:
    """A main layer and those attached to it. Points: its forward is [start, end), its backward begins at `back`."""

    start: Point
    end: Point = 0
    back: Point | None = None


def main_layers(program: Program) -> list[_Layer]:
    """In forward order, losses among them; what adds them up is none."""
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
    """The absences of all maps, and of what layers keep beside them, that backward reads."""
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
        k = bisect_right(starts, forward[t]) - 1  # its last consumer
        j = bisect_right(backs, backward[t]) - 1  # the place in backward of the layer that wants it
        ahead = k + 1 if by is None else k + 2  # the batch is not copied, so its bytes are free at once
        if ahead > len(layers) or j < 1:
            continue
        out, free = ends[k], ends[ahead - 1]
        if free < backs[j - 1]:
            found.append(Trip(t, None if by is None else out, free, backs[j - 1], backs[j]))
    return found


def _travels(t: Tensor, by: Op | None) -> bool:
    """Maps, and what the op that writes it keeps for backward, of about a map's size."""
    if t.role in MAPS:
        return True
    if t.role is not Role.EXTRA or by is None:
        return False
    return t.nbytes * SMALL >= max(x.nbytes for x in by.tensors)


def _migrating(program: Program, costs: Costs, algorithms: Algorithms, share: Share, reused: frozenset[Role]) -> Plan:
    """`reused`: whose buffers lie in blocks, by the role of what begins them."""
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
    """Give each buffer a block that is free for its whole life: largest first, each the first block that is free, so
    that few blocks are as large as the largest buffer."""
    busy: list[list[tuple[Point, Point]]] = []  # per block, sorted
    found: list[tuple[Buffer, Slot]] = []
    for b in sorted(buffers, key=lambda b: (-b.nbytes, b.lo)):
        k = next((k for k, spans in enumerate(busy) if _free(spans, b.lo, b.hi)), len(busy))
        if k == len(busy):
            busy.append([])
        insort(busy[k], (b.lo, b.hi))
        found.append((b, Slot(f"{name} {k}")))
    return found


def _free(spans: Sequence[tuple[Point, Point]], lo: Point, hi: Point) -> bool:
    """Whether [lo, hi) meets none of the spans, which meet no other."""
    i = bisect_left(spans, (lo, lo))
    return not (i < len(spans) and spans[i][0] < hi) and not (i and spans[i - 1][1] > lo)
