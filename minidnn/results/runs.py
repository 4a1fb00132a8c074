"""Runs of a net: `train`, `tune --rate`, `test`, `predict`."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from minidnn.results.record import Document, NetDocument, Record


class StepRow(Record):
    """One step of training."""

    iteration: int
    loss: float
    lr: float
    debug: dict[str, Any] | None = Field(default=None, description="what `debug_info` shows of the step")


class TestRow(Record):
    """One test on the way, of one test net."""

    iteration: int
    test_net: int = Field(default=0, description="the number of the test net")
    test_loss: float | None = Field(default=None, description="the objective of the test net")
    outputs: dict[str, float]


class SnapshotRow(Record):
    """A snapshot that was saved."""

    iteration: int
    path: str
    kept_best: bool = Field(
        default=False, description="whether it is the best snapshot, which is replaced by a better one"
    )


class BestTest(Record):
    """The best test so far, by the output that `keep_best` names."""

    output: str = Field(description="the name of the test's output")
    way: str = Field(description="which of its values is the best: `highest` or `lowest`")
    value: float = Field(description="the output's value")
    iteration: int
    tested: int = Field(description="the iteration of the last test that was counted")
    misses: int = Field(description="tests since the best one, none of them better")


class WeightsRow(Record):
    """The weights that a file gave a net."""

    taken: list[str] = Field(description="weights of the file that the net took")
    missing: list[str] = Field(description="weights of the net that the file lacks")
    unused: list[str]


class ConfusionRow(Record):
    """Which classes a net takes for which."""

    layer: str
    class_names: list[str]
    counts: list[list[int]] = Field(description="samples by label (rows) and by the net's answer (columns)")
    samples: int
    accuracy: float | None = Field(description="the part of samples that were answered right; null without samples")
    class_accuracy: list[float | None] = Field(
        description="the part of each label's samples that were answered right; null for a label without samples"
    )


class Training(Document):
    """`minidnn train`: what a run did."""

    kind: Literal["train"] = "train"
    history: list[StepRow] = Field(description="the steps")
    tests: list[TestRow] = Field(description="the tests on the way")
    snapshots: list[SnapshotRow] = Field(description="the snapshots that were saved")
    iterations: int = Field(description="the iteration that was reached")
    interrupted: bool = Field(description="whether a signal ended the run")
    policy: str
    device: str
    description: str
    format: str
    seed: int
    refusals: list[str] = Field(description="sentences on the algorithms that the device refused to run")
    best_test: BestTest | None = Field(
        default=None, description="the best test, by the output that keep_best names; null without one"
    )
    out_of_patience: bool = Field(default=False, description="whether the run ended because tests stopped improving")
    resumed: str | None = Field(
        default=None, description="the snapshot that the run continued from; null for a new run"
    )
    weights: WeightsRow | None = Field(
        default=None, description="the weights that were loaded from a file; null without one"
    )
    peak_bytes: int
    host_bytes: int
    pinned_bytes: int
    pageable_bytes: int
    undo_bytes: int
    on_disk_bytes: int
    beside_arena_bytes: int | None
    train_seconds: float = Field(description="seconds of all steps")
    samples_per_second: float | None


class RateRow(Record):
    """One step of a range test."""

    iteration: int
    lr: float
    loss: float
    smoothed_loss: float = Field(description="the loss there by its neighbours: the mean of running medians")


class RateRange(NetDocument):
    """`minidnn tune --rate`: the loss while the learning rate grows."""

    kind: Literal["tune_rate"] = "tune_rate"
    rows: list[RateRow]
    policy: str
    peak_bytes: int
    seed: int
    base_lr: float | None = Field(description="the solver's own rate; null of a net without a solver")
    suggested_lr: float | None = Field(
        description="the rate to train with, by which the smoothed loss has made four fifths of its fall; null if it "
        "never falls"
    )
    least_loss_lr: float | None = Field(
        description="the rate at which the smoothed loss is least; null if it never falls"
    )
    diverged_lr: float | None = Field(description="the rate at which training diverged; null if it did not")


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
    nets: list[Tested] = Field(description="each test net's results, if there are several")
    device: str
    description: str
    format: str
    peak_bytes: int
    unused: list[str]


class Prediction(Record):
    """The likeliest classes of a sample."""

    index: int = Field(description="the number of the sample, from 0")
    path: str
    classes: list[int] = Field(description="the likeliest classes, the likeliest first")
    class_names: list[str] | None = None
    probabilities: list[float] = Field(description="their probabilities")


class Generated(Document):
    """`minidnn generate`: what a net goes on with."""

    kind: Literal["generate"] = "generate"
    prompt: list[int] = Field(description="the tokens that it continues")
    continuation: list[int] = Field(description="the tokens that it makes")
    text: str | None = Field(description="the same as a text; null for a net whose tokens are not bytes")
    cached: bool = Field(description="whether keys and values were kept from token to token")
    elapsed_seconds: float = Field(description="seconds from the prompt to the last token")


class Predictions(Document):
    """`minidnn predict`: the likeliest classes of each sample."""

    kind: Literal["predict"] = "predict"
    predictions: list[Prediction] = Field(description="one for each sample")
