"""Results without a device: `reproduce`, `pack`, `convert`."""

from __future__ import annotations

from typing import Literal

from minidnn.results.record import Document, Record


class ReproducedRow(Record):
    """One number of a paper, and ours."""

    system: str
    figure: str
    case: str
    quantity: str
    paper: float | None
    ours: float | None
    reason: str
    tried: float | None
    deviation: float | None
    left: float | None


class Reproduction(Document):
    """`minidnn reproduce`: the papers' tables and figures, compared with ours."""

    kind: Literal["reproduce"] = "reproduce"
    rows: list[ReproducedRow]


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
