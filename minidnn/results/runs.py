"""Runs of a net: `train`, `test`, `predict`."""

from __future__ import annotations

from typing import Any, Literal

from minidnn.results.record import Document, Record


class StepRow(Record):
    """One step of training."""

    iteration: int
    loss: float
    lr: float
    debug: dict[str, Any] | None = None


class TestRow(Record):
    """One test on the way, of one test net."""

    iteration: int
    test_net: int = 0
    test_loss: float | None = None
    outputs: dict[str, float]


class SnapshotRow(Record):
    """A snapshot that was saved."""

    iteration: int
    path: str


class Training(Document):
    """`minidnn train`: what a run did."""

    kind: Literal["train"] = "train"
    history: list[StepRow]
    tests: list[TestRow]
    snapshots: list[SnapshotRow]
    iterations: int
    interrupted: bool
    policy: str
    device: str
    description: str
    format: str
    seed: int
    refusals: list[str]
    peak_bytes: int
    host_bytes: int
    pinned_bytes: int
    pageable_bytes: int
    beside_arena_bytes: int | None
    train_seconds: float
    samples_per_second: float | None


class Tested(Record):
    """The results of one test net."""

    outputs: dict[str, float]
    samples: int
    test_seconds: float


class Testing(Document):
    """`minidnn test`: the test net's outputs, averaged over its data; those of the first, if there are several."""

    kind: Literal["test"] = "test"
    outputs: dict[str, float]
    samples: int
    test_seconds: float
    nets: list[Tested]
    device: str
    description: str
    format: str
    peak_bytes: int
    unused: list[str]


class Prediction(Record):
    """The likeliest classes of a sample."""

    index: int
    classes: list[int]
    probabilities: list[float]


class Predictions(Document):
    """`minidnn predict`: the likeliest classes of each sample."""

    kind: Literal["predict"] = "predict"
    predictions: list[Prediction]
