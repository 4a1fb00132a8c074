"""The pictures of a contact sheet: samples as they are stored, or as the net sees them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from minidnn.api.data import Subject, picked, read
from minidnn.data import DataError
from minidnn.data.database import Database
from minidnn.errors import InvalidInput

Shot = tuple[np.ndarray, str]  # (a picture, uint8 (H, W, 3) or (H, W); the words below it)


def shots(subject: Subject, count: int) -> list[Shot]:
    """So many samples, evenly spread. Those of a net are as it sees them in this phase: cut, mirrored, rotated, but
    before mean and scale. Values that are no bytes are spread from black to white, over all these samples.

    Raises InvalidInput if samples are no images; those that cannot be read are left out."""
    dataset, names = subject.source.open(), subject.source.class_names()
    images, captions = [], []
    for index in picked(len(dataset), count).tolist():
        try:
            image, label, _ = read(dataset, index)
            images.append(_seen(subject, image, index))
        except (DataError, OSError):  # the scan has named it
            continue
        captions.append(_caption(label, names))
    return list(zip(_shown(images, subject.name), captions, strict=True))


def _seen(subject: Subject, image: np.ndarray, index: int) -> np.ndarray:
    """The sample (C, H, W) with its channels in the order red, green, blue, as far as that is known."""
    if image.ndim != 3 or len(image) not in (1, 3):
        raise InvalidInput(f"{subject.name}: a sheet shows images of 1 or 3 channels, and a sample is {image.shape}")
    if subject.layer is None:
        return image[::-1] if isinstance(subject.source, Database) and not subject.pictures else image
    change = replace(subject.transform(subject.phase), mean=(), image=None, scale=1.0)
    result = change(subject.raw(image, index, subject.phase)[None], np.array([index]))[0]
    result = result.astype(image.dtype)
    known = subject.pictures or isinstance(subject.source, Database) or subject.change.has("channel_order")
    return result[::-1] if known and change.augment.order == "BGR" else result


def _caption(label: np.ndarray, names: Sequence[str]) -> str:
    if label.size != 1:
        return f"labels {'×'.join(map(str, label.shape))}"
    return names[int(label)] if int(label) < len(names) else str(int(label))


def _shown(images: Sequence[np.ndarray], name: str) -> list[np.ndarray]:
    if not images:
        raise InvalidInput(f"{name}: no sample can be read, so there is nothing to show")
    if all(image.dtype == np.uint8 for image in images):
        spread = images
    else:
        low, high = min(float(i.min()) for i in images), max(float(i.max()) for i in images)
        spread = [np.rint((i - low) * (255 / ((high - low) or 1))).astype(np.uint8) for i in images]
    return [image[0] if len(image) == 1 else image.transpose(1, 2, 0) for image in spread]
