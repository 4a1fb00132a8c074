"""A program in which Concat copies nothing: its inputs are slices of its output.

Consumers of the output read the slices. The layers below a slice read its gradient out of the whole gradient.
"""

from __future__ import annotations

from dataclasses import replace

from minidnn.costs import Choice, Costs
from minidnn.program import Op, Program, Tensor


def sliced(program: Program, costs: Costs) -> tuple[Program, Costs]:
    """`program` without its Concat ops, and `costs` for it, in which every op costs what it cost in `program`."""
    parts: dict[Tensor, tuple[Tensor, ...]] = {}  # {an output: its slices}
    whole: dict[Tensor, Tensor] = {}  # {gradient of a slice: that of the output}
    original: dict[Op, Op] = {}
    ops: list[Op] = []
    for op in program.ops:
        if op.kind == "concat.forward":
            parts[op.writes[0]] = tuple(s for t in op.reads for s in parts.get(t, (t,)))
        elif op.kind == "concat.backward":
            whole.update((dx, whole.get(op.reads[0], op.reads[0])) for dx in op.writes)
        else:
            reads = tuple(s for t in op.reads for s in parts.get(t, (whole.get(t, t),)))
            kept = tuple((r, w) for r, w in op.inplace if r in reads and r.nbytes == w.nbytes)
            changed = op if reads == op.reads else replace(op, reads=reads, inplace=kept)
            original[changed] = op
            ops.append(changed)

    def choices(op: Op) -> tuple[Choice, ...]:
        return costs.choices(original.get(op, op))

    return replace(program, ops=tuple(ops)), replace(costs, choices=choices)
