"""ZeRO-Offload (Ren, Rajbhandari, Aminabadi, Ruwase, Yang, Zhang, Li, He: "ZeRO-Offload: Democratizing Billion-Scale
Model Training", USENIX ATC 2021), its schedule for a single GPU (section 4.1). ZeRO-Offload-style: the deviations are
below.

The optimizer's state and the weights live on the host, and so does their update. Forward and backward run on the
device. A gradient goes out as soon as it is made, beside the backward pass, and its bytes are free once it has gone.
The host updates each weight as soon as its gradient is there. The device gets the new weights.

Where this deviates:

- Weights come at the beginning of the next step, in the order of their uses. In the paper they come at the end of this
  one. So their copies hide behind forward. Each weight stays until its last use.
- The paper trains in 16 bits, and the host converts the new weights. Here the host runs updates in float32 alone.
  Those of 16 bits stay on the device.
- One-step delayed update (section 5.2) runs forward with weights that are a step old. That changes the numbers, so
  there is none.
- The paper's CPU-Adam (section 5.1) is our C kernel (backends/cpu/native/rules.c).
- The device makes norms of gradients, for clipping and for LARS.
- All updates stay on the device if the host lacks a kernel with the device's bits for one of them (Costs.by_host), as
  with LAMB on a GPU. They do so among several ranks, too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import accumulate

from minidnn.costs import Costs
from minidnn.memory.plan import OffloadInterval, Plan, Point, in_place_sharing
from minidnn.memory.policies.shared.algorithms import Algorithms, choose
from minidnn.program import Algorithm, Op, Pass, Program, Role, Tensor


def zero_offload(program: Program, costs: Costs, budget: int, algorithms: Algorithms = "m") -> Plan:
    """Gradients go out; the host updates the weights."""
    algorithm = choose(program, costs, algorithms)
    host_ops = updates(program, costs, algorithm)
    host_resident = program.movable.intersection(t for op in host_ops for t in op.tensors)
    program = program.with_host_resident(host_resident)
    offloads = [*_gradients(program, costs, algorithm, host_ops), *_weights(program, host_ops)]
    return Plan(
        offloads=tuple(offloads),
        algorithm=algorithm,
        share=in_place_sharing(program),
        host_resident=host_resident,
        host_ops=host_ops,
    )


def updates(program: Program, costs: Costs, algorithm: Mapping[Op, Algorithm]) -> frozenset[Op]:
    """The ops that the host runs: those that change a weight or the optimizer's state, and those that read what these
    make. None if the host cannot run them all: it has no workspaces."""
    steps = [op for op in program.ops if op.during is Pass.UPDATE]
    weights = {t for op in steps for t in op.writes if t.role is Role.PARAM}
    lasting = {t for op in steps if weights & {*op.tensors} for t in op.writes if t.role in (Role.PARAM, Role.STATE)}
    made: set[Tensor] = set()
    result: list[Op] = []
    for op in steps:
        if lasting & {*op.writes} or made & {*op.reads}:
            result.append(op)
            made.update(op.writes)
    able = all(costs.by_host(op) is not None and not algorithm[op].workspace for op in result)
    return frozenset(result if able and not any(op.on_net for op in program.ops) else ())


def _gradients(
    program: Program, costs: Costs, algorithm: Mapping[Op, Algorithm], host_ops: Collection[Op]
) -> Iterator[OffloadInterval]:
    """A gradient leaves when it has been made, and so does all else that the host's updates read. Its bytes are free at
    the first execution that is predicted to begin after the copy, so that compute need not wait."""
    ops, end = program.ops, len(program.ops)
    fixed = program.fixed | {t for op in host_ops for t in op.writes}
    wanted = {t for op in host_ops for t in op.reads} - fixed
    made: dict[Tensor, Point] = {}
    read: set[Tensor] = set()  # by the host
    for p, op in enumerate(ops):
        if op in host_ops:
            read.update(op.reads)
        else:
            made |= {t: p for t in op.writes if t in wanted and t not in read}
    last = {t: p for p, op in enumerate(ops) if op not in host_ops for t in op.tensors if t in wanted}
    taken = (0.0 if op in host_ops else costs.seconds(op, algorithm[op]) for op in ops)
    begins = list(accumulate(taken, initial=0.0))
    link = 0.0  # when the link is free
    for t, p in sorted(made.items(), key=lambda item: item[1]):
        link = max(link, begins[p + 1]) + costs.latency + t.nbytes / costs.bandwidth_out
        free = next((q for q in range(last[t] + 2, end) if begins[q] >= link), end)
        yield OffloadInterval(t, p + 1, min(max(free, p + 1), end), None, None)


@dataclass
class _Part:
    """The uses of a tensor by the device between two writes by the host."""

    ready: Point  # the host has its value from here on
    uses: list[Point] = field(default_factory=list)
    comes: bool = False  # whether the first of these reads that value
    changed: Point | None = None  # behind the last op of these that writes it

    @property
    def over(self) -> Point:
        return max(self.uses[-1] + 1, self.changed or 0)


def _weights(program: Program, host_ops: Collection[Op]) -> Iterator[OffloadInterval]:
    """A weight comes when the step begins, and stays until its last use. So does all else that lives on the host, if
    the device reads it before it writes it. If uses follow a write by the host, the new value comes as soon as it is
    made."""
    parts: dict[Tensor, list[_Part]] = {t: [_Part(0)] for t in program.host_resident}
    for p, op in enumerate(program.ops):
        for t in op.tensors:
            if t not in parts:
                continue
            part = parts[t][-1]
            if op not in host_ops:
                part.comes |= not part.uses and t in op.reads
                part.uses.append(p)
                part.changed = p + 1 if t in op.writes else part.changed
            elif t in op.writes:
                parts[t].append(_Part(p + 1))
    for t, every in parts.items():
        former: _Part | None = None
        for part in every:
            if not part.uses:
                continue
            out, free = (None, None) if former is None else (former.changed, former.over)
            if part.comes:
                yield OffloadInterval(t, out, free, max(part.ready, free or 0), part.uses[0])
            elif free is not None:
                yield OffloadInterval(t, out, free, None, None)
            former = part
        if former is not None:
            yield OffloadInterval(t, former.changed, former.over, None, None)
