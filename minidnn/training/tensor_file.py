"""safetensors files, written and read a few rows at a time: neither needs a copy of all tensors in memory.

The format: 8 bytes with the length of the header, the header in JSON with each tensor's type, shape and place, then the
tensors' bytes. The library `safetensors` judges files that are read. It has no way to write tensors in parts, so
`Writer` does; it gives the same bytes.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any

import numpy as np
from safetensors import SafetensorError, safe_open

from minidnn.errors import BadInput
from minidnn.files.parts import Parts
from minidnn.layers.rows import Rows, split

TYPES = {
    "F64": "float64", "F32": "float32", "F16": "float16", "BOOL": "bool",
    **{f"{kind[0].upper()}{bits}": f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)},
}  # fmt: skip
METADATA = "__metadata__"
SUFFIX = ".safetensors"


class TensorFileError(BadInput, ValueError):
    """A file that is no usable safetensors file; the message names the file and the fault."""


class Writer:
    """Writes the tensors of one file, each in consecutive pieces, in any order of the tensors; `end` completes it."""

    def __init__(self, file: IO[bytes], tensors: Mapping[str, Rows], metadata: Mapping[str, str]) -> None:
        """`metadata` may hold other values at the end, of the same length."""
        self._file = file
        self._entries: dict[str, dict[str, Any]] = {}
        at = 0
        # the library's order: large types first, so that each tensor is aligned; then by name
        for name in sorted(tensors, key=lambda n: (-tensors[n].dtype.itemsize, n)):
            values = tensors[name]
            end = at + values.nbytes
            kind = next(k for k, dtype in TYPES.items() if dtype == values.dtype)
            self._entries[name] = {"dtype": kind, "shape": list(values.shape), "data_offsets": [at, end]}
            at = end
        begin = len(self._header(metadata))
        self._at: dict[str, int] = {name: begin + e["data_offsets"][0] for name, e in self._entries.items()}

    def write(self, name: str, piece: np.ndarray) -> None:
        """Write the next rows of this tensor."""
        self._file.seek(self._at[name])
        self._file.write(piece.reshape(-1).view(np.uint8).data)
        self._at[name] += piece.nbytes

    def end(self, metadata: Mapping[str, str]) -> None:
        """Write the header."""
        self._file.seek(0)
        self._file.write(self._header(metadata))

    def _header(self, metadata: Mapping[str, str]) -> bytes:
        header = {METADATA: dict(metadata), **self._entries}
        content = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
        content += b" " * (-len(content) % 8)
        return len(content).to_bytes(8, "little") + content


def write(file: IO[bytes], tensors: Mapping[str, Rows], metadata: Mapping[str, str] = MappingProxyType({})) -> None:
    """Write a whole file, each tensor a few rows at a time."""
    writer = Writer(file, tensors, metadata)
    for name, values in tensors.items():
        for piece in values.pieces():
            writer.write(name, piece)
    writer.end(metadata)


def read(path: str | Path) -> tuple[dict[str, Rows], dict[str, str]]:
    """(the tensors, the metadata) of a file. Values are read when they are asked for, from the file as it is now: it
    may be replaced or removed meanwhile.

    Raises TensorFileError if the file cannot be read, is torn, or has numbers that NumPy lacks; the tensors' pieces
    raise it if the file is written to."""
    size = 0
    try:
        file = Parts(path, TensorFileError)
        size = file.size
        with safe_open(file.name(), "np"):  # raises if the header is not a whole and consistent one
            length = int.from_bytes(file.read(0, 8), "little")
        header = json.loads(file.read(8, length))
    except TensorFileError:
        raise
    except OSError as error:
        raise TensorFileError(f"{path}: {error.strerror or error}") from error
    except (SafetensorError, ValueError, RecursionError) as error:
        raise TensorFileError(f"{path}: truncated, or not a safetensors file ({size} bytes): {error}") from error
    metadata = header.pop(METADATA, None) or {}
    return {name: _rows(file, name, entry, 8 + length) for name, entry in header.items()}, metadata


def _rows(file: Parts, name: str, entry: Mapping[str, Any], begin: int) -> Rows:
    if entry["dtype"] not in TYPES:
        what = f"{name} holds {entry['dtype']} numbers, which NumPy lacks; convert it to F32"
        raise TensorFileError(f"{file.path}: {what}")
    dtype, shape = np.dtype(TYPES[entry["dtype"]]).newbyteorder("<"), tuple(entry["shape"])
    if math.prod(max(1, n) for n in shape) * dtype.itemsize >= 2**63:  # NumPy has no such array, not even an empty one
        raise TensorFileError(f"{file.path}: {name} has shape {shape}, which no machine addresses")
    row = dtype.itemsize * math.prod(shape[1:])

    def pieces() -> Iterator[np.ndarray]:
        at = begin + entry["data_offsets"][0]
        for first, last in split(shape, dtype.itemsize):
            values = np.frombuffer(file.read(at + first * row, (last - first) * row), dtype)
            yield values.reshape(last - first, *shape[1:])

    return Rows(shape, dtype, pieces)
