"""Results without a device: `pack`, `convert`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from minidnn.results.record import Document


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
    count: int = Field(description="the number of layers, fields or blobs")
    notes: list[str] = Field(description="notes on what could not be converted, and what was left out")
