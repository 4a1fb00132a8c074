"""Results without a device: `reproduce`, `pack`, `convert`."""

from __future__ import annotations

from typing import Literal

from minidnn.results.record import Document, Record

Verdict = Literal[
    "within 10 %", "explained by a trial", "not explained", "by construction", "no figure of theirs",
    "no figure of ours",
]  # fmt: skip


class ReproducedRow(Record):
    """One number of a paper, and ours."""

    system: str
    figure: str
    case: str
    quantity: str
    paper: float | None
    ours: float | None
    verdict: Verdict
    reason: str
    tried: float | None
    deviation: float | None
    left: float | None


class Verdicts(Record):
    """How many rows of a system have a verdict."""

    system: str
    verdict: Verdict
    figures: int


class Reproduction(Document):
    """`minidnn reproduce`: the papers' tables and figures, compared with ours."""

    kind: Literal["reproduce"] = "reproduce"
    rows: list[ReproducedRow]
    verdicts: list[Verdicts]


class Packing(Document):
    """`minidnn pack`: how low the buffers were packed."""

    kind: Literal["pack"] = "pack"
    buffers: int
    load_bytes: int
    height_bytes: int
    over_load: float | None
    capacity_bytes: int | None
    fits: bool
    how: str
    pack_seconds: float


class Conversion(Document):
    """`minidnn convert`: the file that was written."""

    kind: Literal["convert"] = "convert"
    file: str
    what: Literal["net", "solver", "weights"]
    name: str | None
    count: int
    notes: list[str]
