"""NumPy's npz: an array `x` (or `images`) and an array `y` (or `labels`)."""

from __future__ import annotations

import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from minidnn.data.dataset import Arrays, DataError, Source, numbers


@dataclass(frozen=True)
class Npz(Source):
    """`npz:PATH`, or a PATH that ends in .npz."""

    form, suffix = "npz:PATH", ".npz"

    path: str

    @classmethod
    def parse(cls, text, split):
        return cls(split, text) if text else None

    def sample_shape(self):
        return sample_shape(self.path)

    def open(self):
        return read(self.path)


def read(path: str | Path) -> Arrays:
    """The images and labels of an npz file. Raises DataError."""
    arrays = read_arrays(path)
    return Arrays.of(str(path), _pick(path, arrays, "x", "images"), _pick(path, arrays, "y", "labels"))


def read_arrays(path: str | Path) -> dict[str, np.ndarray]:
    """All arrays of an npz file by name, or {"x": array} of an npy file. Raises DataError."""
    _regular(path)
    try:
        loaded = np.load(path, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            return {"x": loaded}
        with loaded:
            return {name: loaded[name] for name in loaded.files}
    except MemoryError:
        raise
    except Exception as error:  # whatever zipfile, its compressions and NumPy raise, the file is to blame
        if isinstance(error, OSError) and error.strerror:
            raise DataError(f"{path}: {error.strerror}") from error
        size = Path(path).stat().st_size
        why = "it begins like neither" if "pickle" in str(error) and not _known(path) else error
        raise DataError(f"{path}: not a whole npz or npy file ({size} bytes): {why}") from error


def sample_shape(path: str | Path) -> tuple[int, ...]:
    """The shape of one image, from the header of its array alone. Raises DataError if the file cannot be used."""
    _regular(path)
    try:
        with zipfile.ZipFile(path) as archive:
            names = [name for name in ("x.npy", "images.npy") if name in archive.namelist()]
            with archive.open(names[0]) as file:
                version = np.lib.format.read_magic(file)
                header = (
                    np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
                )
                shape, _, dtype = header(file)
    except MemoryError:
        raise
    except Exception:
        return read(path).shape  # to read the whole file gives the right error
    numbers(str(path), shape, dtype)
    return (1, *shape[1:]) if len(shape) == 3 else tuple(shape[1:])


def _pick(path: str | Path, arrays: dict[str, np.ndarray], *names: str) -> np.ndarray:
    for name in names:
        if name in arrays:
            return arrays[name]
    raise DataError(f"{path}: holds {', '.join(arrays) or 'nothing'}; expected an array {' or '.join(names)}")


def _regular(path: str | Path) -> None:
    """Raise DataError for a device or a pipe, which one might read forever."""
    if Path(path).exists() and not (Path(path).is_file() or Path(path).is_dir()):
        raise DataError(f"{path}: not a regular file")


def _known(path: str | Path) -> bool:
    """Whether the file begins like an npy or npz file."""
    with open(path, "rb") as file:
        return file.read(6).startswith((b"\x93NUMPY", b"PK"))
