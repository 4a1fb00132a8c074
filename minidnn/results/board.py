"""The board: all policies on nets, GPUs and budgets, with the gap to the bound: `board`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from minidnn.results.record import Document, Record


class BoardRow(Record):
    """A policy's plan of a net on a GPU within one budget. The numbers of a refused or failed plan are null."""

    net: str
    batch: int | None
    gpu: str
    budget_bytes: int
    budget_part: float | None = Field(
        description="the budget as a part of `whole_bytes`; null where it was named in bytes"
    )
    policy: str
    fits: bool
    failed: bool = Field(description="whether planning failed, which is not a refusal")
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
    """A net on a GPU: what its steps take if memory is no matter, and what no plan is below."""

    net: str
    batch: int | None
    gpu: str
    title: str
    ops: int
    whole_bytes: int | None = Field(
        description="bytes of the arena of liveness:p: nothing moves, and each op has its fastest algorithm"
    )
    free_seconds: float | None
    least_bytes: int | None
    why: str | None = None


class StandingRow(Record):
    """How a policy did in all."""

    policy: str
    cells: int
    quickest: int = Field(description="cells in which no policy was quicker, by more than a thousandth")
    near: int = Field(description="cells in which its step took at most 5 % longer than the quickest one's")
    kept: int = Field(description="cells in which its plan kept the budget")
    refused_cells: int = Field(description="cells in which it could not keep the budget")
    failed_cells: int = Field(description="cells in which planning failed")
    median_gap: float | None = Field(description="the median of `gap` over its cells")
    plan_seconds: float


class PaperRow(Record):
    """The authors of a policy, and our assumptions where their text is silent."""

    policy: str
    paper_title: str = Field(description="the title of the paper; of a policy of minidnn's own, what it does")
    authors: str = Field(description="the authors of the paper; empty for a policy of minidnn's own")
    venue: str = Field(description="where the paper appeared")
    year: int | None = Field(description="when it did")
    section: str = Field(description="the part of the paper that the policy follows")
    called: str = Field(
        description="what the policy is called after the paper: its system's name, with -style if the policy is "
        "partial, or decides otherwise; empty if the paper has no name for it"
    )
    style: bool = Field(description="whether that is so")
    silent: list[str] = Field(description="what our reading assumes where the paper gives no answer")


class Board(Document):
    """`minidnn board`: all policies on nets, GPUs and budgets."""

    kind: Literal["board"] = "board"
    format: str
    rows: list[BoardRow]
    contests: list[ContestRow] = Field(description="the nets on their GPUs")
    standings: list[StandingRow] = Field(
        description="how each policy did in all its cells, the one that was quickest most often first"
    )
    papers: list[PaperRow] = Field(description="who proposed each policy, and what our reading assumes")
    cells: int
    finished: bool = Field(description="whether all cells were planned before the run was interrupted")
