"""BatchNorm with the Scale behind it, and with what is behind that: a ReLU, or a residual block's sum and ReLU.

Forward becomes two ops. BatchNorm becomes `batch_norm.moments`: x -> mean, variance. The Scale, with its ReLU if it has
one, becomes `batch_norm.normalize_scale(_relu)`: x, mean, variance, gamma, beta -> y. So where y is computed again,
only the second one runs: mean and variance, which are small, are kept for backward anyway. With running statistics
there is one op, `batch_norm.inference_scale(_relu)`.

In a residual block the Scale's top goes only into a sum with the shortcut, which a ReLU alone reads. If the sum has two
bottoms and no coefficients, all become `batch_norm.normalize_scale_add_relu`, or `batch_norm.inference_scale_add_relu`:
x, shortcut, mean, variance, gamma, beta -> y. The Scale's top is then never written. The op takes the Scale's place, so
the shortcut must be there. Where two BatchNorms meet in a sum, that holds for the later one. In float32 y has the bits
of the ops apart. In 16 bits it is rounded once, where they round the Scale's top, too.

All of backward becomes `batch_norm.backward_scale(_relu)`: x, mean, variance, gamma, beta, dy -> dx, dgamma, dbeta. It
computes the normalized x and the sign of the ReLU's input again, so neither is stored. If another op reads one of them,
the group is fused neither forward nor backward. The ReLU behind a sum is not among these: its backward, from y, is that
of sums.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from minidnn.program import Op, Program, Tensor
from minidnn.programs.fusion import sums
from minidnn.programs.fusion.group import Part, Uses, rectified_from_y, rectifies

NORMALIZED = ("batch_norm.forward", "batch_norm.inference")
MOMENTS = "batch_norm.moments"
SCALED = frozenset(
    f"batch_norm.{what}_scale{relu}" for what in ("normalize", "inference", "backward") for relu in ("", "_relu")
)
JOINED = frozenset(f"batch_norm.{what}_scale_add_relu" for what in ("normalize", "inference"))
KINDS = SCALED | JOINED | {MOMENTS}


def groups(program: Program, uses: Uses) -> Iterator[list[Part]]:
    """Each BatchNorm with its Scale, and what is behind it: the parts of forward, and one for all of backward. Where a
    sum may join, the same without it follows, for where the sum is in another group or the device lacks the kernel."""
    for norm in program.ops:
        scale = uses.reader(norm.writes[0], "scale.forward") if norm.kind in NORMALIZED else None
        if scale is None or len(scale.reads) < 3 or len(scale.writes) > 1:  # no Scale; no beta; it keeps a copy of x
            continue
        dgamma = uses.reader(norm.writes[0], "scale.backward_filter")
        if not uses.hidden(norm.writes[0], scale, dgamma):
            continue
        for shortcut, behind in _behind(uses, scale):
            parts = _forward(norm, scale, shortcut, behind)
            if dgamma:
                back = _backward(uses, scale, dgamma, rectified=not shortcut and len(behind) > 0)
                parts = [*parts, back] if back else []
            if parts and all(uses.in_time(part) for part in parts):
                yield parts


def _behind(uses: Uses, scale: Op) -> Iterator[tuple[tuple[Tensor, ...], tuple[Op, ...]]]:
    """(the shortcut, the ops behind the Scale that join it) with a sum and its ReLU, if there are such; then with the
    Scale's own ReLU, or with nothing."""
    (y,) = scale.writes
    add, relu = (uses.reader(y, f"{family}.forward") for family in ("eltwise", "relu"))
    if add and sums.adds_two(add) and uses.hidden(y, add):
        last = uses.reader(add.writes[0], "relu.forward")
        if last and rectifies(last) and uses.hidden(add.writes[0], last):
            yield tuple(t for t in add.reads if t != y), (add, last)
    yield (), (relu,) if relu and rectifies(relu) and uses.hidden(y, relu) else ()


def _forward(norm: Op, scale: Op, shortcut: tuple[Tensor, ...], behind: tuple[Op, ...]) -> list[Part]:
    """One part with running statistics; else one that makes the statistics, and one that normalizes by them."""
    ops, (x, *given) = [scale, *behind], norm.reads
    (y,) = ops[-1].writes
    changed = {"layer": scale.layer, "writes": (y,), "inplace": tuple((t, y) for t in (x, *shortcut))}
    if norm.kind == "batch_norm.inference":
        return [_part(norm, [norm, *ops], reads=(x, *shortcut, *given, *scale.reads[1:]), **changed)]
    statistics = norm.writes[1:]
    moments = replace(norm, name=f"{norm.layer}.moments", kind=MOMENTS, writes=statistics, inplace=())
    like, reads = replace(norm, kind="batch_norm.normalize"), (x, *shortcut, *statistics, *scale.reads[1:])
    within, normalize = _part(like, ops, reads=reads, **changed)
    return [((norm,), moments), (within, replace(normalize, name=f"{norm.layer}+{normalize.name}"))]


def _backward(uses: Uses, scale: Op, dgamma: Op, rectified: bool) -> Part | None:
    """All of the backward, or None if another op reads a tensor within. `rectified`: forward has the Scale's ReLU."""
    dy = dgamma.reads[1]
    dbeta, data = (uses.reader(dy, f"scale.backward_{which}", scale.layer) for which in ("bias", "data"))
    last = uses.reader(data.writes[0], "batch_norm.backward") if data else None
    if dbeta is None or data is None or last is None or not uses.hidden(data.writes[0], last):
        return None
    ops = [dgamma, dbeta, data, last]
    if rectified and rectified_from_y(uses.makers[dy]) and uses.hidden(dy, *ops):
        ops.insert(0, uses.makers[dy])
        dy = ops[0].reads[-1]
    (x, *statistics, _), (dx,) = last.reads, last.writes
    return _part(
        last, ops, layer=scale.layer, reads=(x, *statistics, *scale.reads[1:], dy),
        writes=(dx, *dgamma.writes, *dbeta.writes), inplace=((dy, dx), (x, dx)),
    )  # fmt: skip


def _part(like: Op, ops: Sequence[Op], **changed: Any) -> Part:
    """The ops with the one that replaces them: the op `like`, by its kind with a Scale, with these fields changed."""
    relu = "_relu" if ops[0].kind == "relu.backward" or ops[-1].kind == "relu.forward" else ""
    add = "_add" if any(op.kind == "eltwise.forward" for op in ops) else ""
    layers = "+".join(dict.fromkeys(op.layer for op in ops))
    name = f"{layers}.{like.name.rsplit('.', 1)[1]}"
    flops = sum(op.flops for op in ops)
    return tuple(ops), replace(like, name=name, kind=f"{like.kind}_scale{add}{relu}", flops=flops, **changed)
