"""The contents of sources of samples: `data`."""

from __future__ import annotations

from typing import Literal

from minidnn.results.record import Document, Record


class LabelRow(Record):
    """A label, and how many samples have it."""

    label: int
    name: str | None
    samples: int


class SourceRow(Record):
    """The contents of a source. Without samples that can be read there are no shapes and values."""

    layer: str | None
    source: str
    source_kind: str
    samples: int
    read_samples: int
    labels: list[LabelRow]
    smallest_shape: list[int] | None
    median_shape: list[int] | None
    largest_shape: list[int] | None
    sample_type: str | None
    lowest: float | None
    highest: float | None
    mean_value: list[float] | None
    disk_bytes: int | None
    decoded_bytes: int
    net_shape: list[int] | None
    batch_bytes: int | None
    workers: int | None
    staged_bytes: int | None
    unreadable: int
    problems: list[str]


class Contents(Document):
    """`minidnn data`: what a source holds, or each source of a net in a phase."""

    kind: Literal["data"] = "data"
    phase: str
    rows: list[SourceRow]
    files: list[str]
