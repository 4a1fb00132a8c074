"""Ops that the host runs on its own bytes, whatever the device: which leave the same bits there, and their seconds."""

from __future__ import annotations

from minidnn.costs.costs import traffic
from minidnn.program import MULTI_TENSOR, Op

# Updates of each element by itself, in float32. Our kernels for the cpu and for GPUs do the same operations in the same
# order, and round each (backends/cpu/native/sources.py, backends/cuda/compile.py). So they leave the same bits. A test
# asks for all rules of optimizers/ but LAMB's.
RULES = ("sgd", "nesterov", "adagrad", "rmsprop", "adadelta", "adam", "adamw", "lars")
SAME_BITS = frozenset(f"{rule}.update{each}" for rule in RULES for each in ("", MULTI_TENSOR))

# Of a host that was not measured: bytes per second of its memory, and the least seconds of an op. It is taken for one
# core of any CPU of the last ten years (estimates.CPU). These numbers are fixed on purpose, so that plans are.
BANDWIDTH, LEAST = 8e9, 5e-6


def same_bits(op: Op) -> bool:
    """Whether the cpu's kernel leaves the bits that a GPU's leaves. (Only a NaN's sign and payload may differ.)"""
    return op.kind in SAME_BITS and all(t.dtype in ("float32", "int64") for t in op.tensors)


def assumed(op: Op) -> float | None:
    """Seconds that the host takes for an op beside a GPU; None: its kernel would leave other bits."""
    return traffic(op) / BANDWIDTH + LEAST if same_bits(op) else None
