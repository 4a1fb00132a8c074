"""Readers, transforms and the prefetching loader: from a Data layer's parameters to batches."""

from __future__ import annotations

from typing import Any

import numpy as np

from minidnn.data.dataset import Arrays, DataError, Dataset, Encoded, Source, samples
from minidnn.data.loader import Loader
from minidnn.data.npz import SUFFIX, read_arrays
from minidnn.data.sources import SOURCES, parse
from minidnn.data.transform import Transform
from minidnn.schema import InvalidFile, blobs

__all__ = [
    "SOURCES", "Arrays", "DataError", "Dataset", "Encoded", "Loader", "Source", "Transform", "open_loader", "parse",
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
    image = mean_image(param.mean_file) if param.mean_file else None
    return Transform(param.crop_size, tuple(param.mean_value), param.scale, param.mirror, train, seed, image)


def raw_samples(path: str) -> np.ndarray:
    """The samples (n, C, H, W), (n, H, W) or (n, K) in a file: an npy file, an npz file with an array x or images,
    Caffe's .binaryproto, or one image as Caffe's .datum. Raises DataError."""
    try:
        if path.endswith(".datum"):
            image = blobs.datum(path)
            if isinstance(image.content, bytes):
                raise DataError(f"{path}: an encoded image, and no array of samples")
            return samples(path, image.content[None])
        if path.endswith(".binaryproto"):
            return samples(path, blobs.array(path))
    except OSError as error:
        raise DataError(f"{path}: {error.strerror or error}") from error
    except InvalidFile as error:
        raise DataError(str(error)) from error
    arrays = read_arrays(path)
    found = [arrays[name] for name in ("x", "images", "data") if name in arrays]
    if not found:
        raise DataError(f"{path}: holds {', '.join(arrays) or 'nothing'}; expected an array x or images")
    return samples(path, found[0])


def mean_image(path: str) -> np.ndarray:
    """The mean of a dataset's images, float32 (C, H, W), of Caffe's .binaryproto or an npy file. Raises DataError."""
    try:
        if path.endswith(SUFFIX):
            return read_arrays(path)["x"].astype(np.float32)
        return blobs.mean(path)
    except OSError as error:
        raise DataError(f"mean_file {path}: {error.strerror or error}") from error
    except InvalidFile as error:
        raise DataError(f"mean_file {error}") from error
