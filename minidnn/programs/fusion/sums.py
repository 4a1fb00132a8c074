"""Sums of tensors, with the ReLU behind them: where branches join, and where gradients meet.

sum, then ReLU:    an Eltwise SUM and its ReLU become `eltwise.forward_relu`: x1 .. xn -> y. The ReLU must be the only
                   reader of the sum. (A sum of a BatchNorm's result and a shortcut is normalization.py's.)
adds:              gradients that meet at a fork are added in pairs as they arrive. A row of such adds becomes one
                   `gradient.sum`: dx1 .. dxn -> dx.
adds, then dReLU:  one add or a row, and the backward of the ReLU whose y forks, become `gradient.sum_relu`:
                   y, dx1 .. dxn -> dx.

A residual block has the first and the last. A fused sum reads each tensor once, and stores no sum in between. It adds
in the order of the pairs, so it gives their bits in float32. In 16 bits it rounds once, where they round each sum.

The sum of a row takes the place of the last add, so its operands wait for the last of them. It has at most MOST
operands. So at most MOST - 2 more tensors are alive than with pairs, for a part of one fork's backward. In googlenet
and the inceptions, the nets of the zoo that have such forks, the live peak is elsewhere and stays as it was.

A fused op with a ReLU belongs to the ReLU's layer, forward and backward alike.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from minidnn.program import Op, Program, Tensor
from minidnn.programs.fusion.group import Part, Uses, rectified_from_y, rectifies

MOST = 4  # operands of a fused sum: a kernel reads them all at once
FORWARD, SUM, BACKWARD = "eltwise.forward_relu", "gradient.sum", "gradient.sum_relu"
KINDS = frozenset({FORWARD, SUM, BACKWARD})


def adds_two(op: Op) -> bool:
    """Whether the op is the plain sum of two bottoms."""
    return (
        op.kind == "eltwise.forward"
        and op.attrs.operation == "SUM"
        and op.attrs.coeff == (1, 1)
        and len({*op.reads}) == 2
    )


def forward(program: Program, uses: Uses) -> Iterator[list[Part]]:
    """Each Eltwise SUM of at most MOST bottoms with its ReLU, if the ReLU alone reads the sum."""
    eltwise = [op for op in program.ops if op.kind == "eltwise.forward" and op.attrs.operation == "SUM"]
    by_top = {op.writes[0]: op for op in eltwise if len(op.reads) <= MOST}
    for relu in filter(rectifies, program.ops):
        (x,), (y,) = relu.reads, relu.writes
        op = by_top.get(x)
        if op is None or not uses.hidden(x, relu):
            continue
        one = replace(
            op, name=f"{op.layer}+{relu.layer}.forward", kind=FORWARD, layer=relu.layer, writes=(y,),
            inplace=tuple((t, y) for t, _ in op.inplace), flops=op.flops + relu.flops,
        )  # fmt: skip
        yield [((op, relu), one)]


def backward(program: Program, uses: Uses) -> Iterator[list[Part]]:
    """Each row of adds with the ReLU's backward behind it. Then each row alone, for where that is in another group."""
    for adds in _rows(program, uses):
        summed = _sum(adds)
        (dx,) = summed[1].writes
        relu = uses.reader(dx, "relu.backward")
        if relu and rectified_from_y(relu) and uses.hidden(dx, relu):
            yield [_rectified(summed, relu)]
        if len(adds) > 1:
            yield [summed]


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
    return (last, *adds[:-1]), replace(
        last, name=f"{layers}.sum_{dx.name}", kind=SUM, reads=parts, flops=sum(op.flops for op in adds),
        inplace=tuple((t, dx) for op in adds for t, _ in op.inplace if t in parts),
    )  # fmt: skip


def _rectified(summed: Part, relu: Op) -> Part:
    """A sum with the backward of the ReLU, from y."""
    (adds, one), (y, _), (dx,) = summed, relu.reads, relu.writes
    return (*adds, relu), replace(
        one, name=f"{one.layer}+{relu.layer}.backward_sum", kind=BACKWARD, layer=relu.layer, reads=(y, *one.reads),
        writes=(dx,), inplace=tuple((t, dx) for t, _ in one.inplace), flops=one.flops + relu.flops,
    )  # fmt: skip
