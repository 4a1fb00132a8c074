"""Fusion: a pass over a Program that replaces a group of ops by one op, so that a tensor between them is never stored.
It runs before planning, so policies, costs, listings and the proof treat a fused op like any other.

  forward, then ReLU:      a convolution or inner product and its ReLU become `<kind>_relu`: x, w (, b) -> y. The ReLU
                           must be the only reader of the top, which is then never written.
  dReLU, then dbias:       a ReLU's backward and a bias gradient become `relu.backward_bias`: y, dy -> dx, db. The bias
                           belongs to a convolution, inner product or Scale, and its gradient is a sum of dx. One
                           kernel writes dx and sums it, so dx is not read back for the sum.
  dPooling, then dReLU:    MAX pooling's backward by an index and the backward of the ReLU below the pooling become
                           `pooling.backward_relu`: index, y, dy -> dx. Here y is the pooling's top: at a maximum it
                           has the sign of the pooled value, and elsewhere dx is 0. So the ReLU's y, which is much
                           larger, is not kept for backward. If the ReLU could also be fused with a bias gradient,
                           the pooling goes first.
  BatchNorm, Scale (ReLU): become `batch_norm.forward_scale(_relu)`: x, gamma, beta -> y, mean, variance. With running
                           statistics the kind is `batch_norm.inference_scale(_relu)`. All of their backward becomes
                           `batch_norm.backward_scale(_relu)`: x, mean, variance, gamma, beta, dy -> dx, dgamma, dbeta.
                           Backward recomputes the normalized x and the sign of the ReLU's input, so neither is
                           stored. If another op reads one of them, the group is fused neither forward nor backward.

A ReLU is fused only if its slope is 0 and its backward, if fused, reads y. The device decides for each fused op whether
it has a kernel (`fuses`); if not, the ops stay separate. A fused op belongs to the layer that has the parameters, and
takes the place of its group's first op.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from minidnn.program import Op, Program, Tensor

Fuses = Callable[[Op], bool]  # says whether a device has a kernel for this fused op

FORWARD = {
    "convolution.forward": "convolution.forward_relu",
    "inner_product.forward": "inner_product.forward_relu",
}
BIASES = ("convolution.backward_bias", "inner_product.backward_bias", "scale.backward_bias")
BACKWARD = "relu.backward_bias"
POOLED = "pooling.backward_relu"
NORMALIZED = ("batch_norm.forward", "batch_norm.inference")
SCALED = frozenset(f"{kind}_scale{relu}" for kind in (*NORMALIZED, "batch_norm.backward") for relu in ("", "_relu"))
KINDS = SCALED | {*FORWARD.values(), BACKWARD, POOLED}  # all kinds of fused ops

Part = tuple[tuple[Op, ...], Op]  # (a group of ops in the program's order, the fused op that replaces them)


def as_cudnn(op: Op) -> bool:
    """`fuses` for plans for a GPU, made on a machine without one: cuDNN fuses a ReLU into ops that have a bias."""
    return op.kind == BACKWARD or (op.kind in FORWARD.values() and len(op.reads) == 3)


def fused(program: Program, fuses: Fuses | None) -> Program:
    """The program with groups of ops replaced by fused ops where `fuses` permits; None: the program itself.

    It computes the same values, except the tensors inside a group, which no op reads any more."""
    if fuses is None:
        return program
    becomes: dict[Op, Op | None] = {}
    for parts in (*_normalizations(program), *_pooled(program), *_forward(program), *_backward(program)):
        taken = any(op in becomes for ops, _ in parts for op in ops)
        if not taken and all(fuses(one) for _, one in parts):
            for ops, one in parts:
                becomes |= dict.fromkeys(ops)
                becomes[ops[0]] = one
    made = replace(program, ops=tuple(new for op in program.ops if (new := becomes.get(op, op)) is not None))
    made.check()
    return made


def kinds(program: Program) -> list[str]:
    """The kinds of fused ops in a program, sorted, each once."""
    return sorted(KINDS & {op.kind for op in program.ops})


def _forward(program: Program) -> Iterator[list[Part]]:
    """Each forward op with its ReLU, if the ReLU alone reads the tensor between them."""
    readers = Counter(t for op in program.ops for t in op.reads)
    known = {*program.outputs, *program.carried}
    by_top = {op.writes[0]: op for op in program.ops if op.kind in FORWARD}
    for relu in program.ops:
        if not _rectifies(relu):
            continue
        (x,), (y,) = relu.reads, relu.writes
        op = by_top.get(x)
        if op is None or readers[x] > 1 or x in known:
            continue
        kind, name = FORWARD[op.kind], f"{op.layer}+{relu.layer}.forward"
        yield [((op, relu), replace(op, name=name, kind=kind, writes=(y,), flops=op.flops + relu.flops))]


def _rectifies(op: Op) -> bool:
    return op.kind == "relu.forward" and len(op.writes) == 1 and op.attrs.negative_slope == 0


def _rectified_from_y(op: Op) -> bool:
    return op.kind == "relu.backward" and op.attrs.negative_slope == 0 and op.attrs.saved == "y"


def _backward(program: Program) -> Iterator[list[Part]]:
    """Each ReLU's backward with a bias gradient that reads its dx: the first one, if there are several."""
    by_gradient: dict[Tensor, Op] = {}
    for op in program.ops:
        if op.kind in BIASES:
            by_gradient.setdefault(op.reads[0], op)
    for relu in program.ops:
        if not _rectified_from_y(relu):
            continue
        (dx,) = relu.writes
        bias = by_gradient.get(dx)
        if bias is None:
            continue
        one = replace(
            relu, name=f"{relu.layer}+{bias.layer}.backward_bias", kind=BACKWARD, layer=bias.layer,
            writes=(dx, *bias.writes), attrs=None, flops=relu.flops + bias.flops,
        )  # fmt: skip
        yield [((relu, bias), one)]


