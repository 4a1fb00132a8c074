"""The contracts of sources and datasets, and a dataset in memory. A dataset has raw values; transforms come later."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np

from minidnn.errors import BadInput

LEAST = -(2**31)  # of labels, where a loss may ignore negative ones
_AT_ONCE = 256  # samples that are checked together, so that the check needs little memory


class DataError(BadInput, ValueError):
    """Data that cannot be read or do not fit the net; the message names the file and the numbers."""


@dataclass(frozen=True)
class Source:
    """A place where samples come from, as `source: kind:...` describes it. Each kind is a subclass. `SOURCES`
    (data/sources.py) has it under the word before the first colon."""

    form: ClassVar[str]  # the form of its text, for errors: "mnist:FOLDER"
    splits: ClassVar[bool] = False  # whether the text may end with ":train" or ":test"; if not, there is one set
    suffix: ClassVar[str | None] = None  # a path with this suffix is of this kind even without the word
    ids: ClassVar[bool] = False  # whether the samples are ids of tokens, so that no arithmetic makes sense of them
    made_up: ClassVar[bool] = False  # whether the samples are placeholders, so that their number means nothing

    split: str  # "train" or "test"

    @classmethod
    def parse(cls, text: str, split: str) -> Source | None:
        """The source that the text after the first colon describes; None if the text does not have the form.

        May raise DataError instead of returning None, to say more. Default: the text is a path, the one field besides
        the split."""
        made: Callable[[str, str], Source] = cls
        return made(split, text) if text else None

    def sample_shape(self) -> tuple[int, ...]:
        """The shape of one raw sample, (C, H, W) or (K,). This does not read the samples, since planning needs none.

        Images that have sizes of their own have the shape (C, 0, 0)."""
        raise NotImplementedError

    def encoded(self) -> bool:
        """Whether the samples are encoded images."""
        return 0 in self.sample_shape()

    def label_shape(self) -> tuple[int, ...]:
        """The shape of the labels of one sample, also without reading them; (): a sample has one."""
        return ()

    def sample_type(self) -> str:
        """ "uint8" if all values of all samples are of that type; "float32" says nothing of their type."""
        return "float32"

    def decoded(self, color: bool | None) -> Source:
        """This source with its encoded images in colour (True), in grey (False), or as it takes them (None). Raises
        DataError if it has none and a colour is asked for."""
        if color is not None:
            raise DataError("force_color and force_gray are for encoded images, and this source has arrays")
        return self

    def class_names(self) -> tuple[str, ...]:
        """The names of the classes, in the order of their labels; () if they have none."""
        return ()

    def resident(self) -> int:
        """The bytes of memory that `open` takes, about: 0 if samples are made when they are taken."""
        return 0

    def open(self) -> Dataset:
        """Read or open the samples. Raises DataError if that fails."""
        raise NotImplementedError


class Dataset(Protocol):
    """Samples with labels, by index. `name` is for messages; `shape` is the shape of one sample, (C, H, W) or (K,)."""

    @property
    def name(self) -> str: ...

    @property
    def shape(self) -> tuple[int, ...]: ...

    def highest(self, ignored: int | None = None) -> int:
        """The largest label apart from `ignored`; -1 if there is no other, or if only reading all samples would tell.
        The labels of each batch are checked anyway."""
        ...

    def __len__(self) -> int: ...

    def take(self, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The images (n, *shape), of any numeric type, and the labels int32 at these n indices: (n,), or (n, ...) if a
        sample has several."""
        ...


@runtime_checkable
class Encoded(Dataset, Protocol):
    """A dataset of encoded images. The loader decodes them, in worker processes if there are any; `take` is not called.
    `shape` is (C, 0, 0) if images have sizes of their own.

    Workers are forks: a file that is open in the parent must be read by position (os.pread), or be opened anew in each
    process. `read` and `decode` raise DataError or OSError; the loader adds the sample's index and its `place`."""

    def place(self, index: int) -> str:
        """Where this sample comes from, for errors: its file, or its name within one."""
        ...

    def read(self, index: int) -> tuple[bytes, Any]:
        """The bytes of one image, and its label or labels."""
        ...

    def decode(self, data: bytes) -> np.ndarray:
        """The pixels of these bytes: uint8 (C, H, W), red, green and blue in this order if there are three channels. It
        may be a view of an array (H, W, C)."""
        ...


