"""LARS and LAMB: the rate of each weight is multiplied by the ratio of the weight's norm to that of its step.

An op before the update makes the ratio, a tensor of one number, from sums of squares by blocks (optimizers/squares.py).
Parameters of one axis (biases, BatchNorm's and LayerNorm's) have the ratio 1, as in the authors' implementations. If a
step does not count, because the objective or the clip factor is not finite, the ratio is 0, and the update changes
nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from minidnn.optimizers.base import Site
from minidnn.optimizers.rule import Rule, attrs_of, decoupled
from minidnn.optimizers.squares import Blocks, squares, together
from minidnn.program import Op, Pass, Role, Tensor


@dataclass(frozen=True)
class TrustAttrs:
    """`rule`: the numbers of the update; `blocks`: where the sums of the weight's and of the step's squares lie; None:
    there are none, and the ratio is 1."""

    rule: object
    blocks: Blocks | None


def adapted(s: Site) -> bool:
    """Whether the weight's ratio is computed; else it is 1."""
    return s.axes > 1


def _blocks(s: Site) -> Blocks:
    return Blocks.of((s.w, s.w), s.ranks)


def _sums(s: Site) -> Tensor:
    return _blocks(s).sums(f"{s.w.name}.norms")


def _ratio(s: Site) -> Tensor:
    return Tensor(f"{s.w.name}.trust", (1,), role=Role.EXTRA)


def _clip(s: Site) -> list[Tensor]:
    return [s.clip] if s.clip is not None else []


def ratio(kind: str, rule: Rule, s: Site) -> Op:
    """The op that makes the ratio: (sums) objective (clip) -> ratio."""
    blocks = _blocks(s) if adapted(s) else None
    sums = [together(_sums(s), s.ranks)] if blocks else []
    name, reads = f"{s.layer}.trust_{s.name}", (*sums, s.objective, *_clip(s))
    return Op(name, kind, s.layer, Pass.UPDATE, reads, (_ratio(s),), TrustAttrs(attrs_of(rule, s), blocks))


@dataclass(frozen=True)
class LARS(Rule):
    """You, Gitman and Ginsburg 2017, Algorithm 1: ratio = trust ||w|| / (||g|| + decay ||w||), 1 if either norm is 0;
    h = momentum h + rate ratio (g + decay w);  step = h. `trust` is the solver's trust_coefficient."""

    kind, fields, history = "lars.update", ("momentum", "trust_coefficient"), ("momentum",)
    adapts = True

    @classmethod
    def problems(cls, solver):
        if solver.regularization_type != "L2":
            yield "regularization_type", "expected L2 for type LARS, whose ratio has the norm of the weights"

    def squares(self, s: Site) -> Op | None:
        if not adapted(s):
            return None
        return squares(f"{s.layer}.squares_{s.name}", s.layer, (s.w, s.dw), _sums(s))

    def before(self, s: Site) -> Sequence[Op]:
        return (ratio("lars.ratio", self, s),)

    def update(self, s: Site) -> Op:
        return s.op(self.kind, attrs_of(self, s), self.state(s.w), [_ratio(s)], flops=6 * s.w.size)


@dataclass(frozen=True)
class LAMB(Rule):
    """You 2020 (ICLR), Algorithm 2: u = m / (1 - b1^t) / (sqrt(v / (1 - b2^t)) + delta) + decay w;
    ratio = ||w|| / ||u||, 1 if either norm is 0;  step = rate ratio u."""

    kind, fields, history = "lamb.update", ("momentum", "momentum2", "delta"), ("mean", "squares")
    counts = adapts = True

    @classmethod
    def problems(cls, solver):
        yield from super().problems(solver)
        yield from decoupled(solver)

    def squares(self, s: Site) -> Op | None:
        """The op that updates the means, with the sums."""
        return self._moments(s, _sums(s)) if adapted(s) else None

    def before(self, s: Site) -> Sequence[Op]:
        made = ratio("lamb.ratio", self, s)
        return (made,) if adapted(s) else (self._moments(s), made)

    def _moments(self, s: Site, *sums: Tensor) -> Op:
        """w dw objective m v iteration (clip) -> m v (sums): the means, and the squares of w and of the step."""
        m, v = self.state(s.w)
        reads, writes = (s.w, s.dw, s.objective, m, v, s.iteration, *_clip(s)), (m, v, *sums)
        name, flops = f"{s.layer}.moments_{s.name}", 16 * s.w.size
        return Op(name, "lamb.moments", s.layer, Pass.UPDATE, reads, writes, attrs_of(self, s), (), flops)

    def update(self, s: Site) -> Op:
        reads = (s.w, s.rate, *self.state(s.w), s.iteration, _ratio(s))
        attrs, name = attrs_of(self, s), f"{s.layer}.update_{s.name}"
        return Op(name, self.kind, s.layer, Pass.UPDATE, reads, (s.w,), attrs, (), 8 * s.w.size)
