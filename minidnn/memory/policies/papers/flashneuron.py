"""FlashNeuron-style offloading: a linear selection of tensors that leave in forward (Bae, Lee, Jin, Son, Kim, Jang,
Ham, Lee: "FlashNeuron: SSD-Enabled Large-Batch Training of Very Deep Neural Networks", FAST 2021, its offloading
scheduler).

The paper's backing store is an SSD, whose writes are slow. So its scheduler picks as few tensors as it can:

  1. Tensors are selected in the order in which forward makes them, until the rest fits into memory. If their offload
     takes no longer than forward, that is the plan.
  2. Else compressible tensors are selected first, since fewer of their bytes travel. These are the results of ReLUs,
     which have many zeros.

An offload begins as soon as the tensor is made, and beside other ops. Compute waits for it where the bytes are wanted.
Tensors come back in backward ahead of their use.

We deviate: nothing is packed on the way. The original packs on the GPU, and as half-precision numbers for the copy.
That would change bits. So a compressible tensor takes as long as any other of its size. The second selection is taken
only if its predicted step is quicker than the first one's.

Where the paper is silent we read it so:

- A copy takes the time of the link to the host, or of the disk where one is given (`--disk`) that is slower.
- A tensor comes back as late as its copy stays hidden, by AccUDNN's model (memory/policies/shared/swap_model.py).
- Small tensors stay: those 1000 times smaller than the largest.
- Live bytes decide. If the placed arena exceeds the budget, tensors are selected again for that much less memory.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import replace

from minidnn.costs import Costs
from minidnn.memory.plan import OffloadInterval, Plan
from minidnn.memory.policies.shared.algorithms import Algorithms, choose
from minidnn.memory.policies.shared.probe import over
from minidnn.memory.policies.shared.swap_model import Candidate, Model
from minidnn.program import Program, Tensor

ATTEMPTS = 5  # sizes of memory that are selected for
RELUS = frozenset({"relu.forward", "relu.relu", "aten.relu"})
SLACKS = (8, 0)  # most ops that a tensor stays beyond its last use, or comes back before its first


def flashneuron(program: Program, costs: Costs, budget: int, algorithms: Algorithms = "m") -> Plan:
    """The first maps are offloaded until the rest fits.

    If no selection keeps the budget, the leanest plan is returned, and the refusal names it.
    """
    model = Model(program, behind(costs), choose(program, costs, algorithms))

    def exceeds(offloads: Sequence[OffloadInterval]) -> int:
        return over(program, costs, replace(model.plan, offloads=tuple(offloads)), budget)

    if exceeds(()) <= 0:
        return model.plan
    leanest = tuple(model.narrowest())
    least = int(model.curve(leanest).max(initial=0))
    room = budget
    for _ in range(ATTEMPTS):
        offloads = selected(program, model, room)
        if offloads is None:
            break
        much = exceeds(offloads)
        if much <= 0:
            return replace(model.plan, offloads=tuple(offloads))
        for slack in SLACKS:
            shorter = list(model.tightened(offloads, slack))
            if exceeds(shorter) <= 0:
                return replace(model.plan, offloads=tuple(shorter))
        if room == least:
            break
        room = max(least, min(room, model.predict(offloads).peak) - much)
    return replace(model.plan, offloads=leanest)


def behind(costs: Costs) -> Costs:
    """The costs with copies as slow as the disk behind the host, where there is one."""
    disk = None if costs.staging is None else costs.staging.disk
    if disk is None:
        return costs
    slowest = min(costs.bandwidth_out, disk.write_rate), min(costs.bandwidth_in, disk.read_rate)
    return replace(costs, bandwidth_out=slowest[0], bandwidth_in=slowest[1])


def selected(program: Program, model: Model, memory: int) -> list[OffloadInterval] | None:
    """The offload intervals that the two phases select, so that live bytes fit into `memory`; None if no selection
    does."""
    made = sorted(model.candidates, key=lambda c: -1 if c.written is None else c.written)
    first = _linear(model, made, memory)
    if first is None or offload_seconds(model, first) <= model.clock[program.forward]:
        return first
    zeros = compressible(program)
    second = _linear(model, sorted(made, key=lambda c: c.tensor not in zeros), memory)
    if second is None or model.predict(second).seconds >= model.predict(first).seconds:
        return first
    return second


def _linear(model: Model, order: Sequence[Candidate], memory: int) -> list[OffloadInterval] | None:
    """The offload intervals of as few of the first tensors of `order` as fit the rest into `memory`; None if all do not
    suffice."""
    fewest = bisect_left(range(len(order)), True, key=lambda n: model.windows(order[:n], memory) is not None)
    return model.windows(order[:fewest], memory)


def offload_seconds(model: Model, offloads: Sequence[OffloadInterval]) -> float:
    """Seconds of the copies out, one behind the other."""
    return sum(
        model.costs.latency + t.tensor.nbytes / model.costs.bandwidth_out for t in offloads if t.offload_at is not None
    )


def compressible(program: Program) -> frozenset[Tensor]:
    """The results of ReLUs, also of those that are fused with the op before them."""
    relus = [op for op in program.ops[: program.forward] if op.kind in RELUS or op.kind.endswith("_relu")]
    return frozenset(t for op in relus for t in op.writes)
