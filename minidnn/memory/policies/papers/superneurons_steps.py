"""SuperNeurons (Wang, Ye, Zhao, Wu, Li, Song, Xu, Kraska: "SuperNeurons: Dynamic GPU Memory Management for Training
Deep Neural Networks", PPoPP 2018): its techniques without a budget.

Each policy adds one technique to the one before, as Table 1 of the paper measures them. The policies of superneurons.py
have them all, under a budget.

  superneurons_offload     Liveness (3.2) and the unified tensor pool (3.3.1). Results of convolutions leave for the
                           host beside the layers up to the next convolution. They come back beside a convolution's
                           backward.
  superneurons_speed       The same, and recomputation (3.4): only checkpoints outlive forward. Each segment between
                           them runs again once, for the first backward layer that needs it, and stays
                           (speed-centric).
  superneurons_memory      The same, but a segment runs again for every backward layer, and only the tensors that this
                           layer reads stay (memory-centric).
  superneurons_cost_aware  Speed-centric if the segment then holds no more than l_peak, the most bytes that any one
                           layer's backward needs; else memory-centric.

Checkpoints are the results of convolutions, inner products, joins, concatenations, forks and losses. Most of the time
goes into making these, and most of the memory into holding the others. If later layers overwrite a checkpoint in place,
their last value is the checkpoint. If the program has no fork layers, a map with several consumers is a checkpoint. The
route (3.1) is the program's order: each layer comes after the layers that it reads from.

In the paper only the results of convolutions leave. Here those of joins, concatenations and forks do, too, since those
of a ResNet would fill the device otherwise.

Of PyTorch's ops, all products of matrices count as convolutions (memory/policies/shared/layers.py).
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence

from minidnn.costs import Costs
from minidnn.memory.plan import OffloadInterval, Plan, Point, Share, in_place_sharing
from minidnn.memory.policies.shared.algorithms import Algorithms, choose
from minidnn.memory.policies.shared.layers import is_concatenation, is_product_on_maps, is_softmax, joins
from minidnn.memory.policies.shared.recompute import Repeatable, interleave, needs
from minidnn.program import FORWARD, Op, Pass, Program, Tensor

CHECKPOINTS = ("convolution", "inner_product", "eltwise", "concat", "split", "softmax", "softmax_loss")
POOLED = ("convolution", "eltwise", "concat", "split")  # families whose results leave; others' are small or made again


def superneurons_offload(program: Program, costs: Costs, budget: int, algorithms: Algorithms = "m") -> Plan:
    """Results of convolutions are offloaded."""
    share = in_place_sharing(program)
    return _pooled(program, costs, program.ops, share, algorithms)


def superneurons_speed(program: Program, costs: Costs, budget: int, algorithms: Algorithms = "m") -> Plan:
    """Also, each cheap segment is recomputed once."""
    return _recomputed(program, costs, algorithms, "speed")


def superneurons_memory(program: Program, costs: Costs, budget: int, algorithms: Algorithms = "m") -> Plan:
    """Also, a segment is recomputed per backward layer."""
    return _recomputed(program, costs, algorithms, "memory")


def superneurons_cost_aware(program: Program, costs: Costs, budget: int, algorithms: Algorithms = "m") -> Plan:
    """Also, each segment is recomputed as memory allows."""
    return _recomputed(program, costs, algorithms, "cost")


def _recomputed(program: Program, costs: Costs, algorithms: Algorithms, how: str) -> Plan:
    share = in_place_sharing(program)
    return _pooled(program, costs, route(Repeatable(program, share), how), share, algorithms)


def _pooled(program: Program, costs: Costs, order: tuple[Op, ...], share: Share, algorithms: Algorithms) -> Plan:
    offloads = offloads_of(Repeatable(program, share), order)
    return Plan(order=order, offloads=offloads, algorithm=choose(program, costs, algorithms), share=share)


STEPS = {
    "superneurons_offload": superneurons_offload,
    "superneurons_speed": superneurons_speed,
    "superneurons_memory": superneurons_memory,
    "superneurons_cost_aware": superneurons_cost_aware,
}


# ---- the unified tensor pool ---------------------------------------------------------------------------------


def offloads_of(able: Repeatable, order: Sequence[Op]) -> tuple[OffloadInterval, ...]:
    """The offload intervals of the results that leave for the host.

    A result is copied out as soon as it is made. Its bytes are free once the next convolution and all its readers in
    forward have run. It comes back beside the last convolution's backward that begins before its first use in backward.
    """
    first: dict[Op, Point] = {}
    starts: list[Point] = []  # of the convolutions' backward, re-runs for it included
    uses: dict[Tensor, list[Point]] = defaultdict(list)
    for p, op in enumerate(order):
        first.setdefault(op, p)
        if is_product_on_maps(op) and op.during is Pass.BACKWARD and order[p - 1].layer != op.layer:
            starts.append(p)
        for t in op.tensors:
            uses[t].append(p)
    starts = [_with_runs(able, order, p) for p in starts]
    leaving: dict[Tensor, Op] = {}  # {result: the next convolution}
    joined = _joined(able.program)
    waiting: list[Tensor] = []
    for op in able.program.ops[: able.forward]:
        if is_product_on_maps(op):
            leaving |= dict.fromkeys(waiting, op)
            waiting = []
        if op.family in POOLED or is_product_on_maps(op) or op in joined:
            waiting += [able.final(t) for t in op.writes]
    offloads = []
    for t, after in leaving.items():
        points = uses[t]
        k = bisect_left(points, able.forward)
        if k == len(points) or t in able.program.outputs or any(t in order[p].writes for p in points[k:]):
            continue
        written = next(p for p in reversed(points[:k]) if t in order[p].writes)
        free = max(first[after], points[k - 1]) + 1
        if free <= points[k]:
            i = bisect_left(starts, points[k])
            offloads.append(
                OffloadInterval(t, written + 1, free, max(free, starts[i - 1] if i else points[k]), points[k])
            )
    return tuple(offloads)


def _joined(program: Program) -> set[Op]:
    return joins(program) | {op for op in program.ops[: program.forward] if is_concatenation(op)}


def _with_runs(able: Repeatable, order: Sequence[Op], p: Point) -> Point:
    """The point where the re-runs right before point p begin."""
    while p > able.forward and order[p - 1].during in FORWARD:
        p -= 1
    return p


# ---- cost-aware recomputation --------------------------------------------------------------------------------


def route(able: Repeatable, how: str = "cost") -> tuple[Op, ...]:
    """The order of a step that keeps only checkpoints. `how`: "speed", "memory" or "cost" (aware)."""
    dropped = able.droppable() - checkpoints(able)
    segments = _segments(able, dropped)
    layers = able.layers()
    touched = {layer[0].layer: needs(able, layer) for layer in layers}
    peak = max(touched.values(), default=0)
    later: dict[int, list[Tensor]] = defaultdict(list)  # {segment: tensors of it that backward reads}
    for t in dict.fromkeys(t for layer in layers for op in layer for t in op.reads if t in dropped):
        later[segments[able.maker[t]]].append(t)
    slow = set()  # segments that are memory-centric
    for k, wanted in later.items():
        runs = able.runs(wanted, dropped, set())
        held = sum(t.nbytes for op in runs[:-1] for t in op.writes if t not in able.share)
        if how == "memory" or (how == "cost" and held + touched.get(runs[-1].layer, 0) > peak):
            slow.add(k)
    have: set[Tensor] = set()
    brief: set[Tensor] = set()  # of these, tensors that are gone for the next layer

    def again(layer: list[Op]) -> list[Op]:
        """The ops that run again for this layer's backward; notes the tensors that are there afterwards."""
        reads = {t for op in layer for t in op.reads if t in dropped}
        missing = [t for t in reads if t not in have]
        wanted = list(missing)
        for k in {segments[able.maker[t]] for t in missing} - slow:
            wanted += later[k]
        runs = able.runs(wanted, dropped, have)
        able.after(runs, have)
        brief.update(t for op in runs for t in op.writes if t in dropped and segments[op] in slow)
        gone = [t for t in brief if t not in reads]
        have.difference_update(gone)
        brief.difference_update(gone)
        return runs

    return interleave(able, again)


def checkpoints(able: Repeatable) -> set[Tensor]:
    """Tensors that outlive forward: the last values of units with a checkpoint layer in them, and forked maps."""
    readers: dict[Tensor, set[str]] = defaultdict(set)
    kept, joined = set[Tensor](), _joined(able.program)
    for op in able.program.ops[: able.forward]:
        if op.family in CHECKPOINTS or is_product_on_maps(op) or is_softmax(op) or op in joined:
            kept.update(able.final(t) for t in op.writes)
        for t in op.reads:
            readers[t].add(op.layer)
    return kept | {t for t, layers in readers.items() if len(layers) > 1 and t not in able.later}


def _segments(able: Repeatable, dropped: set[Tensor]) -> dict[Op, int]:
    """{forward op: the number of its segment}. A dropped tensor puts its writer and its readers into one segment."""
    parent: dict[Op, Op] = {}

    def root(op: Op) -> Op:
        while parent[op] is not op:
            parent[op] = op = parent[parent[op]]
        return op

    for op in able.program.ops[: able.forward]:
        parent[op] = op
        for t in op.reads:
            if t in dropped:
                parent[root(able.maker[t])] = op
    number = {op: k for k, op in enumerate(parent)}
    return {op: number[root(op)] for op in parent}
