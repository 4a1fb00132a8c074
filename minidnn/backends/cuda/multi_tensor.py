"""One launch for many tensors (kernels/multi_tensor.cuh): how their pieces are numbered, and what its tables point
to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import TypeVar

import numpy as np

from minidnn.backends.cuda.recipe import BLOCK, MOST_BLOCKS, Launch, Read, Scalar, Table, Write, int32
from minidnn.program import Op, Tensor

PIECE = BLOCK * 16  # values of a piece, as in kernels/multi_tensor.cuh

S = TypeVar("S")


def batches(of: Sequence[S], most: int) -> Iterator[Sequence[S]]:
    """The values in order, `most` at a time."""
    return (of[i : i + most] for i in range(0, len(of), most))


def places(op: Op) -> tuple[dict[Tensor, Read], dict[Tensor, Write]]:
    """How the op's launches point to its tensors: those that it reads, and those that it writes."""
    return {t: Read(i) for i, t in enumerate(op.reads)}, {t: Write(i) for i, t in enumerate(op.writes)}


def firsts(counts: Sequence[int]) -> tuple[np.int32, ...]:
    """For each count the sum of those before it: the number of a tensor's first piece."""
    return tuple(int32(n) for n in (0, *accumulate(counts))[: len(counts)])


def wide(tensors: Sequence[Tensor]) -> tuple[np.uint8, ...]:
    """Which of these are float32, whatever the format of the launch's other tensors."""
    return tuple(np.uint8(t.dtype == "float32") for t in tensors)


def by_pieces(
    source: str,
    kernel: str,
    most: int,
    sized: Sequence[Tensor],
    tensors: Sequence[tuple],
    numbers: Sequence[tuple] = (),
    *more: Scalar,
) -> Launch:
    """The launch of a kernel over the pieces of tensors of these sizes. Its table has columns of pointers, `tensors`;
    then the sizes and the first pieces; then `numbers`. `more`: the arguments behind the table and its counts."""
    pieces = [-(-t.size // PIECE) for t in sized]
    table = Table(most, (*tensors, tuple(np.int64(t.size) for t in sized), firsts(pieces), *numbers))
    counts = int32(len(sized)), int32(sum(pieces))
    return Launch(source, kernel, (table, *counts, *more), min(sum(pieces), MOST_BLOCKS))
