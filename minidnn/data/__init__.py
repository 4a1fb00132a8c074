"""Readers, transforms and the prefetching loader: from a Data layer's parameters to batches."""

from __future__ import annotations

from typing import Any

from minidnn.data.dataset import Arrays, DataError, Dataset, Source
from minidnn.data.loader import Loader
from minidnn.data.sources import SOURCES, parse
from minidnn.data.transform import Transform

__all__ = [
    "SOURCES", "Arrays", "DataError", "Dataset", "Loader", "Source", "Transform", "open_loader", "parse",
    "shapes",
]  # fmt: skip


def shapes(data_param: Any, transform_param: Any, phase: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The shape of one sample after the crop, (C, H, W) or (K,), and that of its labels, () for one.

    Raises DataError if the source cannot be used, or if the transform would move pixels away from their labels."""
    source, change = parse(data_param.source, phase), transform(transform_param, phase)
    sample, labels = source.sample_shape(), source.label_shape()
    if labels and (change.crop or change.mirror):
        what = "crop_size and mirror move the pixels of a sample, but not its labels"
        raise DataError(
            f"{data_param.source}: {what}; give the labels a Data layer of their own with the same transform"
        )
    return change.shape(sample, data_param.source), labels


def open_loader(data_param: Any, transform_param: Any, phase: str, seed: int, batch: int | None = None) -> Loader:
    """The Loader of a Data layer; `batch` replaces the file's batch_size. Raises DataError."""
    dataset = parse(data_param.source, phase).open()
    return Loader(dataset, batch or data_param.batch_size, transform(transform_param, phase, seed))


def transform(param: Any, phase: str, seed: int = 0) -> Transform:
    """The Transform that a `transform_param` describes in this phase."""
    train = phase == "TRAIN"
    return Transform(param.crop_size, tuple(param.mean_value), param.scale, param.mirror, train, seed)
