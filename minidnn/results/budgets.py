"""Budgets, and the time that they cost: `frontier`, `cards`, `search`, `tune`."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

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
    price: float | None = Field(default=None, description="seconds that one byte more saves, by the bound")
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
    bounds: list[BoundRow] = Field(description="the bound at many budgets")
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
    lossless: bool = Field(description="whether memory costs no time there: at most 1 % more")


class Cards(Document):
    """`minidnn cards`: which of the known GPUs is enough."""

    kind: Literal["cards"] = "cards"
    net: str
    batch: int | None
    tokens: int | None = None
    format: str
    rows: list[CardRow]


class SearchRow(Record):
    """The largest batch, size, depth or number of tokens that a policy places."""

    policy: str
    net: str
    batch: int | None
    size: int | None
    tokens: int | None
    depth: int | None
    peak_bytes: int | None
    live_peak_bytes: int | None
    arena_bytes: int | None
    host_bytes: int | None
    step_seconds: float | None
    budget_bytes: int
    next: int | None = Field(description="the smallest size above it that was tried and does not fit")
    next_peak_bytes: int | None = Field(description="the bytes that it would take")
    next_host_bytes: int | None = Field(description="the bytes of the host that it would take")
    plans: int = Field(description="plans that were made")
    ended: bool = Field(description="whether time ran out before the sizes in between were tried")
    multiple_of: int
    search_seconds: float = Field(description="seconds of the search")


class Excluded(Record):
    """The smallest size that no policy can place, by the bound. One of the four sizes is given."""

    batch: int | None = None
    size: int | None = None
    tokens: int | None = None
    depth: int | None = None
    least_bytes: int


class Search(NetDocument):
    """`minidnn search`: the largest batch, size, depth or number of tokens that each policy places within a budget."""

    kind: Literal["search"] = "search"
    rows: list[SearchRow]
    budget_bytes: int
    excluded: Excluded | None = Field(
        default=None,
        description="the smallest size that no plan of whole ops can place, by the bound; null if there is none",
    )


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
    epoch_seconds: float | None = Field(description="seconds of an epoch on all ranks")
    efficiency: float | None
    why: str


class FormatRow(Record):
    """The best batch in another number format."""

    format: str
    step_seconds: float
    samples_per_second: float


class MeasuredRow(Record):
    """A batch that was run: its predicted seconds beside the measured ones."""

    batch: int
    step_seconds: float
    measured_step_seconds: float | None = Field(description="the median seconds of the steps that were run")
    why: str


class Tuning(NetDocument):
    """`minidnn tune`: throughput against the batch, and a solver for the best one."""

    kind: Literal["tune"] = "tune"
    rows: list[TuneRow]
    policy: str
    budget_bytes: int | None = None
    best: int | None = Field(description="the batch of the highest throughput")
    largest_unswapped: int | None = Field(description="the largest batch that fits without swapping")
    ratio: float | None = Field(description="the best batch over that one")
    enough: int | None = Field(
        description="the smallest batch that was tried whose throughput is within 1 % of the best"
    )
    most_samples_per_second: float = Field(
        description="samples per second that no plan of a batch up to the largest tried can exceed: each op "
        "runs once, by its fastest algorithm"
    )
    behind: float | None = Field(description="how far the best is below that, as a part of it")
    formats: list[FormatRow] = Field(description="the best batch in the formats of 16 bits that the device has")
    grid: int = Field(description="the batches found are exact to within this many samples")
    multiple_of: int
    epoch_samples: int = Field(description="samples of an epoch")
    solver: dict[str, Any] | None = Field(description="the solver fields that go with the best batch")
    measured: list[MeasuredRow] = Field(description="the batches that were run")
    scaling: list[ScalingRow] = Field(description="speed against the number of ranks; empty if there is one number")
