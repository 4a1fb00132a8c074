"""LSTM and GRU (kernels/recurrent.cu): for each step a product with the weights of the hidden state, by matmul.cu, and
a kernel for what the gates do. RecurrentAttrs (layers/recurrent.py) names the tensors of an op."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from minidnn.backends.cuda.matmul import multiply
from minidnn.backends.cuda.recipe import (
    Argument,
    Launch,
    Read,
    Recipe,
    Scalar,
    Scratch,
    Table,
    Write,
    int32,
    over,
    plain,
)
from minidnn.layers.matmul import MatMulAttrs
from minidnn.layers.recurrent import GATES
from minidnn.program import Op

FLOAT = 4  # bytes
NONE = np.uint64(0)  # the null pointer


class Steps:
    """An op's sizes, and the pointers to its tensors by name and step."""

    def __init__(self, op: Op) -> None:
        a = op.attrs
        self.ends = a.named([Read(i) for i in range(len(op.reads))], [Write(i) for i in range(len(op.writes))])
        self.tensors = a.named(op.reads, op.writes)
        self.steps, self.batch, wide = op.reads[0].shape
        self.gates = GATES[a.cell]
        self.width = wide if a.reads[0] == "y" else wide // self.gates

    def at(self, name: str, step: int = 0) -> Scalar:
        """Where that step begins in a tensor; the null pointer if the op has no such tensor, or step."""
        if name not in self.ends or not 0 <= step < self.tensors[name].shape[0]:
            return NONE
        t = self.tensors[name]
        return replace(self.ends[name], offset=step * (t.nbytes // t.shape[0]))

    def state(self, name: str, step: int, first: str) -> Scalar:
        """Where the state before the step begins: in a tensor of all steps, or in `first`."""
        return self.at(name, step - 1) if step else self.at(first)

    def last(self, name: str, step: int) -> Scalar:
        """The tensor at the last step; the null pointer at others."""
        return self.at(name) if step == self.steps - 1 else NONE

    def launch(self, kernel: str, *pointers: Scalar, more: tuple[Argument, ...] = ()) -> Launch:
        """A kernel over the numbers of a state."""
        sizes = np.int64(self.batch), int32(self.width)
        return Launch("recurrent", kernel, (_struct(*pointers), *more, *sizes), over(self.batch * self.width))

    def product(self, left: Scalar, to: Scalar, turned: bool) -> Launch:
        """to = left w', or left w if `turned`: of a state's numbers, or of the gradients of its gates' sums."""
        assert not isinstance(left, np.generic) and not isinstance(to, np.generic), "a product reads what there is"
        wide = self.gates * self.width
        depth, columns = (wide, self.width) if turned else (self.width, wide)
        a = MatMulAttrs(1, self.batch, depth, columns, transpose_b=not turned)
        return multiply(a, left, self.ends["w"], to, kernel="matmul_to_float")


def _struct(*pointers: Scalar) -> Table:
    return Table(1, tuple((p,) for p in pointers))


def forward(op: Op) -> list[Recipe]:
    """One recipe for a cell's forward through all steps."""
    s, scratch, lstm, launches = Steps(op), Scratch(), op.attrs.cell == "LSTM", []
    sums = scratch.take(FLOAT * s.batch * s.gates * s.width)
    cells = scratch.take(FLOAT * s.batch * s.width if lstm and "cells" not in s.ends else 0)
    for t in range(s.steps):
        h, cont = s.state("y", t, "h_0"), s.at("cont", t)
        given = [s.at("z", t), NONE if h is NONE else sums]
        if h is not NONE:
            launches.append(s.product(h, sums, turned=False))
        if lstm:
            kept = "cells" in s.ends
            c, first = (s.at("cells", t - 1) if kept else cells) if t else NONE, NONE if t else s.at("c_0")
            to = s.at("cells", t) if kept else cells
            ends = s.at("y", t), s.at("gates", t), s.last("h_T", t), s.last("c_T", t)
            launches.append(s.launch("lstm_step", *given, cont, c, first, to, *ends))
        else:
            own = s.at("y", t), s.at("gates", t), s.at("hidden", t), s.last("h_T", t)
            launches.append(s.launch("gru_step", *given, s.at("b"), cont, h, *own))
    return [scratch.recipe("default", *launches)]


def backward(op: Op) -> list[Recipe]:
    """One recipe for a cell's backward through all steps."""
    s, scratch, lstm, launches = Steps(op), Scratch(), op.attrs.cell == "LSTM", []
    product = scratch.take(FLOAT * s.batch * s.width)
    carried = scratch.take(FLOAT * s.batch * s.width)  # LSTM's dc, or GRU's part of dh without the product

    def arriving(t: int) -> list[Scalar]:
        """The struct Arriving of a step, or, before all steps, of -1."""
        behind = t < s.steps - 1
        rest = carried if behind and not lstm else NONE
        dh = [product, s.at("cont", t + 1), rest] if behind else [NONE, NONE, NONE]
        return [*dh, s.last("dh_T", t), s.at("dy", t)]

    for t in reversed(range(s.steps)):
        cont, dz = s.at("cont", t), s.at("dz", t)
        given = [*arriving(t), s.at("gates", t)]
        if lstm:
            c, first = s.at("cells", t - 1), NONE if t else s.at("c_0")
            is_last, dc_0 = np.uint64(t == s.steps - 1), NONE if t else s.at("dc_0")
            ends = s.at("cells", t), c, first, s.last("dc_T", t), carried, is_last, dz, dc_0
            launches.append(s.launch("lstm_step_back", *given, cont, *ends))
        else:
            own = s.at("hidden", t), cont, s.state("y", t, "h_0"), carried, dz, s.at("dhidden", t)
            launches.append(s.launch("gru_step_back", *given, *own))
        if t or "dh_0" in s.ends:
            launches.append(s.product(dz if lstm else s.at("dhidden", t), product, turned=True))
    if "dh_0" in s.ends:
        launches.append(s.launch("recurrent_first", *arriving(-1), more=(s.ends["dh_0"],)))
    return [scratch.recipe("default", *launches)]


def previous(op: Op) -> list[Recipe]:
    """One recipe for y (cont h_0) -> before."""
    s = Steps(op)
    ends = _struct(s.at("y"), s.at("cont"), s.at("h_0")), s.ends["before"]
    sizes = np.int64(s.steps * s.batch), np.int64(s.batch), int32(s.width)
    grid = over(s.steps * s.batch * s.width)
    return [plain(Launch("recurrent", "recurrent_previous", (*ends, *sizes), grid))]


KINDS = {"recurrent.forward": forward, "recurrent.backward": backward, "recurrent.previous": previous}
