"""Caffe's SGD, with momentum and weight decay:

g = dw * clip * scale;  g += decay * w (L2) or decay * sign(w) (L1)
h = momentum * h + rate * lr_mult * g;  w -= h
where decay is weight_decay * decay_mult, and h is the state "momentum".
"""

from __future__ import annotations

from dataclasses import dataclass

from minidnn.optimizers.base import Optimizer, state_tensor


@dataclass(frozen=True)
class SGDAttrs:
    """The numbers of one update, for kernels. `decay` includes decay_mult; `clipped`: the op reads a clip factor."""

    momentum: float
    decay: float
    regularization: str
    lr_mult: float
    scale: float
    clipped: bool


@dataclass(frozen=True)
class SGD(Optimizer):
    """Caffe's SGD. Without momentum it keeps no state."""

    momentum: float = 0.0
    weight_decay: float = 0.0
    regularization: str = "L2"

    fields = ("momentum",)

    @classmethod
    def of(cls, solver):
        return cls(solver.momentum, solver.weight_decay, solver.regularization_type)

    def state(self, w):
        return (state_tensor(w, "momentum"),) if self.momentum else ()

    def update(self, s):
        decay = self.weight_decay * s.decay_mult
        attrs = SGDAttrs(self.momentum, decay, self.regularization, s.lr_mult, s.scale, s.clip is not None)
        return s.op("sgd.update", attrs, self.state(s.w), flops=5 * s.w.size)
