"""What becomes of the gradients of weights: micro-batches are added up, their norm is clipped, the loss's scale is
taken off, and an optimizer updates each weight.

An update follows as soon as its gradient is complete, so that gradients need not all live at once. Clipping and the
loss's scale ask for the norm of all gradients: with either all updates come last.

float16 reaches no lower than 6e-8, so with it the losses' gradients are multiplied by a scale on their way back, and
updates divide by it (Micikevicius et al., "Mixed Precision Training", ICLR 2018). The scale lives on the device: it is
halved, and the update skipped, when a gradient is not finite, and doubled after so many good steps.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from minidnn.layers.base import Parameter
from minidnn.optimizers import SGD, Optimizer
from minidnn.optimizers.base import Site
from minidnn.program import Op, Pass, Role, Tensor

RATE = Tensor("rate", (1,), role=Role.CONTROL)
ITERATION = Tensor("iteration", (1,), "int64", Role.CONTROL)
OBJECTIVE = Tensor("objective", (1,))
SCALE = Tensor("loss_scale", (2,), role=Role.STATE)  # the scale of the loss; good steps since it was changed


@dataclass(frozen=True)
class TrainSpec:
    """How a step trains. clip_gradients < 0 means no clipping.

    iter_size:  batches whose gradients are added up before an update
    accumulate: the program of all but the last of these: gradients are added up, nothing is updated
    seed:       of dropout
    loss_scale: what the scale of the loss is at first, where the format is float16
    """

    optimizer: Optimizer = SGD()  # noqa: RUF009  (frozen)
    clip_gradients: float = -1.0
    iter_size: int = 1
    seed: int = 0
    accumulate: bool = False
    loss_scale: float = 2.0**16

    @property
    def clips(self) -> bool:
        return self.clip_gradients >= 0


@dataclass(frozen=True)
class ClipAttrs:
    threshold: float


@dataclass(frozen=True)
class UnscaleAttrs:
    """The factor of gradients is 1 / scale, less where their norm exceeds the threshold (negative: none); not a number
    where they are not finite. The scale is doubled after `period` good steps, up to `most`, and halved down to `least`:
    gradients that are not finite even then are taken as they are, so that the loss tells."""

    threshold: float
    period: int = 2000
    most: float = 2.0**24
    least: float = 2.0**-24


@dataclass(frozen=True, eq=False)
class _Learned:
    """A parameter whose gradient is complete."""

    layer: str
    parameter: Parameter
    w: Tensor
    dw: Tensor


class Updates:
    """The ops after the gradients of one program. `emit` takes them in order; `carried` is what lives across steps."""

    def __init__(self, train: TrainSpec, scaled: bool, emit: Callable[[Op], object]) -> None:
        """`scaled`: losses' gradients are multiplied by a scale, which updates divide by."""
        self.train, self.scaled, self.emit = train, scaled, emit
        self.carried: list[Tensor] = []
        self.learned: list[_Learned] = []

    def complete(self, layer: str, p: Parameter, w: Tensor, dw: Tensor) -> None:
        """A parameter's gradient is whole: update at once, unless something must be known of all gradients first."""
        train = self.train
        if train.iter_size > 1:
            total = Tensor(f"{dw.name}.sum", dw.shape, w.dtype, Role.PARAM_GRADIENT)
            self.carried.append(total)
            self._op(f"{layer}.accumulate_{p.name}", "gradient.accumulate", layer, [total, dw], [total], flops=w.size)
            dw = total
        self.carried += train.optimizer.state(w)  # of ACCUMULATE too: all programs agree on what is carried
        learned = _Learned(layer, p, w, dw)
        self.learned.append(learned)
        if not train.accumulate and not train.clips and not self.scaled:
            self._update(learned, None)

    def finish(self) -> None:
        """All gradients are whole: what had to wait for that."""
        train = self.train
        if train.accumulate or not (train.clips or self.scaled) or not self.learned:
            return
        clip = Tensor("clip", (1,), role=Role.EXTRA)
        gradients = [one.dw for one in self.learned]
        flops = 2 * sum(t.size for t in gradients)
        if self.scaled:
            attrs = UnscaleAttrs(train.clip_gradients)
            reads = [SCALE, OBJECTIVE, *gradients]
            self._op("gradient.unscale", "gradient.unscale", "clip", reads, [SCALE, clip], attrs, flops)
        else:
            clipping = ClipAttrs(train.clip_gradients)
            self._op("gradient.clip", "gradient.clip", "clip", gradients, [clip], clipping, flops)
        for one in self.learned:
            self._update(one, clip)

    def _update(self, one: _Learned, clip: Tensor | None) -> None:
        p, train = one.parameter, self.train
        site = Site(
            one.layer, p.name, one.w, one.dw, RATE, ITERATION, OBJECTIVE, clip,
            p.lr_mult, p.decay_mult, 1.0 / train.iter_size,
        )  # fmt: skip
        self.emit(train.optimizer.update(site))
        if train.iter_size > 1:
            self._op(f"{one.layer}.clear_{p.name}", "gradient.clear", one.layer, [], [one.dw])

    def _op(self, name, kind, layer, reads, writes, attrs=None, flops=0) -> None:
        self.emit(Op(name, kind, layer, Pass.UPDATE, tuple(reads), tuple(writes), attrs, (), flops))
