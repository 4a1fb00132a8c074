"""Readers, transforms and the prefetching loader: from a Data layer's parameters to batches."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from minidnn.data.augment import Augment
from minidnn.data.dataset import Arrays, DataError, Dataset, Encoded, Source, samples
from minidnn.data.loader import Loader, Order
from minidnn.data.masks import Masks
from minidnn.data.npz import SUFFIX, read_arrays
from minidnn.data.sources import SOURCES, parse, source_of
from minidnn.data.transform import Transform
from minidnn.data.workers import LIMIT, PRIVATE, Staging, WorkerError
from minidnn.schema import InvalidFile, blobs

__all__ = [
    "SOURCES", "Arrays", "DataError", "Dataset", "Encoded", "Loader", "Source", "Transform", "WorkerError",
    "open_loader", "parse", "shapes", "source_of", "staged",
]  # fmt: skip


def shapes(data_param: Any, transform_param: Any, phase: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The shape of one sample after the crop, (C, H, W) or (K,), and that of its labels, () for one.

    Raises DataError if the source cannot be used, or if the transform would move pixels away from their labels."""
    source, change = source_of(data_param, transform_param, phase), transform(transform_param, phase)
    sample, labels = source.sample_shape(), source.label_shape()
    if labels and (change.crop or change.mirror or change.augment.interpolates):
        what = "crop_size, mirror, resize and rotation move the pixels of a sample, but not its labels"
        raise DataError(
            f"{data_param.source}: {what}; give the labels a Data layer of their own with the same transform"
        )
    if source.ids and (change.mean or change.scale != 1 or change.image is not None):
        what = "samples are token ids, which scale, mean_value and mean_file would change; leave these out"
        raise DataError(f"{data_param.source}: {what}")
    if change.masks and not source.ids:
        what = "mask_token hides token ids, but samples are not tokens; use tokens:, text: or synthetic_tokens:"
        raise DataError(f"{data_param.source}: {what}")
    return change.shape(sample, data_param.source), labels


def open_loader(
    data_param: Any,
    transform_param: Any,
    phase: str,
    seed: int,
    batch: int | None = None,
    workers: int | None = None,
    limit: float = LIMIT,
) -> Loader:
    """The Loader of a Data layer; `batch` replaces the file's batch_size, and `workers` its workers. `limit`: seconds
    after which workers that stand still end with an error. Raises DataError."""
    source = source_of(data_param, transform_param, phase)
    change = transform(transform_param, phase, seed)
    count = data_param.workers if workers is None else workers
    kind, labels = (source.sample_type(), source.label_shape()) if count else ("float32", ())
    shuffle = phase == "TRAIN" if data_param.shuffle is None else data_param.shuffle
    order = Order(seed, shuffle, getattr(data_param, "rand_skip", 0))
    return Loader(source.open(), batch or data_param.batch_size, change, count, kind, labels, order, limit)


def staged(data_param: Any, transform_param: Any, phase: str, workers: int | None = None) -> int:
    """Bytes that the workers of a Data layer take, about: the batches in shared memory, and what each process has for
    itself. Raises DataError if the source cannot be used."""
    count = data_param.workers if workers is None else workers
    if not count:
        return 0
    source, change = source_of(data_param, transform_param, phase), transform(transform_param, phase)
    sample, name = source.sample_shape(), data_param.source
    made, raw = change.shape(sample, name), change.augment.shape(sample, name)
    staging = Staging(data_param.batch_size, made, raw, source.sample_type(), source.label_shape())
    return staging.nbytes(count) + count * PRIVATE


def transform(param: Any, phase: str, seed: int = 0) -> Transform:
    """The Transform that a `transform_param` describes in this phase."""
    train = phase == "TRAIN"
    image = mean_image(param.mean_file) if param.mean_file else None
    augment = Augment(param.resize, param.crop_size, order=param.channel_order, train=train, seed=seed)
    if train:
        spreads = {name: getattr(param, name) for name in ("rotation", "brightness", "contrast", "saturation")}
        augment = replace(augment, area=param.crop_area, ratio=param.crop_ratio, **spreads)
    masks = None
    if param.mask_token is not None:
        masks = Masks(param.mask_token, param.mask_vocabulary, param.mask_ratio, seed)
    mean = tuple(param.mean_value)
    return Transform(param.crop_size, mean, param.scale, param.mirror, train, seed, image, augment, masks)


def raw_samples(path: str) -> np.ndarray:
    """The samples (n, C, H, W), (n, H, W) or (n, K) in a file: an npy file, an npz file with an array x or images,
    Caffe's .binaryproto, or one image as Caffe's .datum. Raises DataError."""
    try:
        if path.endswith(".datum"):
            image = blobs.datum(path)
            if isinstance(image.content, bytes):
                raise DataError(f"{path}: an encoded image, not an array of samples")
            return samples(path, image.content[None])
        if path.endswith(".binaryproto"):
            return samples(path, blobs.array(path))
    except OSError as error:
        raise DataError(f"{path}: {error.strerror or error}") from error
    except InvalidFile as error:
        raise DataError(str(error)) from error
    arrays = read_arrays(path)
    result = [arrays[name] for name in ("x", "images", "data") if name in arrays]
    if not result:
        raise DataError(f"{path}: holds {', '.join(arrays) or 'nothing'}; expected an array x or images")
    return samples(path, result[0])


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
