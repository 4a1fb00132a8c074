"""The base of all sources of encoded images: labels and names are in memory, images stay on the disk until they are
needed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import overload

import numpy as np

from minidnn.data.dataset import DataError, Source
from minidnn.data.decoding import LARGEST, pixels, size
from minidnn.files import regular

DECODED = 14  # bytes for each pixel of an image while it is decoded and resized, measured; 10 with simplejpeg


@dataclass(frozen=True)
class Pictures(Source):
    """A source of encoded images, which have sizes of their own."""

    color: bool | None = field(default=None, kw_only=True)  # None: as the source takes them, here in colour
    upright: bool = field(default=False, kw_only=True)  # whether they are turned as their EXIF says
    alike: bool = field(default=False, kw_only=True)  # whether all must have the size of the first one

    def decoded(self, color):
        return replace(self, color=color)

    def channels(self) -> int:
        """3, or 1 for grey."""
        return 1 if self.color is False else 3

    def sample_shape(self):
        return self.channels(), 0, 0

    def encoded(self):
        return 0 in replace(self, alike=False).sample_shape()

    def sample_type(self):
        return "uint8"

    def resident(self):
        """The bytes of the names and labels, and of one image of the first one's size while it is decoded."""
        result = self.open()
        assert isinstance(result, Images)
        return result.nbytes + DECODED * size(result.read(0)[0])


class Images:
    """A dataset of encoded images; `place` and `read` are a subclass's (Encoded in data/dataset.py)."""

    def __init__(self, name: str, labels: np.ndarray, channels: int) -> None:
        """labels: int32 (n,), empty if they lie with the images; channels: 3, or 1 for grey"""
        self.name, self.labels, self.shape = name, labels, (channels, 0, 0)
        self.upright = False

    def of(self, source: Pictures) -> Images:
        """This dataset, with its images turned as the source says, and of one size if it says so."""
        self.upright = source.upright
        self.shape = source.sample_shape() if source.alike else self.shape
        return self

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def nbytes(self) -> int:
        """Bytes of memory that the names and the labels take."""
        raise NotImplementedError

    def highest(self, ignored: int | None = None) -> int:
        return int(self.labels.max(initial=-1, where=True if ignored is None else self.labels != ignored))

    def place(self, index: int) -> str:
        raise NotImplementedError

    def read(self, index: int) -> tuple[bytes, int]:
        raise NotImplementedError

    def decode(self, data: bytes) -> np.ndarray:
        result = pixels(data, self.shape[0], self.upright)
        if self.shape[1] and result.shape != self.shape:
            sizes = (f"{h}×{w}" for _, h, w in (result.shape, self.shape))
            raise DataError("it is {}, and the first one is {}: give crop_size, or resize".format(*sizes))
        return result

    def image(self, index: int) -> tuple[np.ndarray, int]:
        """(pixels, label) of one sample. Raises DataError, which names its place."""
        try:
            data, label = self.read(index)
            return self.decode(data), label
        except (DataError, OSError) as error:
            raise DataError(f"{self.place(index)}: {reason(error)}") from error

    def take(self, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """As `Dataset.take`, for images of one size. Raises DataError if their sizes differ."""
        result = [self.image(int(i)) for i in indices]
        first = result[0][0].shape if result else self.shape
        for index, (image, _) in zip(indices, result, strict=True):
            if image.shape != first:
                what = f"{self.place(int(index))}: it is {image.shape}, and {self.place(int(indices[0]))} is {first}"
                raise DataError(f"{what}: give transform_param resize, or crop_size")
        return np.stack([image for image, _ in result]), np.array([label for _, label in result], np.int32)


def reason(error: Exception) -> str:
    """The error without a file's name, which goes before it."""
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)


def content(path: str) -> bytes:
    """The bytes of an encoded image's file, a regular one. Raises OSError, and DataError if there are too many."""
    with regular.opened(path) as file:
        data = file.read(LARGEST + 1)
    if len(data) > LARGEST:
        raise DataError(f"more than {LARGEST} bytes, which no image has")
    return data


class Names(Sequence[bytes]):
    """Many names in one block, which takes far less memory than objects do, and stays shared after a fork."""

    def __init__(self, names: Iterable[bytes]) -> None:
        block, ends = bytearray(), [0]
        for name in names:
            block += name
            ends.append(len(block))
        self._block, self._ends = bytes(block), np.array(ends, np.int64)

    @property
    def nbytes(self) -> int:
        return len(self._block) + self._ends.nbytes

    def __len__(self) -> int:
        return len(self._ends) - 1

    @overload
    def __getitem__(self, index: int) -> bytes: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[bytes]: ...
    def __getitem__(self, index: int | slice) -> bytes | Sequence[bytes]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        if not 0 <= index < len(self):
            raise IndexError(index)
        return self._block[self._ends[index] : self._ends[index + 1]]
