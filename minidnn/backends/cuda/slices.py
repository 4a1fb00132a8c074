"""Slices of the batch, so that cuDNN gets no tensor of MOST elements or more.

With larger tensors cuDNN has fewer plans, and does not say so: for the filter gradient of a convolution in 16 bits it
has one slow plan, where it had dozens. So it gets such a batch in slices, one after another. Images of a slice lie side
by side in memory, and need no copies.

Forward and the gradient of x are made image by image, so the slices' results are those of the whole. The gradient of w
is a sum over images. Each slice has its own, and one kernel adds them in the order of the batch, in float32, and rounds
the sum. In 16 bits a slice's own is rounded, too, since cuDNN writes no gradient in another format than x has: so there
are as few slices as will do.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from minidnn.backends.cuda.cudnn import BACKWARD_FILTER, Convolution, Cudnn, CudnnPlan, W, X, Y
from minidnn.backends.cuda.recipe import Execute, Launch, Pointer, Read, Recipe, Scratch, Space, Write, by_fours, int32
from minidnn.formats import itemsize
from minidnn.memory.schedule import aligned

MOST = 1 << 31  # elements of a tensor: as many as cuDNN's kernels that count in 32 bits do not take
ALIGNED = 16  # bytes: plans are made for tensors that begin at multiples of them

Pack = list[tuple[int, Pointer]]  # (a tensor's uid in the graph, its address)


@dataclass(frozen=True)
class Slice:
    """Images [first, ...) of a batch, as a problem of their own."""

    problem: Convolution
    first: int


def slices(problem: Convolution, axis: int = 0) -> tuple[Slice, ...]:
    """The problem cut along the batch, the images along `axis` of x and y, into as few slices as will do: all as long
    as the first, but the last, which may be shorter. One slice, the whole, if it is small enough, or if an image alone
    is not."""
    count = problem.x[axis]
    each = [math.prod(shape) // count for shape in (problem.x, problem.y)]  # elements of an image
    step = math.lcm(*(ALIGNED // math.gcd(ALIGNED, n * itemsize(problem.dtype)) for n in each))
    most = (MOST - 1) // max(each) // step * step
    if count * max(each) < MOST or not most:
        return (Slice(problem, 0),)
    length = -(-count // -(-count // most) // step) * step

    def of(first: int) -> Slice:
        n = min(length, count - first)
        x, y = ((*shape[:axis], n, *shape[axis + 1 :]) for shape in (problem.x, problem.y))
        return Slice(replace(problem, x=x, y=y), first)

    return tuple(map(of, range(0, count, length)))


def recipes(cudnn: Cudnn, cut: Sequence[Slice], pack: Pack, axis: int, prefix: str) -> Iterator[Recipe]:
    """One recipe for each plan of the first slice, best first. A slice of another length has the plan of the same name,
    or else its best. Raises NoPlan if cuDNN has none for a slice."""
    last = cudnn.plans(cut[-1].problem)
    for plan in cudnn.plans(cut[0].problem):
        other = next((p for p in last if p.name == plan.name), last[0])
        plans = [plan if s.problem == plan.problem else other for s in cut]
        yield (_sum if plan.problem.which == BACKWARD_FILTER else _each)(prefix, plans, cut, pack, axis)


def _each(prefix: str, plans: Sequence[CudnnPlan], cut: Sequence[Slice], pack: Pack, axis: int) -> Recipe:
    scratch = Scratch()
    workspace = scratch.take(max(plan.workspace for plan in plans))
    steps = (Execute(plan, _of(s, pack, axis), workspace) for plan, s in zip(plans, cut, strict=True))
    return scratch.recipe(prefix + plans[0].name, *steps)


def _sum(prefix: str, plans: Sequence[CudnnPlan], cut: Sequence[Slice], pack: Pack, axis: int) -> Recipe:
    scratch, problem = Scratch(), cut[0].problem
    size, value = math.prod(problem.w), itemsize(problem.dtype)
    pitch = aligned(size * value)
    workspace, own = scratch.take(max(plan.workspace for plan in plans)), scratch.take(pitch * len(cut))
    steps: list[Execute | Launch] = []
    for i, (plan, s) in enumerate(zip(plans, cut, strict=True)):
        ends = {**dict(_of(s, pack, axis)), W: Space(own.offset + i * pitch, size * value)}
        steps.append(Execute(plan, tuple(ends.items()), workspace))
    numbers = int32(len(cut)), np.int64(pitch // value)
    steps.append(by_fours("sums", "add_slices", size, own, dict(pack)[W], *numbers))
    return scratch.recipe(prefix + plans[0].name, *steps)


def _of(s: Slice, pack: Pack, axis: int) -> tuple[tuple[int, Pointer], ...]:
    """The pack with x and y at the slice's first image."""
    shapes = {X: s.problem.x, Y: s.problem.y}

    def moved(uid: int, pointer: Pointer) -> Pointer:
        if uid not in shapes or not isinstance(pointer, Read | Write):
            return pointer
        image = math.prod(shapes[uid]) // shapes[uid][axis] * itemsize(s.problem.dtype)
        return replace(pointer, offset=pointer.offset + s.first * image)

    return tuple((uid, moved(uid, pointer)) for uid, pointer in pack)
