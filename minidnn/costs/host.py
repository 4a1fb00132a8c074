"""Ops that the host runs beside its own bytes, whatever the device: which have the same bits there, and their seconds."""

from __future__ import annotations

from minidnn.program import EACH, Op

# Updates of each element by itself, in float32. Our C kernels for the cpu and our CUDA kernels do the same operations in
# the same order, and round each (backends/cpu/native/sources.py, backends/cuda/compile.py): they leave the same bits.
RULES = ("sgd", "nesterov", "adagrad", "rmsprop", "adadelta", "adam", "adamw", "lars")
SAME_BITS = frozenset(f"{rule}.update{each}" for rule in RULES for each in ("", EACH))


def same_bits(op: Op) -> bool:
    """Whether the cpu's kernel leaves the bits that a GPU's leaves. (Only a NaN's sign and payload may differ.)"""
    return op.kind in SAME_BITS and all(t.dtype in ("float32", "int64") for t in op.tensors)
