"""vDNN (Rhu, Gimelshein, Clemons, Zulfiqar, Keckler: "vDNN: Virtualized Deep Neural Networks for Scalable,
Memory-Efficient Neural Network Design", MICRO 2016).

Forward, layer n: its input feature map X goes to the host beside the layer's own computation. The bytes of X are freed
at the layer's end, where compute waits for the copy (III-B). Backward, layer m: the X that `findPrefetchLayer` finds
(Figure 10) comes back beside BWD(m), and must be there before BWD(m-1).

  vdnn_all:  X of every feature-extraction layer that has one (ReLU and Dropout in place have none)
  vdnn_conv: X of convolutions only
  vdnn_dyn:  tries, in the paper's order (III-C), no offload, conv and all with the fastest algorithms, then chooses
             algorithms greedily under the budget

Weights never leave, and the classifier stays on the device. A map with several consumers leaves with the last of them
(reference count at a fork, Figure 3).

Where the paper is silent we read it so:

- A map that nothing in backward reads is freed, not offloaded.
- A forked map is offloaded if any of its consumers is of a kind that offloads.
- Layers unknown to the paper (BatchNorm, Scale, LRN, Concat, Eltwise) count as feature extraction under vdnn_all.
- Of PyTorch's ops, all products count as convolutions (memory/policies/shared/layers.py). An inner product belongs to
  the classifier if nothing behind it is another kind of product, or a join with a map that is not computed from it, as
  the sums of a transformer's blocks are; nor an inner product of which that is so.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import reduce
from operator import and_, or_

from minidnn.costs import Costs
from minidnn.memory.plan import OffloadInterval, Plan, Point, Share, in_place_sharing
from minidnn.memory.policies.ours.liveness import liveness
from minidnn.memory.policies.shared.algorithms import Algorithms, choose, fastest_within, live_beside
from minidnn.memory.policies.shared.layers import calls, is_product_on_maps, joins
from minidnn.memory.policies.shared.probe import arena, curve, fits
from minidnn.program import FORWARD, Algorithm, Op, Pass, Program, Role, Tensor

MAPS = (Role.INPUT, Role.ACTIVATION)


@dataclass
class Layer:
    """A feature extraction layer: points of its forward and backward ops, and the maps that leave with it."""

    name: str
    convolution: bool = False
    forward: list[Point] = field(default_factory=list)
    backward: list[Point] = field(default_factory=list)
    leaving: list[Tensor] = field(default_factory=list)


def vdnn_all(program: Program, costs: Costs, budget: int, algorithms: Algorithms = "m") -> Plan:
    """The input maps of layers are offloaded."""
    return offloading(program, choose(program, costs, algorithms), every)


def vdnn_conv(program: Program, costs: Costs, budget: int, algorithms: Algorithms = "m") -> Plan:
    """The input maps of convolutions are offloaded."""
    return offloading(program, choose(program, costs, algorithms), convolution)


def every(layer: Layer) -> bool:
    return True


def convolution(layer: Layer) -> bool:
    return layer.convolution


def offloading(program: Program, algorithm: dict[Op, Algorithm], accepts: Callable[[Layer], bool]) -> Plan:
    """The paper's plan in which the input maps of the layers that `offloads` accepts leave and come back."""
    share = in_place_sharing(program)
    layers = feature_extraction(program)
    _choose_offloads(program, layers, share, accepts)
    back_at = _prefetches(layers)
    first_backward_read: dict[Tensor, Point] = {}
    # from here on the map is made: in parts, a concat may come behind a layer's first op
    there: dict[Tensor, Point] = {}
    for p, op in enumerate(program.ops):
        if op.during in FORWARD:
            there.update(dict.fromkeys(op.writes, p + 1))
        else:
            for t in op.reads:
                first_backward_read.setdefault(t, p)
    offloads: list[OffloadInterval] = []
    for layer in layers:
        free = layer.forward[-1] + 1
        for t in layer.leaving:
            use = first_backward_read[t]
            beside = back_at.get(layer.name)
            if beside is None or not beside.backward:
                back = arrive = use
            else:
                back = min(beside.backward[0], use)
                arrive = min(beside.backward[-1] + 1, use)
            out = max(layer.forward[0], there.get(t, 0))
            offloads.append(OffloadInterval(t, out, free, max(back, free), max(arrive, free)))
    return Plan(algorithm=algorithm, share=share, offloads=tuple(offloads))


def feature_extraction(program: Program) -> list[Layer]:
    """The layers before the classifier, in forward order: no inner product comes before or in them."""
    layers: dict[str, Layer] = {}
    classified: set[Tensor] = set()  # values computed from an inner product's result
    classifier: set[str] = set()
    features, call = _inner_products_of_features(program), calls(program)
    for p, op in enumerate(program.ops):
        name = call[op]
        if op.during is Pass.FORWARD:
            if (op.family == "inner_product" and op not in features) or any(t in classified for t in op.reads):
                classified.update(op.writes)
                classifier.add(name)
                layers.pop(name, None)
            elif name not in classifier:
                layer = layers.setdefault(name, Layer(name))
                layer.convolution |= is_product_on_maps(op)
                layer.forward.append(p)
        elif op.during is Pass.BACKWARD and name in layers:
            layers[name].backward.append(p)
    return list(layers.values())


