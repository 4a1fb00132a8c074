"""Budgets, and the time that they cost: `frontier`, `cards`, `search`, `tune`."""

from __future__ import annotations

from typing import Any, Literal

from minidnn.results.ranks import ScalingRow
from minidnn.results.record import Document, NetDocument, Record


class FrontierRow(Record):
    """A policy's plan under one budget."""

    policy: str
    budget_bytes: int
    peak_bytes: int
    step_seconds: float
    bound_seconds: float | None = None
    gap: float | None = None
    price: float | None = None
    offload_bytes: int
    host_bytes: int
    recomputed_ops: int


class BoundRow(Record):
    """The bound at one budget."""

    budget_bytes: int
    bound_seconds: float


class Frontier(NetDocument):
    """`minidnn frontier`: time against bytes, above the bound."""

    kind: Literal["frontier"] = "frontier"
    rows: list[FrontierRow]
    bounds: list[BoundRow]
    least_bytes: int
    reached_bytes: int | None = None


class CardRow(Record):
    """A GPU, and what a step of the net takes on it."""

    gpu: str
    title: str
    memory_bytes: int
    fits: bool
    peak_bytes: int
    host_bytes: int
    host_budget_bytes: int
    step_seconds: float | None
    free_seconds: float
    samples_per_second: float | None
    bound_seconds: float | None
    lossless: bool


class Cards(Document):
    """`minidnn cards`: which of the known GPUs is enough."""

    kind: Literal["cards"] = "cards"
    net: str
    batch: int | None
    format: str
    rows: list[CardRow]


class SearchRow(Record):
    """The largest batch, size or depth that a policy places."""

    policy: str
    net: str
    batch: int | None
    size: int | None
    depth: int | None
    peak_bytes: int | None
    live_peak_bytes: int | None
    arena_bytes: int | None
    host_bytes: int | None
    step_seconds: float | None
    budget_bytes: int
    next: int | None
    next_peak_bytes: int | None
    next_host_bytes: int | None
    plans: int
    ended: bool
    multiple_of: int
    search_seconds: float


class Excluded(Record):
    """The smallest size that no policy can place, by the bound. One of the three sizes is given."""

    batch: int | None = None
    size: int | None = None
    depth: int | None = None
    least_bytes: int


class Search(NetDocument):
    """`minidnn search`: the largest batch, size or depth that each policy places within a budget."""

    kind: Literal["search"] = "search"
    rows: list[SearchRow]
    budget_bytes: int
    excluded: Excluded | None = None


class TuneRow(Record):
    """One batch size, planned and simulated. The numbers of a refused one are 0."""

    batch: int
    fits: bool
    step_seconds: float
    samples_per_second: float
    stall_seconds: float
    moved_bytes: int
    peak_bytes: int
    pinned_bytes: int
    host_bytes: int
    exposed_seconds: float
    epoch_seconds: float | None
    efficiency: float | None
    why: str


class FormatRow(Record):
    """The best batch in another number format."""

    format: str
    step_seconds: float
    samples_per_second: float


class MeasuredRow(Record):
    """A batch that was run: its foreseen seconds beside the measured ones."""

    batch: int
    step_seconds: float
    measured_step_seconds: float | None
    why: str


class Tuning(NetDocument):
    """`minidnn tune`: throughput against the batch, and a solver for the best one."""

    kind: Literal["tune"] = "tune"
    rows: list[TuneRow]
    policy: str
    budget_bytes: int | None = None
    best: int | None
    largest_unswapped: int | None
    ratio: float | None
    enough: int | None
    most_samples_per_second: float
    behind: float | None
    formats: list[FormatRow]
    grid: int
    multiple_of: int
    epoch_samples: int
    solver: dict[str, Any] | None
    measured: list[MeasuredRow]
    scaling: list[ScalingRow]
