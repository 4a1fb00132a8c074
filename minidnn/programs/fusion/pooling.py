"""MAX pooling's backward with that of the ReLU before the pooling.

They become `pooling.backward_relu`: index, y, dy -> dx. Here y is the pooling's top: at a maximum it has the sign of
the pooled value, and elsewhere dx is 0. So the ReLU's y, which is much larger, is not kept for backward.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from minidnn.program import Op, Program
from minidnn.programs.fusion.group import Part, Uses, rectified_from_y

POOLED = "pooling.backward_relu"


def backward(program: Program, uses: Uses) -> Iterator[list[Part]]:
    """MAX pooling's backward by an index with that of the ReLU before it, if this alone reads the gradient between."""
    forward = {op.writes[1]: op for op in program.ops if op.kind == "pooling.forward" and len(op.writes) == 2}
    by_gradient = {op.writes[0]: op for op in program.ops if op.kind == "pooling.backward" and op.reads[0] in forward}
    for relu in filter(rectified_from_y, program.ops):
        x, dx = relu.reads
        pool = by_gradient.get(dx)
        if pool is None or not uses.hidden(dx, relu):
            continue
        if forward[pool.reads[0]].reads == (x,):
            one = rectified(pool, forward[pool.reads[0]], relu.layer, relu.flops)
            yield [((pool, relu), replace(one, writes=relu.writes))]


def rectified(pool: Op, forward: Op, layer: str, flops: int) -> Op:
    """The pooling's backward with that of the ReLU before it, which belongs to this layer and takes so many flops."""
    (index, dy), (y, _) = pool.reads, forward.writes
    name = f"{pool.layer}+{layer}.backward"
    return replace(pool, name=name, kind=POOLED, reads=(index, y, dy), flops=pool.flops + flops)
