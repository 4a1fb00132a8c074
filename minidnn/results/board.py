"""The board: all policies on nets, GPUs and budgets, with the gap to the bound: `board`."""

from __future__ import annotations

from typing import Literal

from minidnn.results.record import Document, Record


class BoardRow(Record):
    """A policy's plan of a net on a GPU within one budget. The numbers of a refused or failed plan are null."""

    net: str
    batch: int | None
    gpu: str
    budget_bytes: int
    budget_part: float | None
    policy: str
    fits: bool
    failed: bool
    peak_bytes: int | None = None
    step_seconds: float | None = None
    bound_seconds: float | None = None
    gap: float | None = None
    moved_bytes: int | None = None
    host_bytes: int | None = None
    recomputed_ops: int | None = None
    smallest_budget_bytes: int | None = None
    smallest_host_budget_bytes: int | None = None
    plan_seconds: float | None = None
    why: str | None = None


class ContestRow(Record):
    """A net on a GPU: what its steps take if memory is no matter, and what no plan of whole ops is below."""

    net: str
    batch: int | None
    gpu: str
    title: str
    ops: int
    whole_bytes: int | None
    free_seconds: float | None
    least_bytes: int | None
    why: str | None = None


class StandingRow(Record):
    """How a policy did in all."""

    policy: str
    cells: int
    quickest: int
    near: int
    kept: int
    refused_cells: int
    failed_cells: int
    median_gap: float | None
    plan_seconds: float


class PaperRow(Record):
    """The authors of a policy, and our assumptions where their text is silent."""

    policy: str
    paper_title: str
    authors: str
    venue: str
    year: int | None
    section: str
    style: bool
    silent: list[str]


class Board(Document):
    """`minidnn board`: all policies on nets, GPUs and budgets."""

    kind: Literal["board"] = "board"
    format: str
    rows: list[BoardRow]
    contests: list[ContestRow]
    standings: list[StandingRow]
    papers: list[PaperRow]
    cells: int
    finished: bool
