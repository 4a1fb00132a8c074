"""The contents of sources of samples: `data`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from minidnn.results.record import Document, Record


class LabelRow(Record):
    """A label, and how many samples have it."""

    label: int = Field(description="the number of the class")
    name: str | None
    samples: int


class SourceRow(Record):
    """The contents of a source. Without samples that can be read there are no shapes and values."""

    layer: str | None
    source: str = Field(description="the source of samples, as a Data layer names it")
    source_kind: str = Field(description="the kind of the source: folder, lmdb, npz, ...")
    samples: int
    read_samples: int = Field(description="how many of them were read")
    labels: list[LabelRow] = Field(description="how often each label occurs")
    smallest_shape: list[int] | None = Field(description="the shape of the sample with the fewest values")
    median_shape: list[int] | None = Field(description="the median of the shapes, by axis")
    largest_shape: list[int] | None = Field(description="the shape of the sample with the most values")
    sample_type: str | None = Field(description="the type of the values")
    lowest: float | None = Field(description="the lowest value")
    highest: float | None = Field(description="the highest value")
    mean_value: list[float] | None = Field(
        description="the mean of each channel, as `mean_value` of a Data layer takes it; of samples without "
        "channels one"
    )
    disk_bytes: int | None = Field(
        description="bytes on the disk: of encoded images those that were read, else of the whole file or folder"
    )
    decoded_bytes: int = Field(description="bytes of the samples that were read, decoded")
    net_shape: list[int] | None = Field(description="the shape of a sample as the net reads it; null without a net")
    batch_bytes: int | None = Field(description="bytes of a batch as the net reads it; null without a net")
    workers: int | None = Field(description="worker processes that make the samples; null without a net")
    staged_bytes: int | None = Field(description="bytes that these take, with the batches that they make ahead")
    unreadable: int = Field(description="how many samples cannot be read")
    problems: list[str] = Field(description="why the first of them cannot be read")


class Contents(Document):
    """`minidnn data`: what a source holds, or each source of a net in a phase."""

    kind: Literal["data"] = "data"
    phase: str
    rows: list[SourceRow]
    files: list[str] = Field(description="the files that were written")
