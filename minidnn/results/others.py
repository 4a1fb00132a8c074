"""Results without a device: `pack`, `convert`."""

from __future__ import annotations

from typing import Literal

from minidnn.results.record import Document


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
