"""Optimizers by a solver file's `type`. A new one is a file here, its line in this table, and a kernel per backend."""

from __future__ import annotations

from minidnn.optimizers.base import Optimizer
from minidnn.optimizers.sgd import SGD

__all__ = ["OPTIMIZERS", "SGD", "Optimizer"]

OPTIMIZERS: dict[str, type[Optimizer]] = {"SGD": SGD}
