"""The learning rate for a larger minibatch.

It follows the linear scaling rule with gradual warm-up of Goyal et al. ("Accurate, Large Minibatch SGD: Training
ImageNet in 1 Hour", arXiv 1706.02677, sections 2.1 and 2.2).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

REFERENCE = (0.1, 256)  # Goyal et al., section 2.1: a rate of 0.1 for 256 images
WARM_EPOCHS = 5  # section 2.2
SAMPLES = 1_281_167  # ImageNet's training images


@dataclass(frozen=True)
class Matched:
    """Solver fields for a minibatch."""

    base_lr: float
    rampup_lr: float  # the rate at which the warm-up begins
    rampup_interval: int  # iterations; 0: no warm-up is needed
    scaled: dict[str, int | list[int]]  # fields that count iterations, scaled so that they last as many epochs

    def fields(self) -> dict[str, object]:
        warm = {"rampup_lr": self.rampup_lr, "rampup_interval": self.rampup_interval} if self.rampup_interval else {}
        return {"base_lr": self.base_lr, **warm, **self.scaled}


def matched(
    rate: float,
    reference: int,
    minibatch: int,
    samples: int = SAMPLES,
    counts: dict[str, int | list[int]] | None = None,
    epochs: int = WARM_EPOCHS,
) -> Matched:
    """The solver fields for updates of `minibatch` samples, if `rate` is right for updates of `reference` samples.

    k times the minibatch takes k times the rate (Goyal et al., 2.1). If k > 1, the rate begins at `rate` and rises
    linearly over the first `epochs` (2.2).

    samples: those of an epoch. counts: solver fields that count iterations of `reference` samples."""
    k = minibatch / reference
    warm = ceil(epochs * samples / minibatch) if k > 1 else 0
    scaled: dict[str, int | list[int]] = {}
    for name, value in (counts or {}).items():
        each = [max(1, round(v / k)) for v in (value if isinstance(value, list) else [value])]
        scaled[name] = each if isinstance(value, list) else each[0]
    return Matched(rate * k, rate, warm, scaled)
