"""Fusion: a pass over a Program that makes one op of two where the first one's result need not be read from memory
again. It comes before planning, so that policies, costs, listings and the proof see fused ops as any other.

  forward, then ReLU:      a convolution or inner product, and the ReLU that alone reads its top, become
                           `<kind>_relu`: x, w (, b) -> y. What lay between them is never written.
  dReLU, then dbias:       a ReLU's backward, and a bias gradient that reads what it writes (of a convolution, inner
                           product or Scale), become `relu.backward_bias`: y, dy -> dx, db. dx is not read again.

Only ReLUs of slope 0 whose backward reads y. Which fused ops there are is the device's to say, op by op (`fuses`): what
it has no kernel for stays as it was. A fused op belongs to the layer that has the parameters, and stands where the
first of the two stood.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from minidnn.program import Op, Program, Tensor

Fuses = Callable[[Op], bool]  # whether a device has a kernel for this fused op

FORWARD = {
    "convolution.forward": "convolution.forward_relu",
    "inner_product.forward": "inner_product.forward_relu",
}
BIASES = ("convolution.backward_bias", "inner_product.backward_bias", "scale.backward_bias")
BACKWARD = "relu.backward_bias"
KINDS = frozenset({*FORWARD.values(), BACKWARD})  # of fused ops


def as_cudnn(op: Op) -> bool:
    """`fuses` of a GPU that need not be here: cuDNN's own kernels have a ReLU where they add a bias."""
    return op.kind == BACKWARD or len(op.reads) == 3


def offered(device: Any) -> Fuses | None:
    """What the device says; None of one that fuses nothing."""
    return getattr(device, "fuses", None)


def fused(program: Program, fuses: Fuses | None) -> Program:
    """The program with pairs of ops made one where `fuses` says so; it computes the same values but for those that
    nobody reads any more."""
    if fuses is None:
        return program
    pairs = [*_forward(program), *_backward(program)]
    becomes: dict[Op, Op | None] = {}
    for first, second, one in pairs:
        if first not in becomes and second not in becomes and fuses(one):
            becomes[first], becomes[second] = one, None
    ops = [new for op in program.ops if (new := becomes.get(op, op)) is not None]
    made = replace(program, ops=tuple(ops))
    made.check()
    return made


def kinds(program: Program) -> list[str]:
    """The kinds of fused ops in a program."""
    return sorted(KINDS & {op.kind for op in program.ops})


def _forward(program: Program) -> list[tuple[Op, Op, Op]]:
    """(forward, ReLU, the one op) for each pair with nothing else that knows what lies between."""
    readers = Counter(t for op in program.ops for t in op.reads)
    known = {*program.outputs, *program.carried}
    by_top = {op.writes[0]: op for op in program.ops if op.kind in FORWARD}
    found = []
    for relu in program.ops:
        if relu.kind != "relu.forward" or len(relu.writes) > 1 or relu.attrs.negative_slope != 0:
            continue
        (x,), (y,) = relu.reads, relu.writes
        op = by_top.get(x)
        if op is None or readers[x] > 1 or x in known:
            continue
        kind, name = FORWARD[op.kind], f"{op.layer}+{relu.layer}.forward"
        one = replace(op, name=name, kind=kind, writes=(y,), flops=op.flops + relu.flops)
        found.append((op, relu, one))
    return found


def _backward(program: Program) -> list[tuple[Op, Op, Op]]:
    """(ReLU's backward, bias gradient, the one op). Where several biases have one gradient, the first."""
    by_gradient: dict[Tensor, Op] = {}
    for op in program.ops:
        if op.kind in BIASES:
            by_gradient.setdefault(op.reads[0], op)
    found = []
    for relu in program.ops:
        if relu.kind != "relu.backward" or relu.attrs.negative_slope != 0 or relu.attrs.saved != "y":
            continue
        (dx,) = relu.writes
        bias = by_gradient.get(dx)
        if bias is None:
            continue
        one = replace(
            relu, name=f"{relu.layer}+{bias.layer}.backward_bias", kind=BACKWARD, layer=bias.layer,
            writes=(dx, *bias.writes), attrs=None, flops=relu.flops + bias.flops,
        )  # fmt: skip
        found.append((relu, bias, one))
    return found
