"""Results without a device: `pack`, `convert`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from minidnn.results.record import Document, Record

Verdict = Literal[
    "within 10 %", "explained by a trial", "not explained", "by construction", "no figure of theirs",
    "no figure of ours",
]  # fmt: skip


class ReproducedRow(Record):
    """One number of a paper, and ours."""

    system: str
    figure: str = Field(description="the table or the figure of the paper")
    case: str = Field(description="the net and the setting")
    quantity: str = Field(description="what the number is, and its unit")
    paper: float | None = Field(description="the paper's number")
    ours: float | None = Field(description="our number")
    verdict: Verdict
    reason: str = Field(
        description="why they may differ, as far as the numbers bear it out, or why there is none of ours"
    )
    tried: float | None = Field(description="our number with one fact changed, which the reason names")
    deviation: float | None = Field(description="ours over the paper's, less 1")
    left: float | None = Field(description="the deviation that `tried` leaves")


class Verdicts(Record):
    """How many rows of a system have a verdict."""

    system: str
    verdict: Verdict
    figures: int = Field(description="how many rows these are")


class Reproduction(Document):
    """`minidnn reproduce`: the papers' tables and figures, compared with ours."""

    kind: Literal["reproduce"] = "reproduce"
    rows: list[ReproducedRow]
    verdicts: list[Verdicts] = Field(description="how many rows have which verdict, by system")


class Packing(Document):
    """`minidnn pack`: how low the buffers were packed."""

    kind: Literal["pack"] = "pack"
    buffers: int = Field(description="how many buffers there are")
    load_bytes: int = Field(description="the most bytes that live at once; no packing is lower")
    height_bytes: int = Field(description="the height of the packing that was found")
    over_load: float | None = Field(description="the height over the load")
    capacity_bytes: int | None = Field(description="the bytes that are enough")
    fits: bool
    how: str = Field(description="how the packing was found")
    pack_seconds: float = Field(description="seconds that it took")


class Conversion(Document):
    """`minidnn convert`: the file that was written."""

    kind: Literal["convert"] = "convert"
    file: str
    what: Literal["net", "solver", "weights"] = Field(description="a net, a solver, or weights")
    name: str | None
    count: int = Field(description="layers, fields or blobs, whichever it has")
    notes: list[str] = Field(description="what could not be taken over, and what was left out")
