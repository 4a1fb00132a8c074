"""LARS and LAMB: the rate of each weight is multiplied by the ratio of the weight's norm to that of its step.

An op before the update makes the ratio, a tensor of one number, from sums in a fixed order. Parameters of one axis
(biases, BatchNorm's and LayerNorm's) have the ratio 1, as in the authors' implementations. If a step does not count,
because the objective or the clip factor is not finite, the ratio is 0, and the update changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from minidnn.optimizers.base import Site
from minidnn.optimizers.rule import Rule, attrs_of, decoupled
from minidnn.program import Op, Pass, Role, Tensor


def adapted(w: Tensor) -> bool:
    """Whether the weight's ratio is computed; else it is 1."""
    return len(w.shape) > 1


def _ratio(s: Site) -> Tensor:
    return Tensor(f"{s.w.name}.trust", (1,), role=Role.EXTRA)


@dataclass(frozen=True)
class TrustAttrs:
    """`rule`: the numbers of the update; `adapted`: whether the ratio is computed."""

    rule: object
    adapted: bool


@dataclass(frozen=True)
class LARS(Rule):
    """You, Gitman and Ginsburg 2017, Algorithm 1: ratio = trust ||w|| / (||g|| + decay ||w||), 1 if either norm is 0;
    h = momentum h + rate ratio (g + decay w);  step = h. `trust` is the solver's trust_coefficient."""

    kind, fields, history = "lars.update", ("momentum", "trust_coefficient"), ("momentum",)

    @classmethod
    def problems(cls, solver):
        if solver.regularization_type != "L2":
            yield "regularization_type", "expected L2 for type LARS, whose ratio has the norm of the weights"

    def before(self, s: Site) -> Sequence[Op]:
        attrs = TrustAttrs(attrs_of(self, s), adapted(s.w))
        reads = (s.w, s.dw, s.objective, *([s.clip] if s.clip is not None else []))
        name = f"{s.layer}.trust_{s.name}"
        return (Op(name, "lars.ratio", s.layer, Pass.UPDATE, reads, (_ratio(s),), attrs, (), 4 * s.w.size),)

    def update(self, s: Site) -> Op:
        return s.op(self.kind, attrs_of(self, s), self.state(s.w), [_ratio(s)], flops=6 * s.w.size)


@dataclass(frozen=True)
class LAMB(Rule):
    """You 2020 (ICLR), Algorithm 2: u = m / (1 - b1^t) / (sqrt(v / (1 - b2^t)) + delta) + decay w;
    ratio = ||w|| / ||u||, 1 if either norm is 0;  step = rate ratio u."""

    kind, fields, history = "lamb.update", ("momentum", "momentum2", "delta"), ("mean", "squares")

    @classmethod
    def problems(cls, solver):
        yield from super().problems(solver)
        yield from decoupled(solver)

    def before(self, s: Site) -> Sequence[Op]:
        """The op that updates the means and makes the ratio."""
        attrs, (m, v) = TrustAttrs(attrs_of(self, s), adapted(s.w)), self.state(s.w)
        reads = (s.w, s.dw, s.objective, m, v, s.iteration, *([s.clip] if s.clip is not None else []))
        name = f"{s.layer}.trust_{s.name}"
        return (Op(name, "lamb.ratio", s.layer, Pass.UPDATE, reads, (m, v, _ratio(s)), attrs, (), 16 * s.w.size),)

    def update(self, s: Site) -> Op:
        reads = (s.w, s.rate, *self.state(s.w), s.iteration, _ratio(s))
        attrs, name = attrs_of(self, s), f"{s.layer}.update_{s.name}"
        return Op(name, self.kind, s.layer, Pass.UPDATE, reads, (s.w,), attrs, (), 8 * s.w.size)
