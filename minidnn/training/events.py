"""The events of training, as values: the solver yields them, and the command line shows them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from minidnn.memory.execution.trace import Trace
from minidnn.training.best import Best
from minidnn.training.confusion import Confusion
from minidnn.training.session import Loaded


@dataclass(frozen=True)
class Began:
    """Training begins, or goes on from a snapshot, at `iteration`."""

    iteration: int
    max_iter: int
    seed: int
    resumed: Path | None
    weights: Loaded | None  # which of the given weights were loaded; None: none were given
    notes: tuple[str, ...]  # sentences for the user, such as why no snapshot was resumed


@dataclass(frozen=True)
class Step:
    """One iteration has been run. `iteration` is its number from 0; `outputs` are the net's outputs of one number for
    its last batch, by blob name."""

    iteration: int
    loss: float  # mean over iter_size
    smoothed: float  # mean over the last average_loss iterations
    rate: float
    seconds: float
    images: int
    outputs: Mapping[str, float]
    trace: Trace | None = None  # of the TRAIN program, if it was asked for
    debug: Mapping[str, float] = field(default_factory=dict)  # mean absolute values by Caffe's words, with debug_info


@dataclass(frozen=True)
class Tested:
    """Outputs of a TEST net by blob name, averaged over its batches, after `iteration` iterations of training."""

    iteration: int
    outputs: Mapping[str, float]
    images: int
    seconds: float
    program: str = "TEST"  # the net's program; of a second test net it is TEST1
    loss: float | None = None  # the mean objective, with test_compute_loss
    confusion: Confusion | None = None  # which classes were taken for which, if it was asked for

    @property
    def number(self) -> int:
        """The net's number among the test nets, from 0."""
        return int(self.program.removeprefix("TEST") or 0)


@dataclass(frozen=True)
class Saved:
    """A snapshot of the run after `iteration` iterations has been written."""

    iteration: int
    path: Path
    best: Best | None = None  # the test that was better than all before, if the snapshot is kept for it


@dataclass(frozen=True)
class Ended:
    """Training has ended after `iteration` iterations, by itself or because a signal of this number asked for it."""

    iteration: int
    signal: int | None = None
    best: Best | None = None  # the best test, with keep_best
    spent: bool = False  # whether patience has ended it
    seconds: float = field(default=0.0, compare=False)  # that the run took
    waits: tuple[float, ...] = field(default=(), compare=False)  # of these, those in which each rank waited for others

    @property
    def interrupted(self) -> bool:
        return self.signal is not None


Event = Began | Step | Tested | Saved | Ended
