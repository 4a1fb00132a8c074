"""Seconds of ops in parts of the batch (memory/parts/), derived from measurements of the whole ops.

`minidnn profile` measures the ops of a net as they stand. Planning makes parts of them by the hundred, so those are not
measured each:

- A part takes its share of the rows of what its op takes beyond its start. A start takes as long as the quickest op.
  One of a pass (memory/parts/passes.py) takes the share that its bytes are of both passes'.
- Copies and sums between parts (PART_COPIES) go by their bytes, at the rates of three large ones. Those are measured
  once for each device. What is merged is so at the rate of sums.
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


# What a BatchNorm in one op reads twice all the same: x; x and dy.
_TWICE = {"batch_norm.forward": (0,), **{f"batch_norm.backward{b}": (0, -1) for b in ("", "_scale", "_scale_relu")}}


def share(op: Op, whole: float, start: float) -> float:
    """Seconds of an op that is a part, from those of its whole op and those of a start, whichever is less."""
    return min(whole, start) + max(0.0, whole - start) * _fraction(op)


def _fraction(op: Op) -> float:
    """The part of an op's work that a part of it does: of its rows, or of the bytes that its passes read and write."""
    if op.part is not None and (twice := op.part.within) is not None:
        return op.nbytes / (twice.nbytes + sum(twice.reads[i].nbytes for i in _TWICE[twice.kind]))
    pairs = zip((*op.reads, *op.writes), (*op.whole.reads, *op.whole.writes), strict=True)
    return next((t.size / of.size for t, of in pairs if t.shape != of.shape), 1.0)


def large_copy(op: Op) -> Op:
    """The large op whose rate this copy has, or this sum between parts. Raises KeyError for any other op."""
    return PART_COPIES["gradient.add" if op.kind.startswith("batch_norm.merge_") else op.kind]


def part_copy(op: Op, large: float, start: float) -> float:
    """Seconds of a copy or a sum between parts, from those of the large one and those of a start."""
    return start + max(0.0, large - start) * op.nbytes / large_copy(op).nbytes
