"""Concat's backward with the ops before it: each reads its slice of the whole gradient, so that no op copies the slice.

dConcat, dReLU, dbias: `relu.backward_bias` becomes `relu.backward_bias_slice`: y, dy -> dx, db. Its dy is the gradient
                       of Concat's top.
dConcat, add:          where the bottom forks, `gradient.add` becomes `gradient.add_slice`: dy, dx1 -> dx. So it is in
                       DenseNet, where each Concat's first bottom is the Concat before.

If no other op reads the gradients that Concat's backward writes, that op goes. An op that reads a slice declares the
whole tensor among its reads. So plans and the proof know nothing of slices; costs count a slice's bytes.

A ReLU's y is its bottom of Concat. Two of these keep fewer bottoms, or none, for backward:

- Where MAX pooling alone reads Concat's top in backward, its backward becomes that of pooling.py with a ReLU. Then the
  whole gradient has passed the ReLUs already, and the slice needs no y: dy -> dx, db.
- Where backward reads Concat's top anyway, the slice's y is the top.

The ReLUs take the place of Concat's backward, one after the other, so the whole gradient lives hardly longer for them.
An add waits for its other operand. The results have the same bits, since a kernel sums in the order that it has without
slices. Only images are sliced. On the fast backends their channels are innermost in memory, so a slice is a run of each
pixel's channels.

Forward copies the bottoms into the top as before. cuDNN can write a convolution's result into a slice, but its fast
plans then ask for as much more workspace as the result takes, and copy it from there. (On the H200 and the A100 this
holds for all plans for googlenet's convolutions but one, which cuDNN ranks last.)
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from itertools import accumulate

from minidnn.program import FORWARD, Op, Program, Slice, Tensor
from minidnn.programs.fusion import activation, pooling
from minidnn.programs.fusion.group import Uses

SLICE = "_slice"  # the end of a kind whose ops read slices
ADD = "gradient.add"
KINDS = frozenset({activation.BACKWARD + SLICE, ADD + SLICE})


def sliced(program: Program, fuses: Callable[[Op], bool]) -> Program:
    """The program with slices of gradients read where `fuses` permits."""
    uses = Uses(program)
    joins = {op.layer: op for op in program.ops if op.kind == "concat.forward" and op.during in FORWARD}
    becomes: dict[Op, tuple[Op, ...]] = {}
    for apart in program.ops:
        join = joins.get(apart.layer)
        if join and apart.kind == "concat.backward" and apart.attrs.axis == 1 and len(apart.reads[0].shape) == 4:
            becomes |= _backward(uses, join, apart, fuses, becomes)
    made = replace(program, ops=tuple(new for op in program.ops for new in becomes.get(op, (op,))))
    made.check()
    return made


def _backward(
    uses: Uses, join: Op, apart: Op, fuses: Callable[[Op], bool], done_ops: Collection[Op]
) -> dict[Op, tuple[Op, ...]]:
    """{op: the ops that take its place} for one Concat: its forward is `join`, its backward `apart`. An op that is
    `taken` reads a slice of another Concat's gradient already."""
    (top,), (dtop,) = join.writes, apart.reads
    bottoms = dict(zip(accumulate((x.shape[1] for x in join.reads), initial=0), join.reads, strict=False))
    relus: dict[Op, Op] = {}  # {a ReLU's backward: the same of a slice}
    adds: dict[Op, Op] = {}  # likewise
    left: list[tuple[int, Tensor]] = []  # gradients that must still be written, and where they begin
    for start, dx in zip(apart.attrs.starts, apart.writes, strict=True):
        old = uses.reader(dx, activation.BACKWARD) or uses.reader(dx, ADD)
        free = old is not None and old not in done_ops and old not in adds and uses.hidden(dx, old)
        if old and free and fuses(one := _slice(old, dx, start, dtop)):
            (adds if old.kind == ADD else relus)[old] = one
        else:
            left.append((start, dx))
    if not relus and not adds:
        return {}
    same = [relu for relu, one in relus.items() if relu.reads[0] == bottoms[one.attrs.start]]  # y is the bottom itself
    gone = {**dict.fromkeys(relus, ()), **{add: (one,) for add, one in adds.items()}}
    if not left and not adds and len(same) == len(relus) and (pooled := _pooled(uses, top, apart, same)):
        pool, one = pooled
        done = [replace(one, reads=(dtop,)) for one in relus.values()]
        if fuses(one) and all(map(fuses, done)):
            return {**gone, pool: (one,), apart: tuple(done)}
    if any(op.during not in FORWARD for op in uses.readers[top]):
        for relu in same:
            if uses.hidden(relu.reads[0], join, relu):
                relus[relu] = replace(relus[relu], reads=(top, dtop))
    return {**gone, apart: (*_without(apart, left), *relus.values())}


def _pooled(uses: Uses, top: Tensor, apart: Op, relus: Sequence[Op]) -> tuple[Op, Op] | None:
    """(the backward of the MAX pooling behind Concat, the same with the ReLUs) if nothing else lies behind Concat."""
    (dtop,) = apart.reads
    pool = uses.makers[dtop]
    forward = uses.makers.get(pool.reads[0])
    if pool.kind != "pooling.backward" or not uses.hidden(dtop, apart):
        return None
    if forward is None or forward.reads != (top,) or forward.writes[1:] != pool.reads[:1]:
        return None
    return pool, pooling.rectified(pool, forward, apart.layer, sum(relu.flops for relu in relus))


def _slice(op: Op, dx: Tensor, start: int, whole: Tensor) -> Op:
    """The op that reads the slice of the whole gradient that begins there, in the stead of dx. It cannot work in place
    there, since the whole has other readers. Of an add, the slice comes first."""
    reads = tuple(whole if t == dx else t for t in op.reads)
    if op.kind == ADD:
        reads = tuple(sorted(reads, key=lambda t: t != whole))
    inplace = tuple((read, write) for read, write in op.inplace if read != dx)
    return replace(op, kind=op.kind + SLICE, reads=reads, attrs=Slice(start), inplace=inplace)


def _without(apart: Op, left: Sequence[tuple[int, Tensor]]) -> tuple[Op, ...]:
    """Concat's backward if it has gradients left to write: each with the place where it begins."""
    if not left:
        return ()
    starts, writes = zip(*left, strict=True)
    attrs = replace(apart.attrs, starts=starts)
    return (replace(apart, writes=writes, attrs=attrs, flops=sum(dx.size for dx in writes)),)
