"""A net without a plan: `show`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from minidnn.results.record import Document, Record


class LayerRow(Record):
    """One layer of a net."""

    layer: str
    type: str = Field(description="the type of the layer")
    bottoms: list[str] = Field(description="the blobs that the layer reads")
    tops: list[str] = Field(description="the blobs that it gives")
    shapes: list[list[int]] = Field(description="the shape of each top: samples first, then channels, height and width")
    parameters: int
    parameter_bytes: int
    top_bytes: int
    flops: int


class Summary(Document):
    """`minidnn show`: a net's layers, and their sums."""

    kind: Literal["show"] = "show"
    net: str
    batch: int | None
    format: str
    phase: str
    rows: list[LayerRow]
    parameters: int
    parameter_bytes: int
    top_bytes: int
    flops: int
