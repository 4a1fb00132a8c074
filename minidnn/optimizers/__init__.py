"""Optimizers by the `type` of a solver file. A new one needs a file here, a line below, and a kernel per backend."""

from __future__ import annotations

from minidnn.optimizers.base import Optimizer
from minidnn.optimizers.sgd import SGD

__all__ = ["OPTIMIZERS", "SGD", "Optimizer"]

OPTIMIZERS: dict[str, type[Optimizer]] = {"SGD": SGD}
