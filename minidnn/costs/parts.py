"""Seconds of ops in parts of the batch (memory/parts/), derived from measurements of the whole ops.

`minidnn profile` measures the ops of a net as they stand. Planning makes parts of them by the hundred, so those are not
measured each:

- A part takes its share of the rows of what its op takes beyond its start. A start takes as long as the quickest op.
- Copies and sums between parts (PART_COPIES) go by their bytes, at the rates of three large ones. Those are measured
  once for each device.
"""

from __future__ import annotations

from collections.abc import Mapping

from minidnn.program import Op, Pass, Rows, Tensor

SIDE = 1 << 11  # rows, and columns: tensors of 16 MiB do not stay in a core's cache


def _large_copy(kind: str, reads: tuple[int, ...], writes: int) -> Op:
    """An op of this kind over tensors with so many rows."""
    some = [Tensor(f"x{i}", (rows, SIDE)) for i, rows in enumerate((*reads, writes))]
    attrs = None if kind == "gradient.add" else Rows((0, reads[0])[: len(reads)])
    flops = some[-1].size
    return Op(f"{kind} of parts", kind, "parts", Pass.BACKWARD, tuple(some[:-1]), (some[-1],), attrs, flops=flops)


HALF = SIDE // 2
PART_COPIES: Mapping[str, Op] = {
    op.kind: op
    for op in (
        _large_copy("concat.forward", (HALF, HALF), SIDE), _large_copy("concat.backward", (SIDE,), HALF),
        _large_copy("gradient.add", (HALF, HALF), HALF),
    )
}  # fmt: skip


def share(op: Op, whole: float, start: float) -> float:
    """Seconds of an op that is a part, from those of its whole op and those of a start, whichever is less."""
    of = op.whole
    pairs = zip((*op.reads, *op.writes), (*of.reads, *of.writes), strict=True)
    part = next((t.shape[0] / all_of.shape[0] for t, all_of in pairs if t.shape != all_of.shape), 1.0)
    return min(whole, start) + max(0.0, whole - start) * part


def part_copy(op: Op, large: float, start: float) -> float:
    """Seconds of a copy or a sum of a kind in PART_COPIES, from those of the large one and those of a start."""
    return start + max(0.0, large - start) * op.nbytes / PART_COPIES[op.kind].nbytes
