"""Optimizers by the `type` of a solver file. A new one needs a class here, a line below, and a kernel per backend."""

from __future__ import annotations

from minidnn.optimizers.base import Optimizer
from minidnn.optimizers.rule import AdaDelta, AdaGrad, Adam, AdamW, Nesterov, RMSProp, Rule
from minidnn.optimizers.sgd import SGD
from minidnn.optimizers.trust import LAMB, LARS

__all__ = ["OPTIMIZERS", "RULES", "SGD", "Optimizer"]

OPTIMIZERS: dict[str, type[Optimizer]] = {
    kind.__name__: kind for kind in (SGD, Nesterov, AdaGrad, RMSProp, AdaDelta, Adam, AdamW, LARS, LAMB)
}
# minidnn's own rules, by the family of their ops. The backends have kernels for all of them.
RULES: dict[str, type[Rule]] = {
    kind.kind.partition(".")[0]: kind for kind in OPTIMIZERS.values() if issubclass(kind, Rule)
}
