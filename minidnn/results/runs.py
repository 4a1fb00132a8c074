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
    kept_best: bool = False


class BestTest(Record):
    """The best test so far, by the output that `keep_best` names."""

    output: str
    way: str
    value: float
    iteration: int
    tested: int
    misses: int


class WeightsRow(Record):
    """The weights that a file gave a net."""

    taken: list[str]
    missing: list[str]
    unused: list[str]


class ConfusionRow(Record):
    """Which classes a net takes for which."""

    layer: str
    class_names: list[str]
    counts: list[list[int]]
    samples: int
    accuracy: float | None
    class_accuracy: list[float | None]


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
    best_test: BestTest | None = None
    out_of_patience: bool = False
    resumed: str | None = None
    weights: WeightsRow | None = None
    peak_bytes: int
    host_bytes: int
    pinned_bytes: int
    pageable_bytes: int
    undo_bytes: int
    on_disk_bytes: int
    beside_arena_bytes: int | None
    train_seconds: float
    samples_per_second: float | None


class Tested(Record):
    """The results of one test net."""

    outputs: dict[str, float]
    samples: int
    test_seconds: float
    confusion: ConfusionRow | None = None


class Testing(Document):
    """`minidnn test`: the test net's outputs, averaged over its data; those of the first, if there are several."""

    kind: Literal["test"] = "test"
    outputs: dict[str, float]
    samples: int
    test_seconds: float
    confusion: ConfusionRow | None = None
    nets: list[Tested]
    device: str
    description: str
    format: str
    peak_bytes: int
    unused: list[str]


class Prediction(Record):
    """The likeliest classes of a sample."""

    index: int
    path: str
    classes: list[int]
    class_names: list[str] | None = None
    probabilities: list[float]


class Predictions(Document):
    """`minidnn predict`: the likeliest classes of each sample."""

    kind: Literal["predict"] = "predict"
    predictions: list[Prediction]
