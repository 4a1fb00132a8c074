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
by element or channel by channel (BatchNorm, Scale, Dropout, ReLU and the other activations). Tensors that layers keep
for themselves travel like maps, in blocks of their own. They are ReLU's mask, a pool's index, and BatchNorm's and
Scale's copies if the memory facts have them. The workspaces of BatchNorm and Scale share one scratch buffer.
Parameters, their gradients and the workspaces of other layers are not optimized. The gradients of parameters are held
for the whole step, as in Caffe.

Where the paper is silent we read it so:

- The batch is only fetched again, since the host still has a copy of it.
- A map that backward does not read is not fetched.
- Maps of the last layers stay, as in the code: backward would need them as soon as they are gone.
- The paper's code aliases gradients by a list of layer types. Here every gradient is aliased where that is correct.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

from minidnn.costs import Costs
from minidnn.memory.plan import Plan, Point, Share, in_place_sharing
from minidnn.memory.policies.papers.layrub_migration import MAPS, migrating, travels, writers
from minidnn.memory.policies.shared.algorithms import Algorithms, choose
from minidnn.program import FORWARD, Algorithm, Op, Pass, Program, Role, Tensor


def layrub_intra(program: Program, costs: Costs, budget: int, algorithms: Algorithms = "m") -> Plan:
    """A map's gradient reuses the map's memory."""
    share = over_activations(program, in_place_sharing(program), held=True)
    return intra(choose(program, costs, algorithms), program, share)


def intra(algorithm: dict[Op, Algorithm], program: Program, share: Share) -> Plan:
    """The plan in which every tensor that shares no other's bytes has its own for the whole step."""
    persistent = set(program.persistent)
    hold = frozenset(t for t in program.tensors if t not in share and t not in persistent)
    return Plan(algorithm=algorithm, share=share, hold=hold)


def layrub_inter(program: Program, costs: Costs, budget: int, algorithms: Algorithms = "m") -> Plan:
    """Maps are offloaded, and take turns in a few blocks."""
    share = in_place_sharing(program)
    return migrating(program, costs, algorithms, share, _blocks(program, MAPS))


def layrub(program: Program, costs: Costs, budget: int, algorithms: Algorithms = "m") -> Plan:
    """layrub_intra and layrub_inter together."""
    share = over_activations(program, in_place_sharing(program), held=False)
    return migrating(program, costs, algorithms, share, _blocks(program, MAPS | {Role.GRADIENT}))


def _blocks(program: Program, reused: frozenset[Role]) -> Callable[[Tensor], str | None]:
    """Where a buffer lies, by its first tensor: in blocks for tensors of these roles, in others if a layer keeps it."""
    writer = writers(program)

    def pool(t: Tensor) -> str | None:
        if t.role in reused:
            return "block"
        return "kept" if t.role is Role.EXTRA and travels(t, writer[t]) else None

    return pool


# ---- reuse within a layer


def over_activations(
    program: Program, share: Share, held: bool, listed: Callable[[Op, Tensor], bool] = lambda op, x: True
) -> Share:
    """`share`, extended by {gradient that a layer writes: the activation below the layer whose bytes it takes}.

    That is legal if every tensor in those bytes has had its last access before; it then needs no kernel's permission.
    Unless activations are `held` anyway, backward must have read the activation: else its bytes would be kept for
    nothing. And `listed` must accept it: the op that writes the gradient, and the activation.
    """
    fixed = program.fixed
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
    result = dict(share)
    for p, op in enumerate(program.ops):
        if op.during is not Pass.BACKWARD:
            continue
        for dx in op.writes:
            if dx.role is not Role.GRADIENT or dx in result or dx in fixed or first[dx] < p:
                continue
            for x in bottoms[op.layer]:
                there = held or program.ops[used[x]].during not in FORWARD
                fits = there and x not in fixed and x.nbytes == dx.nbytes and last[of(x)] < p
                if fits and listed(op, x):
                    result[dx] = x
                    _join(root, last, of(dx), of(x))
                    break
    return result


def _join(root: dict[Tensor, Tensor], last: dict[Tensor, Point], a: Tensor, b: Tensor) -> None:
    """Note that `a` takes the bytes of `b` from here on."""
    if a != b:
        root[a] = b
        last[b] = max(last[a], last[b])
