"""LSTM and GRU, step by step (recurrent.c). RecurrentAttrs (layers/recurrent.py) names the tensors of an op."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np

from minidnn.backends.cpu.layout import address
from minidnn.backends.cpu.native.binding import NAME, Mirrored, Native, bound
from minidnn.backends.cpu.recipe import Call, Recipe, Scratch
from minidnn.layers.recurrent import GATES
from minidnn.program import Op

# The C function of a cell's pass, and the tensors that it takes, in its order. What an op lacks is the null pointer.
FUNCTIONS = {
    ("recurrent.forward", "LSTM"): (
        "recurrent_lstm", ("z", "w", "cont", "h_0", "c_0", "y", "gates", "cells", "h_T", "c_T")
    ),
    ("recurrent.forward", "GRU"): ("recurrent_gru", ("z", "w", "b", "cont", "h_0", "y", "gates", "hidden", "h_T")),
    ("recurrent.backward", "LSTM"): (
        "recurrent_lstm_backward",
        ("gates", "cells", "w", "cont", "c_0", "dy", "dh_T", "dc_T", "dz", "dh_0", "dc_0"),
    ),
    ("recurrent.backward", "GRU"): (
        "recurrent_gru_backward",
        ("gates", "hidden", "w", "y", "cont", "h_0", "dy", "dh_T", "dz", "dhidden", "dh_0"),
    ),
}  # fmt: skip


class Geometry(Mirrored):
    twin = "recurrent"

    _fields_ = tuple((name, ctypes.c_int64) for name in ("steps", "batch", "width", "gates", "threads"))


def through_steps(native: Native, op: Op) -> list[Recipe]:
    """One recipe for a pass of a cell through all steps."""
    function, names = FUNCTIONS[op.kind, op.attrs.cell]
    g, scratch, run = _geometry(native, op), Scratch(), native.function(function)
    space = scratch.take(native.bytes(f"recurrent_{op.kind.split('.')[1]}_bytes", g))

    def bind(reads: Sequence[np.ndarray], writes: Sequence[np.ndarray], workspace: np.ndarray) -> list[Call]:
        at = {name: address(x) for name, x in op.attrs.named(reads, writes).items()}
        return [bound(run, g, *(at.get(name, 0) for name in names), space.address(workspace))]

    return [scratch.recipe(NAME, bind)]


def previous(native: Native, op: Op) -> list[Recipe]:
    """One recipe for y (cont h_0) -> before."""
    g, run = _geometry(native, op), native.function("recurrent_previous")

    def bind(reads: Sequence[np.ndarray], writes: Sequence[np.ndarray], workspace: np.ndarray) -> list[Call]:
        at = {name: address(x) for name, x in op.attrs.named(reads, writes).items()}
        return [bound(run, g, *(at.get(name, 0) for name in ("y", "cont", "h_0", "before")))]

    return [Scratch().recipe(NAME, bind)]


def _geometry(native: Native, op: Op) -> Geometry:
    """From the first tensor: z or gates, which have a number for each gate, or y."""
    gates = GATES[op.attrs.cell]
    steps, batch, width = op.reads[0].shape
    return Geometry(steps, batch, width if op.attrs.reads[0] == "y" else width // gates, gates, native.threads)


FIRST = {
    "recurrent.forward": through_steps,
    "recurrent.backward": through_steps,
    "recurrent.previous": previous,
}