@dataclass(frozen=True, eq=False)
class Arrays:
    """A dataset in memory. Make it with `of`, which checks the arrays."""

    name: str
    images: np.ndarray
    labels: np.ndarray

    @classmethod
    def of(cls, name: str, images: np.ndarray, labels: np.ndarray) -> Arrays:
        """The dataset of images (n, C, H, W), (n, H, W) or (n, K) and labels (n,) or (n, ...), one or several a sample.

        Raises DataError if the arrays have other shapes or types, or values that cannot be samples or labels."""
        images = samples(name, images)
        if labels.ndim < 1 or 0 in labels.shape[1:] or labels.dtype.kind not in "iub":
            what = f"labels are {labels.dtype} of shape {labels.shape}; expected integers of shape (n,) or (n, ...)"
            raise DataError(f"{name}: {what}")
        labels = labels.reshape(labels.shape[:1] + label_shape(labels.shape))
        if len(images) != len(labels):
            raise DataError(f"{name}: {len(images)} images, but {len(labels)} labels")
        if labels.min() < 0:
            at = np.unravel_index(labels.argmin(), labels.shape)[0]
            raise DataError(f"{name}: label {labels.min()} at index {at} is negative")
        if labels.max() > np.iinfo(np.int32).max:
            raise DataError(
                f"{name}: label {labels.max()} at index {labels.argmax()} is not a class number: 2^31 or more"
            )
        return cls(name, images, labels.astype(np.int32))

    @property
    def shape(self) -> tuple[int, ...]:
        return self.images.shape[1:]

    def highest(self, ignored: int | None = None) -> int:
        return int(self.labels.max(initial=-1, where=True if ignored is None else self.labels != ignored))

    def __len__(self) -> int:
        return len(self.images)

    def take(self, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return self.images[indices], self.labels[indices]


def narrow(labels: Any) -> np.ndarray:
    """The labels of a sample as int32. Raises DataError for what are none."""
    values = np.asarray(labels)
    if values.dtype.kind not in "iub":
        raise DataError(f"its label is {values.dtype}; expected a whole number")
    if (wrong := no_labels(values, LEAST)).any():
        raise DataError(f"{values[wrong][0]} is not a label: expected whole numbers below 2^31")
    return values.astype(np.int32, copy=False)


def label_shape(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of the labels of one sample, of an array of labels of this shape (n, ...): () if it has one."""
    return shape[1:] if math.prod(shape[1:]) != 1 else ()


def no_labels(values: np.ndarray, least: int = 0) -> np.ndarray:
    """Where values, of any type of numbers, are no whole numbers from `least` to 2^31 - 1: bool in their shape."""
    if values.dtype.kind == "f":
        values = values.astype(np.float64, copy=False)
    return ~((values >= least) & (values < 2**31) & (values == np.rint(values)))


def numbers(name: str, shape: tuple[int, ...], dtype: np.dtype) -> None:
    """Raise DataError unless an array of that shape and type can hold samples."""
    if len(shape) not in (2, 3, 4) or dtype.kind not in "fiub":
        raise DataError(
            f"{name}: images are {dtype} of shape {shape}; expected numbers of shape (n, C, H, W), (n, H, W) or (n, K)"
        )
    if not shape[0]:
        raise DataError(f"{name}: there are no images")
    if 0 in shape:
        raise DataError(f"{name}: images of shape {shape[1:]} have no values")


def samples(name: str, images: np.ndarray) -> np.ndarray:
    """The images as (n, C, H, W) or (n, K); images (n, H, W) get an axis for one channel.

    Raises DataError if there are no images, or if a value is not finite in float32."""
    numbers(name, images.shape, images.dtype)
    for start in range(0, len(images) if images.dtype.kind == "f" else 0, _AT_ONCE):
        with np.errstate(over="ignore", invalid="ignore"):
            part = images[start : start + _AT_ONCE].astype(np.float32, copy=False)
        finite = np.isfinite(part.reshape(len(part), -1)).all(1)
        if not finite.all():
            raise DataError(f"{name}: sample {start + finite.argmin()} holds values that are not finite in float32")
    return images[:, None] if images.ndim == 3 else images
