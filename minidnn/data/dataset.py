"""What a reader returns: images and labels, taken by index. Values are raw; transforms come later."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np

from minidnn.errors import BadInput

_AT_ONCE = 256  # samples that are looked at together, so that a check needs little memory


class DataError(BadInput, ValueError):
    """Data that cannot be read or does not fit; the message names the file and the numbers."""


@dataclass(frozen=True)
class Source:
    """Where samples come from: what follows the first colon of `source: kind:...`, understood. A subclass is a kind; it
    is looked up in `sources.SOURCES` by the word before the colon."""

    form: ClassVar[str]  # how it is written, for errors: "mnist:FOLDER"
    splits: ClassVar[bool] = False  # whether ":train" or ":test" may end it; else it has one set of samples
    suffix: ClassVar[str | None] = None  # a bare path that ends so is of this kind, too
    made_up: ClassVar[bool] = False  # whether its samples stand for others, so that their number means nothing

    split: str  # "train" or "test"

    @classmethod
    def parse(cls, text: str, split: str) -> Source | None:
        """What the text after the colon says; None where it is not of the form. Raises DataError to say more."""
        raise NotImplementedError

    def sample_shape(self) -> tuple[int, ...]:
        """One raw sample's shape, (C, H, W) or (K,), without reading the samples: planning does not need them."""
        raise NotImplementedError

    def open(self) -> Dataset:
        """The samples. Raises DataError."""
        raise NotImplementedError


class Dataset(Protocol):
    """`name` is for messages, `shape` is one sample's: (C, H, W) or (K,)."""

    @property
    def name(self) -> str: ...

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def classes(self) -> int:
        """One more than the largest label."""
        ...

    def __len__(self) -> int: ...

    def take(self, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Images (n, *shape) of any numeric type, and labels (n,) int32."""
        ...


@dataclass(frozen=True, eq=False)
class Arrays:
    """A dataset that lies in memory."""

    name: str
    images: np.ndarray
    labels: np.ndarray

    @classmethod
    def of(cls, name: str, images: np.ndarray, labels: np.ndarray) -> Arrays:
        """Check the arrays and give images their axes: (n, H, W) means one channel."""
        images = samples(name, images)
        labels = labels.reshape(-1) if labels.ndim == 2 and labels.shape[1] == 1 else labels
        if labels.ndim != 1 or labels.dtype.kind not in "iub":
            raise DataError(
                f"{name}: labels are {labels.dtype} of shape {labels.shape}; expected integers of shape (n,)"
            )
        if len(images) != len(labels):
            raise DataError(f"{name}: {len(images)} images, but {len(labels)} labels")
        if labels.min() < 0:
            raise DataError(f"{name}: label {labels.min()} at index {labels.argmin()} is negative")
        if labels.max() > np.iinfo(np.int32).max:
            raise DataError(f"{name}: label {labels.max()} at index {labels.argmax()} is no class number: 2^31 or more")
        return cls(name, images, labels.astype(np.int32))

    @property
    def shape(self) -> tuple[int, ...]:
        return self.images.shape[1:]

    @property
    def classes(self) -> int:
        return int(self.labels.max()) + 1

    def __len__(self) -> int:
        return len(self.images)

    def take(self, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return self.images[indices], self.labels[indices]


def numbers(name: str, shape: tuple[int, ...], dtype: np.dtype) -> None:
    """Raises DataError unless an array of that shape and type can be samples."""
    if len(shape) not in (2, 3, 4) or dtype.kind not in "fiub":
        raise DataError(
            f"{name}: images are {dtype} of shape {shape}; expected numbers of shape (n, C, H, W), (n, H, W) or (n, K)"
        )


def samples(name: str, images: np.ndarray) -> np.ndarray:
    """Images with their axes, (n, C, H, W) or (n, K). Raises DataError if they are none, or not finite in float32."""
    numbers(name, images.shape, images.dtype)
    if len(images) == 0:
        raise DataError(f"{name}: there are no images")
    for start in range(0, len(images) if images.dtype.kind == "f" else 0, _AT_ONCE):
        with np.errstate(over="ignore"):
            part = images[start : start + _AT_ONCE].astype(np.float32, copy=False)
        finite = np.isfinite(part.reshape(len(part), -1)).all(1)
        if not finite.all():
            raise DataError(f"{name}: sample {start + finite.argmin()} holds values that are not finite in float32")
    return images[:, None] if images.ndim == 3 else images
