"""MNIST's IDX files, plain or gzipped.

The format: two zero bytes, a byte for the type, a byte for the number of axes, the length of each axis as a big-endian
32-bit integer, then the values.
"""

from __future__ import annotations

import gzip
import math
import struct
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from minidnn.data.dataset import Arrays, DataError, Source

_TYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
_PREFIX = {"train": "train", "test": "t10k"}
SHAPE = (1, 28, 28)


@dataclass(frozen=True)
class Mnist(Source):
    """`mnist:FOLDER`: a folder with the four files as they are distributed."""

    form, splits = "mnist:FOLDER", True

    folder: str

    @classmethod
    def parse(cls, text, split):
        return cls(split, text) if text else None

    def sample_shape(self):
        return sample_shape(self.folder, self.split)

    def open(self):
        return read(self.folder, self.split)


def read_idx(path: str | Path) -> np.ndarray:
    """The array in one IDX file, in the file's type. Raises DataError if the file is incomplete or no IDX file."""
    raw = _bytes(Path(path))
    if len(raw) < 4:
        raise DataError(f"{path}: torn: an IDX file begins with 4 bytes, this one holds {len(raw)}")
    if raw[:2] != b"\0\0" or raw[2] not in _TYPES or not 1 <= raw[3] <= 4:
        raise DataError(f"{path}: not an IDX file: it begins with {raw[:4].hex(' ')}, not 00 00 08 03")
    dtype, rank = np.dtype(_TYPES[raw[2]]), raw[3]
    start = 4 + 4 * rank
    if len(raw) < start:
        raise DataError(f"{path}: torn: {rank} axes take {start} bytes of header, it holds {len(raw)}")
    shape = struct.unpack(f">{rank}I", raw[4:start])
    expected = math.prod(shape) * dtype.itemsize
    if len(raw) - start != expected:
        sizes = "×".join(map(str, shape))
        raise DataError(
            f"{path}: torn: its header promises {sizes} values, {expected} bytes; {len(raw) - start} follow"
        )
    return np.frombuffer(raw, dtype, offset=start).reshape(shape)


def read(folder: str | Path, split: str) -> Arrays:
    """The images and labels of one split, "train" or "test". Raises DataError if its files are absent or wrong."""
    images, labels = _find(Path(folder), split, "images-idx3"), _find(Path(folder), split, "labels-idx1")
    x, y = read_idx(images), read_idx(labels)
    if x.ndim != 3:
        raise DataError(f"{images}: {x.ndim} axes of lengths {x.shape}; images have 3")
    if y.ndim != 1:
        raise DataError(f"{labels}: {y.ndim} axes of lengths {y.shape}; labels have 1")
    if len(x) != len(y):
        raise DataError(f"{images} holds {len(x)} images, but {labels} {len(y)} labels")
    return Arrays.of(f"{folder} ({split})", x, y)


def sample_shape(folder: str | Path, split: str) -> tuple[int, ...]:
    """The shape of one image, (1, H, W), from the header of its file; MNIST's own shape if there is no file yet."""
    try:
        path = _find(Path(folder), split, "images-idx3")
    except DataError:
        return SHAPE
    with path.open("rb") as file:
        start = file.read(16)
    if start[:2] == b"\x1f\x8b":
        try:
            with gzip.open(path) as file:
                start = file.read(16)
        except (EOFError, OSError, zlib.error):
            return SHAPE  # the file is incomplete: `read` will raise the error
    return (1, *struct.unpack(">2I", start[8:16])) if len(start) == 16 else SHAPE


def _find(folder: Path, split: str, kind: str) -> Path:
    """The file of that split and kind, by any of its usual names. Raises DataError if there is none."""
    stem = f"{_PREFIX[split]}-{kind}-ubyte"
    names = [name + end for name in (stem, stem.replace("-idx", ".idx")) for end in ("", ".gz")]
    for name in names:
        if (folder / name).is_file():
            return folder / name
    if not folder.is_dir():
        raise DataError(f"{folder}: there is no such folder; MNIST's files are looked for there")
    raise DataError(f"{folder}: there is no {' or '.join(names[:2])} there")


def _bytes(path: Path) -> bytes:
    """The file's bytes, unpacked if its first two bytes are those of gzip. Raises DataError."""
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise DataError(f"{path}: {error.strerror or error}") from error
    if raw[:2] != b"\x1f\x8b":
        return raw
    try:
        return gzip.decompress(raw)
    except (EOFError, OSError, zlib.error) as error:
        raise DataError(f"{path}: torn: gzip cannot read its {len(raw)} bytes ({error})") from error
