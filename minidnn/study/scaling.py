"""The learning rate for a larger minibatch, and a model of several devices that train together.

The learning rate follows the linear scaling rule with gradual warm-up of Goyal et al. ("Accurate, Large Minibatch SGD:
Training ImageNet in 1 Hour", arXiv 1706.02677, sections 2.1 and 2.2). Each of N devices computes on a minibatch of its
own; then they sum their gradients by a ring all-reduce.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from minidnn.program import Program, Role, nbytes

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


@dataclass(frozen=True)
class Cluster:
    """N devices that train together, each on minibatches of its own.

    After each iteration a ring all-reduce sums their gradients. It overlaps with nothing, and each device sends and
    receives 2 (N - 1) / N of the gradients' bytes."""

    devices: int
    bandwidth: float  # bytes per second of each link of the ring, each way
    latency: float = 0.0  # seconds of each of the 2 (N - 1) rounds

    def sync(self, nbytes: int) -> float:
        """Seconds until every device has the sum of gradients of `nbytes` bytes."""
        rounds = 2 * (self.devices - 1)
        return rounds * (nbytes / self.devices / self.bandwidth + self.latency)

    def efficiency(self, seconds: float, nbytes: int) -> float:
        """The speed-up over one device, divided by the number of devices (0 to 1).

        seconds: of an iteration on one device. nbytes: of the gradients."""
        return seconds / (seconds + self.sync(nbytes))

    def epoch(self, batch: int, seconds: float, nbytes: int, samples: int = SAMPLES) -> float:
        """Seconds of an epoch of `samples` samples on all devices together.

        One device takes `seconds` for an iteration on `batch` samples. nbytes: of the gradients."""
        return samples / (self.devices * batch) * (seconds + self.sync(nbytes))


def gradient_bytes(program: Program) -> int:
    """Bytes of gradients that the devices sum after an iteration: as many as the weights have."""
    return nbytes(t for t in program.carried if t.role is Role.PARAM)
