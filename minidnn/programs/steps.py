"""From complete gradients to weights: clipping, division by the loss's scale, and the optimizer's ops.

A weight is updated as soon as its gradient is complete, so that gradients need not all live at once. Clipping and the
loss's scale need all gradients first (their norm; whether all are finite). With either, all updates come last. Several
ranks tell each other the sums of squares that norms are made of (optimizers/squares.py).

The smallest positive number of float16 is 6e-8. In that format the gradients of the losses are therefore multiplied by
a scale, and updates divide by it (Micikevicius et al., "Mixed Precision Training", ICLR 2018). The scale lives on the
device. If a gradient is not finite, the update is skipped and the scale halved; after enough good steps the scale is
doubled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from minidnn.layers.base import Parameter
from minidnn.optimizers.base import Site
from minidnn.optimizers.squares import Blocks, squares, together
from minidnn.program import Op, Pass, Role, Tensor
from minidnn.programs.ranks import net
from minidnn.programs.scalars import ITERATION, OBJECTIVE, RATE, SCALE, TOGETHER, objectives
from minidnn.programs.spec import TrainSpec


@dataclass(frozen=True)
class ClipAttrs:
    """The op writes a factor for all gradients: 1, and smaller if their norm exceeds the threshold. It reads the sums
    of their squares, which lie in `blocks`."""

    threshold: float
    blocks: Blocks


@dataclass(frozen=True)
class UnscaleAttrs:
    """The op writes a factor for all gradients: 1 / scale, and smaller if their norm exceeds the threshold (negative:
    no threshold). It reads what the op of ClipAttrs does. If a gradient is not finite, the factor is NaN, and the scale
    is halved, but not below `least`. After `period` good steps the scale is doubled, up to `most`. Gradients that are
    not finite even at `least` are applied to the weights, so that the loss shows them."""

    threshold: float
    blocks: Blocks
    period: int = 2000
    most: float = 2.0**24
    least: float = 2.0**-24


@dataclass(frozen=True, eq=False)
class Learned:
    """A parameter whose gradient is complete."""

    layer: str
    parameter: Parameter
    w: Tensor
    dw: Tensor
    axes: int  # of the whole weight


class Steps:
    """Makes the ops and hands them to `emit` in order."""

    def __init__(self, train: TrainSpec, scaled: bool, emit: Callable[[Op], object]) -> None:
        """`scaled`: the gradients of the losses are multiplied by a scale."""
        self.train, self.scaled, self.emit = train, scaled, emit
        self.learned: list[Learned] = []
        self._waiting: list[Site] = []  # those whose sums of squares are on their way
        self._all_gathers = 0
        self._told = False

    def add(self, one: Learned) -> None:
        """Take a parameter's complete gradient."""
        self.learned.append(one)

    def update_ready(self) -> None:
        """Update the weights whose gradients have come, unless all gradients are needed first."""
        if not self.train.clips and not self.scaled:
            learned, self.learned = self.learned, []
            self._update(learned, None)

    def finish(self) -> None:
        """All gradients have come: make the updates that had to wait."""
        if self.learned:
            self._update(self.learned, self._clip())
        for s in self._waiting:
            self._step(s)

    def _clip(self) -> Tensor:
        """The factor of all gradients."""
        train, gradients = self.train, [one.dw for one in self.learned]
        blocks, clip = Blocks.of(gradients, train.ranks), Tensor("clip", (1,), role=Role.EXTRA)
        sums = blocks.sums("squares")
        self.emit(squares("gradient.squares", "clip", gradients, sums))
        self._gather([sums])
        sums = together(sums, train.ranks)
        if self.scaled:
            attrs = UnscaleAttrs(train.clip_gradients, blocks)
            reads = [SCALE, self._objective(), sums]
            self._op("gradient.unscale", "gradient.unscale", "clip", reads, [SCALE, clip], attrs)
        else:
            self._op("gradient.clip", "gradient.clip", "clip", [sums], [clip], ClipAttrs(train.clip_gradients, blocks))
        return clip

    def _update(self, learned: Iterable[Learned], clip: Tensor | None) -> None:
        """Update these weights. Those that need the other ranks' sums are updated once the next ones' are on their
        way."""
        sums: list[Tensor] = []
        waiting: list[Site] = []
        for one in learned:
            s = self._site(one, clip)
            if (op := self.train.optimizer.squares(s)) is not None:
                self.emit(op)
            if op is None or self.train.ranks == 1:
                self._step(s)
            else:
                sums.append(op.writes[-1])
                waiting.append(s)
        if waiting:
            self._gather(sums)
            ready, self._waiting = self._waiting, waiting
            for s in ready:
                self._step(s)

    def _step(self, s: Site) -> None:
        for op in (*self.train.optimizer.before(s), self.train.optimizer.update(s)):
            self.emit(op)

    def _gather(self, sums: Sequence[Tensor]) -> None:
        """Several ranks tell each other these sums of squares."""
        ranks = self.train.ranks
        if ranks > 1:
            all_ = [together(t, ranks) for t in sums]
            self.emit(net(f"net.squares{self._all_gathers or ''}", "net.all_gather", sums, all_, ranks))
            self._all_gathers += 1

    def _site(self, one: Learned, clip: Tensor | None) -> Site:
        p, train = one.parameter, self.train
        return Site(
            one.layer, p.name, one.w, one.dw, RATE, ITERATION, self._objective(), clip, p.lr_mult, p.decay_mult,
            1.0 / (train.iter_size * train.ranks), one.axes, train.ranks,
        )  # fmt: skip

    def _objective(self) -> Tensor:
        """It is finite if those of all ranks are."""
        if self.train.ranks == 1:
            return OBJECTIVE
        if not self._told:
            self._told = True
            result = objectives(self.train.ranks)
            reads = [result, OBJECTIVE]  # this rank's is not read, but stays, so that no op waits for it to be sent
            self._op("net.together", "objective.sum", "net", reads, [TOGETHER])
        return TOGETHER

    def _op(self, name, kind, layer, reads, writes, attrs=None) -> None:
        self.emit(Op(name, kind, layer, Pass.UPDATE, tuple(reads), tuple(writes), attrs))
