"""A net without a plan: `show`."""

from __future__ import annotations

from typing import Literal

from minidnn.results.record import Document, Record


class LayerRow(Record):
    """One layer of a net."""

    layer: str
    type: str
    bottoms: list[str]
    tops: list[str]
    shapes: list[list[int]]
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
