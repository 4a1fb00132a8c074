"""MNIST's IDX files, plain or gzipped.

The format: two zero bytes, a byte for the type, a byte for the number of axes, the length of each axis as a big-endian
32-bit integer, then the values.
"""

from __future__ import annotations

import contextlib
import gzip
import math
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

import numpy as np

from minidnn.data.dataset import Arrays, DataError, Source
from minidnn.files import regular

_TYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
_PREFIX = {"train": "train", "test": "t10k"}
SHAPE = (1, 28, 28)
STEP = 1 << 20  # bytes read at a time
MOST = 1032  # how many bytes gzip makes of one, at most


@dataclass(frozen=True)
class Mnist(Source):
    """`mnist:FOLDER`: a folder with the four files as they are distributed."""

    form, splits = "mnist:FOLDER", True

    folder: str

    def sample_shape(self):
        return sample_shape(self.folder, self.split)

    def sample_type(self):
        return sample_type(self.folder, self.split)

    def resident(self):
        return _promised(self.folder, self.split)[0]

    def open(self):
        return read(self.folder, self.split)


def read_idx(path: str | Path) -> np.ndarray:
    """The array in one IDX file, in the file's type. Raises DataError if the file is incomplete or no IDX file."""
    path = Path(path)
    with _opened(path) as file:
        dtype, shape, expected = _promise(path, file)
        values = _at_most(file, expected + 1)
    if len(values) != expected:
        follow = f"{len(values)} follow" if len(values) < expected else "more follow"
        sizes = "×".join(map(str, shape))
        raise DataError(f"{path}: truncated: its header promises {sizes} values, {expected} bytes; {follow}")
    return np.frombuffer(values, dtype).reshape(shape)


def read(folder: str | Path, split: str) -> Arrays:
    """The images and labels of one split, "train" or "test". Raises DataError if its files are absent or wrong."""
    images, labels = _find(Path(folder), split, "images-idx3"), _find(Path(folder), split, "labels-idx1")
    x, y = read_idx(images), read_idx(labels)
    _images(images, x.shape)
    if y.ndim != 1:
        raise DataError(f"{labels}: {y.ndim} axes of lengths {y.shape}; labels have 1")
    if len(x) != len(y):
        raise DataError(f"{images} holds {len(x)} images, but {labels} {len(y)} labels")
    return Arrays.of(f"{folder} ({split})", x, y)


def sample_shape(folder: str | Path, split: str) -> tuple[int, ...]:
    """The shape of one image, (1, H, W), from the header of its file; MNIST's own shape if there is no file yet.

    Raises DataError if the file is no IDX file, or too small for the images that its header promises."""
    _, promised, _ = _promised(folder, split)
    return (1, *promised[1:]) if promised else SHAPE


def sample_type(folder: str | Path, split: str) -> str:
    """ "uint8" if the images' file has that type, or if there is none yet; else "float32". Raises as `sample_shape`."""
    _, _, dtype = _promised(folder, split)
    return "uint8" if dtype == np.uint8 else "float32"


def _promised(folder: str | Path, split: str) -> tuple[int, tuple[int, ...], np.dtype]:
    """(bytes, shape, type) of all images, from the header of their file; (0, (), uint8) if there is no file yet. Raises
    DataError as `sample_shape`."""
    try:
        path = _find(Path(folder), split, "images-idx3")
    except DataError:
        return 0, (), np.dtype(np.uint8)
    with _opened(path) as file:
        dtype, shape, expected = _promise(path, file)
    _images(path, shape)
    return expected, shape, dtype


def _promise(path: Path, file: IO[bytes]) -> tuple[np.dtype, tuple[int, ...], int]:
    """Type, shape and bytes of the values, from the header. Raises DataError if the file is too small for them."""
    dtype, shape = _header(path, file)
    expected, size = math.prod(shape) * dtype.itemsize, path.stat().st_size
    packed = isinstance(file, gzip.GzipFile)
    if expected > (MOST * size if packed else size - file.tell()):
        sizes = "×".join(map(str, shape))
        follow = f"it holds {size}, packed" if packed else f"{size - file.tell()} follow"
        raise DataError(f"{path}: truncated: its header promises {sizes} values, {expected} bytes; {follow}")
    return dtype, shape, expected


def _images(path: Path, shape: tuple[int, ...]) -> None:
    if len(shape) != 3:
        raise DataError(f"{path}: {len(shape)} axes of lengths {shape}; images have 3")
    if not shape[0]:
        raise DataError(f"{path}: there are no images")
    if 0 in shape[1:]:
        raise DataError(f"{path}: its images have {shape[1]}×{shape[2]} places")


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


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[IO[bytes]]:
    """The file's bytes, unpacked if its first two bytes are those of gzip. Errors of reading become DataErrors."""
    try:
        with regular.opened(path) as file:
            packed = file.read(2) == b"\x1f\x8b"
            file.seek(0)
            if not packed:
                yield file
                return
            with gzip.open(file) as unpacked:
                yield cast(IO[bytes], unpacked)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"{path}: truncated: gzip cannot read its {path.stat().st_size} bytes ({error})") from error
    except OSError as error:
        raise DataError(f"{path}: {error.strerror or error}") from error


def _header(path: Path, file: IO[bytes]) -> tuple[np.dtype, tuple[int, ...]]:
    """The type of the values and the lengths of the axes; the file is then at its first value."""
    raw = _at_most(file, 4)
    if len(raw) < 4:
        raise DataError(f"{path}: truncated: an IDX file begins with 4 bytes, this one holds {len(raw)}")
    if raw[:2] != b"\0\0" or raw[2] not in _TYPES or not 1 <= raw[3] <= 4:
        raise DataError(f"{path}: not an IDX file: it begins with {raw[:4].hex(' ')}, not 00 00 08 03")
    dtype, rank = np.dtype(_TYPES[raw[2]]), raw[3]
    lengths = _at_most(file, 4 * rank)
    if len(lengths) < 4 * rank:
        raise DataError(
            f"{path}: truncated: {rank} axes take {4 + 4 * rank} bytes of header, it holds {4 + len(lengths)}"
        )
    shape = struct.unpack(f">{rank}I", lengths)
    if math.prod(max(1, n) for n in shape) * dtype.itemsize >= 2**63:  # NumPy has no such array, not even an empty one
        raise DataError(f"{path}: truncated: axes of lengths {shape} are beyond what a machine addresses")
    return dtype, shape


def _at_most(file: IO[bytes], size: int) -> bytearray:
    """This many bytes, or as many as there are. They are read in steps: the number is a header's, which may lie, and
    the memory taken is in proportion to what the file holds."""
    result = bytearray()
    while len(result) < size and (step := file.read(min(STEP, size - len(result)))):
        result += step
    return result
