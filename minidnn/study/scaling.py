"""What goes with a larger minibatch: its learning rate, and a model of several devices that train in step.

The learning rate follows the linear scaling rule with gradual warm-up of Goyal et al. ("Accurate, Large Minibatch SGD:
Training ImageNet in 1 Hour", arXiv 1706.02677, sections 2.1 and 2.2). Of N devices each takes a minibatch of its own;
then they sum their gradients in a ring.
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
    """Solver fields that go with a minibatch. `scaled`: those that count iterations, made to mean the same epochs."""

    base_lr: float
    rampup_lr: float
    rampup_interval: int  # iterations; 0: no warm-up is needed
    scaled: dict[str, int | list[int]]

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
    """The learning rate for `minibatch` samples an update, given that `rate` is right for `reference`: k times the
    minibatch takes k times the rate (Goyal et al., 2.1). Where k > 1 it begins at `rate` and rises evenly over the
    first `epochs` (2.2). `counts`: solver fields that count iterations of `reference` samples."""
    k = minibatch / reference
    warm = ceil(epochs * samples / minibatch) if k > 1 else 0
    scaled: dict[str, int | list[int]] = {}
    for name, value in (counts or {}).items():
        each = [max(1, round(v / k)) for v in (value if isinstance(value, list) else [value])]
        scaled[name] = each if isinstance(value, list) else each[0]
    return Matched(rate * k, rate, warm, scaled)


@dataclass(frozen=True)
class Cluster:
    """Devices that train in step, each on minibatches of its own, with one sum of gradients after each iteration that
    overlaps with nothing: a ring all-reduce, in which each device sends and receives 2 (N - 1) / N of the bytes."""

    devices: int
    bandwidth: float  # bytes per second of each link of the ring, each way
    latency: float = 0.0  # seconds of each of the 2 (N - 1) rounds

    def sync(self, nbytes: int) -> float:
        """Seconds until every device has the sum of so many bytes."""
        rounds = 2 * (self.devices - 1)
        return rounds * (nbytes / self.devices / self.bandwidth + self.latency)

    def efficiency(self, seconds: float, nbytes: int) -> float:
        """The part of an iteration that is not spent on the sum of so many bytes: speed-up over one device, per
        device. `seconds`: of an iteration on one device."""
        return seconds / (seconds + self.sync(nbytes))

    def epoch(self, batch: int, seconds: float, nbytes: int, samples: int = SAMPLES) -> float:
        """Seconds in which all devices together see `samples` samples once, each `batch` of them in `seconds`."""
        return samples / (self.devices * batch) * (seconds + self.sync(nbytes))


def gradient_bytes(program: Program) -> int:
    """What devices have to agree on after an iteration: as many bytes as the weights have."""
    return nbytes(t for t in program.carried if t.role is Role.PARAM)
