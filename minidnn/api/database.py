"""A source's samples written as Caffe's database, as its tool convert_imageset does."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from minidnn.api.data import Subject, Tell, read
from minidnn.data import DataError, Dataset, Encoded, database
from minidnn.data.decoding import pillow
from minidnn.data.encoded import reason
from minidnn.errors import InvalidInput
from minidnn.schema.blobs import Picture
from minidnn.spoken import option

QUALITY = 95  # of the JPEGs that are made of resized images; OpenCV's, and so Caffe's


def write(subject: Subject, path: str, encoded: bool, tell: Tell) -> int:
    """Write a database with a Datum of each sample, whole or not at all; return their number.

    Arrays are in the order of a Data layer, blue first, resized and cut in the middle as the subject says. With
    `encoded` images stay the bytes that they are, or become JPEGs if they are resized.

    Raises DataError if there is something at `path`, if a sample cannot be read, or if images of several sizes would
    become arrays; InvalidInput for samples that are no images, or have several labels."""
    dataset, shape = subject.source.open(), subject.source.sample_shape()
    if len(shape) != 3 or subject.source.label_shape():
        what = f"a sample is {shape} with labels {subject.source.label_shape()}"
        raise InvalidInput(f"{subject.name}: a Datum is an image (C, H, W) with one label, and {what}")
    if encoded and not isinstance(dataset, Encoded):
        raise InvalidInput(
            f"{subject.name}: it holds arrays, and no encoded images: write it without {option('encoded')}"
        )
    if not encoded and subject.raw_shape("TEST") is None:
        what = "images may have sizes of their own, and arrays of one database have one"
        raise InvalidInput(
            f"{subject.name}: {what}: give {option('resize', '256')}, 256x256, or {option('encoded', True)}"
        )
    return database.write(Path(path), _pictures(subject, dataset, encoded, tell))


def _pictures(subject: Subject, dataset: Dataset, encoded: bool, tell: Tell) -> Iterator[tuple[str, Picture]]:
    kept = encoded and subject.raw_shape("TEST") is None
    for index in range(len(dataset)):
        place = dataset.place(index) if isinstance(dataset, Encoded) else str(index)
        try:
            if kept and isinstance(dataset, Encoded):
                data, label = dataset.read(index)
                dataset.decode(data)  # raises if it is no image
                content: bytes | np.ndarray = data
            else:
                image, label, _ = read(dataset, index)
                raw = np.ascontiguousarray(subject.raw(image, index, "TEST"))
                content = _jpeg(raw, subject.change.channel_order) if encoded else raw
        except (DataError, OSError) as error:
            raise DataError(f"{place}: {reason(error)}") from error
        yield "/".join(Path(place).parts[-2:]), Picture(int(label), content)
        tell(index + 1, len(dataset))


def _jpeg(raw: np.ndarray, order: str) -> bytes:
    """The image (C, H, W) as a JPEG."""
    pixels = raw[0] if len(raw) == 1 else raw.transpose(1, 2, 0)[..., :: -1 if order == "BGR" else 1]
    file = io.BytesIO()
    pillow().fromarray(np.ascontiguousarray(pixels)).save(file, "JPEG", quality=QUALITY)
    return file.getvalue()
