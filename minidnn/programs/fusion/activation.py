"""ReLU with the product before it, and ReLU's backward with a bias gradient.

forward, then ReLU:      a convolution or inner product and its ReLU become `<kind>_relu`: x, w (, b) -> y. The ReLU
                         must be the only reader of the top, which is then never written.
dReLU, then dbias:       a ReLU's backward and a bias gradient become `relu.backward_bias`: y, dy -> dx, db. The bias
                         belongs to a convolution, inner product or Scale, and its gradient is a sum of dx. One
                         kernel writes dx and sums it, so dx is not read back for the sum.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from minidnn.program import Op, Program, Tensor
from minidnn.programs.fusion.group import Part, Uses, rectified_from_y, rectifies

FORWARD = {
    "convolution.forward": "convolution.forward_relu",
    "inner_product.forward": "inner_product.forward_relu",
}
BIASES = ("convolution.backward_bias", "inner_product.backward_bias", "scale.backward_bias")
BACKWARD = "relu.backward_bias"
KINDS = frozenset({*FORWARD.values(), BACKWARD})


def forward(program: Program, uses: Uses) -> Iterator[list[Part]]:
    """Each forward op with its ReLU, if the ReLU alone reads the tensor between them."""
    by_top = {op.writes[0]: op for op in program.ops if op.kind in FORWARD}
    for relu in filter(rectifies, program.ops):
        (x,), (y,) = relu.reads, relu.writes
        op = by_top.get(x)
        if op is None or not uses.hidden(x, relu):
            continue
        kind, name = FORWARD[op.kind], f"{op.layer}+{relu.layer}.forward"
        yield [((op, relu), replace(op, name=name, kind=kind, writes=(y,), flops=op.flops + relu.flops))]


def backward(program: Program) -> Iterator[list[Part]]:
    """Each ReLU's backward with a bias gradient that reads its dx: the first one, if there are several."""
    by_gradient: dict[Tensor, Op] = {}
    for op in program.ops:
        if op.kind in BIASES:
            by_gradient.setdefault(op.reads[0], op)
    for relu in filter(rectified_from_y, program.ops):
        (dx,) = relu.writes
        bias = by_gradient.get(dx)
        if bias is None or (bias.kind == "inner_product.backward_bias" and len(dx.shape) != 2):
            continue  # the fused kernel sums over all axes but axis 1, which is the last only of two
        one = replace(
            relu, name=f"{relu.layer}+{bias.layer}.backward_bias", kind=BACKWARD, layer=bias.layer,
            writes=(dx, *bias.writes), attrs=None, flops=relu.flops + bias.flops,
        )  # fmt: skip
        yield [((relu, bias), one)]
