"""What happens while a net is trained, as values: the solver yields them, the command line shows them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from minidnn.memory.execution.trace import Trace
from minidnn.training.session import Loaded


@dataclass(frozen=True)
class Began:
    iteration: int
    max_iter: int
    seed: int
    resumed: Path | None
    weights: Loaded | None  # what became of weights that were given
    notes: tuple[str, ...]  # what a person should know


@dataclass(frozen=True)
class Step:
    """One iteration, done. `iteration` is its number, from 0; `outputs` are the net's, of the last batch."""

    iteration: int
    loss: float  # mean over iter_size
    smoothed: float  # mean over the last average_loss iterations
    rate: float
    seconds: float
    images: int
    outputs: Mapping[str, float]
    trace: Trace | None = None  # of the TRAIN program, where asked for


@dataclass(frozen=True)
class Tested:
    """Outputs of the TEST net, averaged over its batches, after `iteration` iterations."""

    iteration: int
    outputs: Mapping[str, float]
    images: int
    seconds: float


@dataclass(frozen=True)
class Saved:
    iteration: int
    path: Path


@dataclass(frozen=True)
class Ended:
    iteration: int
    interrupted: bool


Event = Began | Step | Tested | Saved | Ended
