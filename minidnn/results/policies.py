"""Policies side by side (`plan`, `compare`), and the answer to a refused budget."""

from __future__ import annotations

from typing import Any, Literal

from minidnn.results.record import Document, NetDocument, Record


class PolicyRow(Record):
    """One policy's plan of a net. A refused policy's numbers are those under the smallest budget it can keep."""

    policy: str
    algorithms: str
    fits: bool
    peak_bytes: int
    live_peak_bytes: int
    arena_bytes: int
    average_bytes: float
    offload_bytes: int
    prefetch_bytes: int
    input_bytes: int
    output_bytes: int
    host_bytes: int
    recomputed_ops: int
    step_seconds: float
    slowdown: float | None = None
    bound_seconds: float | None = None
    gap: float | None = None
    stall_seconds: float
    identical: bool | None = None
    role_bytes: dict[str, int]
    pinned_bytes: int
    pageable_bytes: int
    undo_bytes: int
    on_disk_bytes: int
    stored_bytes: int | None = None
    smallest_budget_bytes: int | None = None
    smallest_host_budget_bytes: int | None = None
    smallest_host_ring_bytes: int | None = None
    paper_peak_bytes: int | None = None
    samples_per_second: float | None = None
    efficiency: float | None = None
    exposed_seconds: float | None = None
    net_seconds: float | None = None
    sent_bytes: int | None = None
    ram_bytes: int | None = None
    ram_plan_bytes: int | None = None
    ram_process_bytes: int | None = None
    ram_data_bytes: int | None = None
    ram_batches_bytes: int | None = None
    ram_workers_bytes: int | None = None
    ram_working_bytes: int | None = None
    ram_closing_bytes: int | None = None
    timed_steps: int | None = None
    starts: int | None = None
    step_seconds_low: float | None = None
    step_seconds_high: float | None = None
    slowdown_low: float | None = None
    slowdown_high: float | None = None
    other_processors: float | None = None
    why: str | None = None


class Resident(Record):
    """A tensor that is on the device at the worst moment."""

    name: str
    tensor_bytes: int
    role: str
    stays: str
    read: bool
    over: str


class Worst(Record):
    """The worst moment of a plan that was refused."""

    program: str
    op: str
    number: int
    ops: int
    live_bytes: int
    held_bytes: dict[str, int]
    algorithm: str
    workspace_bytes: int
    leanest_algorithm: str
    leanest_workspace_bytes: int
    residents: list[Resident]


class Remedy(Record):
    """A change of the refused command, and what came of it."""

    options: str
    change: dict[str, Any]
    fits: bool
    planned: bool
    peak_bytes: int
    host_bytes: int | None = None
    batch: int | None = None
    step_seconds: float | None = None
    note: str


class Refusal(Record):
    """Why a budget was refused, and what would fit."""

    policy: str
    why: str
    worst: Worst | None
    limit_bytes: int
    host: bool
    reached_bytes: int
    least_bytes: int | None
    carried_bytes: int
    largest_batch: int | None
    remedies: list[Remedy]
    in_vain: list[Remedy]


class Plans(NetDocument):
    """`minidnn plan`: what policies do with a net's memory."""

    kind: Literal["plan"] = "plan"
    rows: list[PolicyRow]
    refused: Refusal | None = None


class SavedPlan(Document):
    """`minidnn plan --save`: the plan that was written."""

    kind: Literal["saved_plan"] = "saved_plan"
    file: str
    policy: str
    peak_bytes: int


class Comparison(NetDocument):
    """`minidnn compare`: policies that were run or simulated, side by side."""

    kind: Literal["compare"] = "compare"
    rows: list[PolicyRow]
    beside_arena_bytes: int | None = None