def _pooled(program: Program) -> Iterator[list[Part]]:
    """MAX pooling's backward with that of the ReLU below it, if that ReLU alone reads the gradient between them."""
    readers = Counter(t for op in program.ops for t in op.reads)
    known = {*program.outputs, *program.carried}
    forward = {op.writes[1]: op for op in program.ops if op.kind == "pooling.forward" and len(op.writes) == 2}
    by_gradient = {op.writes[0]: op for op in program.ops if op.kind == "pooling.backward" and op.reads[0] in forward}
    for relu in program.ops:
        if not _rectified_from_y(relu):
            continue
        x, dx = relu.reads
        pool = by_gradient.get(dx)
        if pool is None or readers[dx] > 1 or dx in known:
            continue
        index, dy = pool.reads
        (pooled,), (y, _) = forward[index].reads, forward[index].writes
        if pooled == x:
            one = replace(
                pool, name=f"{pool.layer}+{relu.layer}.backward", kind=POOLED, reads=(index, y, dy),
                writes=relu.writes, flops=pool.flops + relu.flops,
            )  # fmt: skip
            yield [((pool, relu), one)]


def _normalizations(program: Program) -> Iterator[list[Part]]:
    """Each BatchNorm with its Scale, and the Scale's ReLU if any: one part forward, another for all of backward."""
    place = {op: p for p, op in enumerate(program.ops)}
    readers: dict[Tensor, list[Op]] = defaultdict(list)
    makers: dict[Tensor, Op] = {}
    for op in program.ops:
        for t in op.reads:
            readers[t].append(op)
        for t in op.writes:
            makers.setdefault(t, op)
    given, kept = {*program.inputs, *program.carried}, {*program.outputs, *program.carried}

    def reader(t: Tensor, kind: str, layer: str | None = None) -> Op | None:
        return next((op for op in readers[t] if op.kind == kind and layer in (None, op.layer)), None)

    def hidden(t: Tensor, *within: Op | None) -> bool:
        """Whether only the ops `within` read the tensor, and it is neither carried nor an output."""
        return t not in kept and all(op in within for op in readers[t])

    def part(like: Op, kind: str, ops: Sequence[Op], **changed: Any) -> Part:
        relu = "_relu" if ops[0].kind == "relu.backward" or ops[-1].kind == "relu.forward" else ""
        layers = "+".join(dict.fromkeys(op.layer for op in ops))
        flops = sum(op.flops for op in ops)
        name = f"{layers}.{like.name.rsplit('.', 1)[1]}"
        return tuple(ops), replace(like, name=name, kind=f"{kind}_scale{relu}", flops=flops, **changed)

    def forward(norm: Op, scale: Op) -> Part:
        ops, (y,) = [norm, scale], scale.writes
        relu = reader(y, "relu.forward")
        if relu and _rectifies(relu) and hidden(y, relu):
            ops, (y,) = [*ops, relu], relu.writes
        return part(
            norm, norm.kind, ops, layer=scale.layer, reads=(*norm.reads, *scale.reads[1:]),
            writes=(y, *norm.writes[1:]), inplace=tuple((x, y) for x, _ in norm.inplace),
        )  # fmt: skip

    def backward(scale: Op, dgamma: Op, rectified: bool) -> Part | None:
        dy = dgamma.reads[1]
        dbeta, data = (reader(dy, f"scale.backward_{which}", scale.layer) for which in ("bias", "data"))
        last = reader(data.writes[0], "batch_norm.backward") if data else None
        if dbeta is None or data is None or last is None or not hidden(data.writes[0], last):
            return None
        ops = [dgamma, dbeta, data, last]
        if rectified and _rectified_from_y(makers[dy]) and hidden(dy, *ops):
            ops.insert(0, makers[dy])
            dy = ops[0].reads[-1]
        (x, *statistics, _), (dx,) = last.reads, last.writes
        return part(
            last, last.kind, ops, layer=scale.layer, reads=(x, *statistics, *scale.reads[1:], dy),
            writes=(dx, *dgamma.writes, *dbeta.writes), inplace=((dy, dx), (x, dx)),
        )  # fmt: skip

    def in_time(part: Part) -> bool:
        """Whether each tensor that the fused op reads exists before the group's first op, whose place it takes."""
        (first, *_), one = part
        return all(t in given or place[makers[t]] < place[first] for t in one.reads)

    for norm in program.ops:
        scale = reader(norm.writes[0], "scale.forward") if norm.kind in NORMALIZED else None
        if scale is None or len(scale.reads) < 3 or len(scale.writes) > 1:  # no Scale; no beta; it keeps a copy of x
            continue
        dgamma = reader(norm.writes[0], "scale.backward_filter")
        if not hidden(norm.writes[0], scale, dgamma):
            continue
        parts = [forward(norm, scale)]
        if dgamma:
            back = backward(scale, dgamma, len(parts[0][0]) == 3)
            parts = [*parts, back] if back else []
        if parts and all(in_time(part) for part in parts):
            yield parts
