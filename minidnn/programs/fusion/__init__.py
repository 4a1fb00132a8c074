"""Fusion: a pass over a Program that replaces a group of ops by one op, so that a tensor between them is never stored.
It runs before planning, so policies, costs, listings and the proof treat a fused op like any other.

Each module here finds groups of one sort; its docstring names the ops that replace them. A ReLU is fused only if its
slope is 0 and its backward, if fused, reads y. The device decides for each fused op whether it has a kernel that keeps
NaN (`fuses`); if not, the ops stay separate. A fused op belongs to the layer that has the parameters, if any. An op
that is in several groups goes into the first: BatchNorm's, then pooling's, then a sum's. Then the fused ops before a
Concat read slices of its gradient (slices.py). At last, small ops of one kind become one op (multi_tensor.py).

`--no-fusion` leaves the pass out, and so does every set of facts but the default. Policies leave the bytes equal within
one program, not between a fused program and one that is not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from minidnn.program import Op, Program
from minidnn.programs.fusion import activation, multi_tensor, normalization, pooling, slices, sums
from minidnn.programs.fusion.activation import FORWARD
from minidnn.programs.fusion.group import Uses

Fuses = Callable[[Op], bool]  # says whether a device has a kernel for this fused op

KINDS = normalization.KINDS | {pooling.POOLED} | sums.KINDS | activation.KINDS | slices.KINDS  # all kinds of fused ops


def as_cuda(op: Op) -> bool:
    """`fuses` for plans for a GPU, made on a machine without one. The cuda backend has kernels of its own for all fused
    ops but products with a ReLU. Those are cuDNN's, which fuses a ReLU only where it adds a bias."""
    return op.kind not in FORWARD.values() or len(op.reads) == 3


def fused(program: Program, fuses: Fuses | None) -> Program:
    """The program with groups of ops replaced by fused ops where `fuses` permits; None: the program itself.

    It computes the same values, in 16 bits with fewer roundings, except the tensors inside a group, which no op reads
    any more."""
    if fuses is None:
        return program
    uses = Uses(program)
    becomes: dict[Op, Op | None] = {}
    for parts in (
        *normalization.groups(program, uses),
        *pooling.backward(program, uses),
        *sums.forward(program, uses),
        *sums.backward(program, uses),
        *activation.forward(program, uses),
        *activation.backward(program),
    ):
        taken = any(op in becomes for ops, _ in parts for op in ops)
        if not taken and all(fuses(one) for _, one in parts):
            for ops, one in parts:
                becomes |= dict.fromkeys(ops)
                becomes[ops[0]] = one
    made = slices.sliced(_replaced(program, becomes), fuses)
    becomes = {}
    for ops, one, at in multi_tensor.groups(made):
        if fuses(one):
            becomes |= dict.fromkeys(ops)
            becomes[at] = one
    return _replaced(made, becomes)


def _replaced(program: Program, becomes: Mapping[Op, Op | None]) -> Program:
    """The program with ops replaced by others, or (None) left out."""
    made = replace(program, ops=tuple(new for op in program.ops if (new := becomes.get(op, op)) is not None))
    made.check()
    return made


def kinds(program: Program) -> list[str]:
    """The kinds of fused ops in a program, sorted, each once. Small ops that became one give the same bits as before,
    so their kinds are not among these. An op in parts counts as the one that it is a part of."""
    return sorted(KINDS & {(op if op.part is None else op.part.origin).kind for op in program.ops})