def _inner_products_of_features(program: Program) -> set[Op]:
    """PyTorch's inner products whose results other products, or joins with other maps, are computed from."""
    found, joined = dict[Op, int](), joins(program)  # {product: those that it is computed from, as bits}
    features = 0  # bits: of `found`
    known: dict[Tensor, int] = {}  # {tensor: those of `found` that it is computed from}
    for op in program.ops[: program.forward]:
        several = [known[t] for t in op.reads if t in known]
        every = reduce(or_, several, 0)
        if op.family == "inner_product" and is_product_on_maps(op):
            found[op] = every
            every |= 1 << len(found) - 1
        elif is_product_on_maps(op):
            features |= every
        elif op in joined:
            features |= every & ~reduce(and_, several, every)
        known |= dict.fromkeys(op.writes, every)
    for i, before in reversed(list(enumerate(found.values()))):
        features |= before if features >> i & 1 else 0
    return {op for i, op in enumerate(found) if features >> i & 1}


def _choose_offloads(program: Program, layers: list[Layer], share: Share, accepts: Callable[[Layer], bool]) -> None:
    """Note at each layer the maps that leave with it. It is the last consumer of these maps in forward."""
    by_name = {layer.name: layer for layer in layers}
    call, stays = calls(program), {*program.lasting} - {*program.inputs}
    consumers: dict[Tensor, list[str]] = defaultdict(list)
    wanted: set[Tensor] = set()
    in_place_of = {(share[t], t) for t in share}
    overwritten = set(share.values())
    for op in program.ops:
        if op.during in FORWARD:
            for t in op.reads:
                # A layer that works in place has no X of its own: no layer can read the map that it overwrites.
                if t.role in MAPS and t not in stays and not any((t, y) in in_place_of for y in op.writes):
                    consumers[t].append(call[op])
        else:
            wanted.update(op.reads)
    for t, users in consumers.items():
        last = by_name.get(users[-1])
        if last is None or t not in wanted or t in overwritten:
            continue
        if any(accepts(by_name[u]) for u in users if u in by_name):
            last.leaving.append(t)


def _prefetches(layers: list[Layer]) -> dict[str, Layer]:
    """{layer whose X comes back: the layer beside whose backward it does}, by the paper's Figure 10, literally."""
    prefetched: set[str] = set()

    def find_prefetch_layer(current: int) -> int | None:
        for k in range(current - 1, -1, -1):
            if layers[k].leaving and layers[k].name not in prefetched:
                prefetched.add(layers[k].name)
                return k
            if layers[k].convolution:
                return None
        return None

    back_at: dict[str, Layer] = {}
    for m in range(len(layers) - 1, -1, -1):
        k = find_prefetch_layer(m)
        if k is not None:
            back_at[layers[k].name] = layers[m]
    return back_at


# ---- vDNN_dyn ------------------------------------------------------------------------------------------------

ATTEMPTS = 8  # placements tried per greedy pass: each has less room by the bytes that the last one had too many


def vdnn_dyn(program: Program, costs: Costs, budget: int) -> Plan:
    """The first of vDNN's trials that fits the budget.

    The trials are those of III-C; one fits if its schedule's arena keeps the budget. If not even all(m) fits, all(m) is
    returned: it is the policy's leanest plan, and the refusal names it.
    """
    leanest = vdnn_all(program, costs, budget, "m")
    if not fits(program, costs, leanest, budget):
        return leanest
    for plan in (
        liveness(program, costs, budget, "p"),
        vdnn_conv(program, costs, budget, "p"),
        vdnn_all(program, costs, budget, "p"),
    ):
        if fits(program, costs, plan, budget):
            return plan
    for accepts in (convolution, every):
        result = greedy(program, costs, budget, accepts)
        if result is not None:
            return result
    return leanest


def greedy(program: Program, costs: Costs, budget: int, accepts: Callable[[Layer], bool]) -> Plan | None:
    """The plan with each op's fastest algorithm whose workspace fits with the live bytes; None if none is found.

    The live bytes at an op do not depend on the other ops' workspaces, so one curve serves all choices. If the
    placement then exceeds the budget, the choice is repeated with less room.
    """
    least = choose(program, costs, "m")
    bare = {op: Algorithm(a.name) for op, a in least.items()}
    live = live_beside(program.ops, curve(program, costs, offloading(program, bare, accepts)).tolist(), bare)
    room = budget
    for _ in range(ATTEMPTS):
        plan = offloading(program, fastest_within(costs, least, live, room), accepts)
        over = arena(program, costs, plan, budget) - budget
        if over <= 0:
            return plan
        room -= over
    return None
