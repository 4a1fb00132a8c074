"""Optimizers that are a rule for each element: a step from the gradient, the weight and up to two numbers of history.

g = dw * clip * scale;  g += decay * w (L2) or decay * sign(w) (L1);  then the rule;  w -= step

They differ in the fields that they read, in their history, and in the kernel. A field's meaning in Caffe is kept:
AdaDelta's rho and Adam's beta1 are `momentum`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from minidnn.optimizers.base import Optimizer, Site, state_tensor
from minidnn.program import Op, Tensor


@dataclass(frozen=True)
class RuleAttrs:
    """The numbers of one update, for kernels.

    numbers: the rule's own, in the order that its class says
    decay:   decay_mult included
    clipped: whether the op reads a clip factor
    every:   micro-batches of an update: the number of the update is iteration // every + 1
    """

    numbers: tuple[float, ...]
    decay: float
    regularization: str
    lr_mult: float
    scale: float
    clipped: bool
    every: int = 1


@dataclass(frozen=True)
class Rule(Optimizer):
    """An optimizer of one op a weight. A subclass says the kind of the op, its history, and its numbers."""

    numbers: tuple[float, ...]
    weight_decay: float = 0.0
    regularization: str = "L2"

    kind: ClassVar[str]
    history: ClassVar[tuple[str, ...]]  # names of the state
    counts: ClassVar[bool] = False  # whether the rule depends on the number of the update
    adapts: ClassVar[bool] = False  # whether a ratio of norms multiplies the weight's rate (optimizers/trust.py)

    @classmethod
    def of(cls, solver: Any) -> Rule:
        numbers = tuple(float(getattr(solver, field)) for field in cls.fields)
        return cls(numbers, solver.weight_decay, solver.regularization_type)

    @classmethod
    def problems(cls, solver: Any) -> Iterator[tuple[str, str]]:
        if "momentum" in cls.fields and cls.kind != "nesterov.update" and solver.momentum >= 1:
            yield "momentum", f"expected less than 1 for type {solver.type}, got {solver.momentum:g}"

    def state(self, w: Tensor) -> tuple[Tensor, ...]:
        return tuple(state_tensor(w, name) for name in self.history)

    def update(self, s: Site) -> Op:
        attrs = attrs_of(self, s)
        return s.op(self.kind, attrs, self.state(s.w), [s.iteration] if self.counts else [], flops=12 * s.w.size)


def attrs_of(rule: Rule, s: Site) -> RuleAttrs:
    """The numbers of the update of one weight."""
    decay = rule.weight_decay * s.decay_mult
    clipped, every = s.clip is not None, round(1 / s.scale)
    return RuleAttrs(rule.numbers, decay, rule.regularization, s.lr_mult, s.scale, clipped, every)


@dataclass(frozen=True)
class Nesterov(Rule):
    """Caffe's Nesterov: h' = momentum h + rate g;  step = (1 + momentum) h' - momentum h."""

    kind, fields, history = "nesterov.update", ("momentum",), ("momentum",)


@dataclass(frozen=True)
class AdaGrad(Rule):
    """Duchi 2011, as in Caffe: h += g^2;  step = rate g / (sqrt(h) + delta)."""

    kind, fields, history = "adagrad.update", ("delta",), ("squares",)


@dataclass(frozen=True)
class RMSProp(Rule):
    """Tieleman and Hinton 2012, as in Caffe: h = d h + (1 - d) g^2;  step = rate g / (sqrt(h) + delta). d is
    `rms_decay`."""

    kind, fields, history = "rmsprop.update", ("rms_decay", "delta"), ("squares",)


@dataclass(frozen=True)
class AdaDelta(Rule):
    """Zeiler 2012, as in Caffe: h = m h + (1 - m) g^2;  u = g sqrt((k + delta) / (h + delta));
    k = m k + (1 - m) u^2;  step = rate u."""

    kind, fields, history = "adadelta.update", ("momentum", "delta"), ("squares", "steps")


@dataclass(frozen=True)
class Adam(Rule):
    """Kingma and Ba 2015, section 2's last formula, as in Caffe: m and v are means of g and g^2;
    step = rate sqrt(1 - b2^t) / (1 - b1^t) m / (sqrt(v) + delta). So delta is not corrected for the first steps, as it
    is in PyTorch. In float16 t counts skipped steps, too."""

    kind, fields, history, counts = "adam.update", ("momentum", "momentum2", "delta"), ("mean", "squares"), True


@dataclass(frozen=True)
class AdamW(Rule):
    """Loshchilov and Hutter 2019, as in PyTorch: w -= rate decay w first, apart from the gradient;
    step = rate m / (1 - b1^t) / (sqrt(v / (1 - b2^t)) + delta)."""

    kind, fields, history, counts = "adamw.update", ("momentum", "momentum2", "delta"), ("mean", "squares"), True

    @classmethod
    def problems(cls, solver):
        yield from super().problems(solver)
        yield from decoupled(solver)


def decoupled(solver: Any) -> Iterator[tuple[str, str]]:
    """The problems of an optimizer whose decay is apart from the gradient."""
    if not solver.has("momentum"):
        yield "type", f"{solver.type} needs momentum, its beta1, such as 0.9; it is not given"
    if solver.regularization_type != "L2":
        yield "regularization_type", f"expected L2 for type {solver.type}, whose decay is not part of the gradient"
