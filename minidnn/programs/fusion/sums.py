"""Sums of gradients.

Gradients that meet at a fork are added in pairs as they arrive. A row of such adds becomes one `gradient.sum`:
dx1 .. dxn -> dx. It reads each gradient once, and the sums in between are never stored. It adds in the order of the
pairs, so it gives their bits in float32. In 16 bits it rounds once, where they round each sum.

The fused op takes the place of the last add, so its operands wait for the last of them. It has at most MOST operands.
So at most MOST - 2 more tensors are alive than with pairs, for a part of one fork's backward. In googlenet and the
inceptions, the nets of the zoo that have such forks, the live peak is elsewhere and stays as it was.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from minidnn.program import Op, Program, Tensor
from minidnn.programs.fusion.group import Part, Uses

MOST = 4  # operands of a fused sum: a kernel reads them all at once
SUM = "gradient.sum"


def backward(program: Program, uses: Uses) -> Iterator[list[Part]]:
    """The adds of each fork, up to MOST operands at a time."""
    for adds in _rows(program, uses):
        if len(adds) > 1:
            yield [_sum(adds)]


def _rows(program: Program, uses: Uses) -> list[list[Op]]:
    """Each add of gradients, in a row with those before it. An add joins the row whose sum it alone reads, as its first
    operand. A row has at most MOST - 1 adds."""
    rows: dict[Tensor, list[Op]] = {}  # by the sum that the last add writes
    for op in program.ops:
        if op.kind == "gradient.add":
            before, more = op.reads
            joins = before in rows and len(rows[before]) < MOST - 1 and before != more and uses.hidden(before, op)
            rows[op.writes[0]] = [*(rows.pop(before) if joins else ()), op]
    return list(rows.values())


def _sum(adds: list[Op]) -> Part:
    """A row of adds, and the op that takes the place of the last."""
    last, (dx,) = adds[-1], adds[-1].writes
    parts = (*adds[0].reads, *(op.reads[1] for op in adds[1:]))
    layers = "+".join(dict.fromkeys(op.layer for op in adds))
    pairs = tuple((t, dx) for op in adds for t, _ in op.inplace if t in parts)
    flops = sum(op.flops for op in adds)
    one = replace(last, name=f"{layers}.sum_{dx.name}", kind=SUM, reads=parts, inplace=pairs, flops=flops)
    return (last, *adds[:-1]), one
