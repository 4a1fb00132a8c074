"""MNIST's IDX files, plain or gzipped: refused with the file's name, or as large as the header says."""

from __future__ import annotations

import gzip
import struct
from functools import lru_cache
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import strategies as st

from minidnn.data import mnist
from minidnn.errors import BadInput
from tests.fuzz.kind import Fault, Kind, Misread, refused, strictly
from tests.fuzz.mutate import flipped
from tests.fuzz.pieces import damaged, pick
from tests.fuzz.samples import changed_bit

FILE = "train-images-idx3-ubyte"
LABELS = "train-labels-idx1-ubyte"
SIZES = {0x08: 1, 0x09: 1, 0x0B: 2, 0x0C: 4, 0x0D: 4, 0x0E: 8}
LENGTHS = [0, 1, 2, 3, 28, 255, 65536, 2**31 - 1, 2**31, 2**32 - 1]


@lru_cache
def zeros() -> bytes:
    """16 MiB as a member of a gzip file, which may hold many: 16 KB."""
    return gzip.compress(bytes(1 << 24), mtime=0)


@lru_cache
def good() -> bytes:
    """A file whose gzip has a checksum over all images."""
    return gzip.compress(b"\0\0\x08\3" + struct.pack(">3I", 3, 2, 2) + bytes(range(12)), mtime=0)


@st.composite
def files(draw: Any) -> bytes:
    if pick(draw, [False] * 4 + [True]):
        return draw(flipped(good()))
    kind = pick(draw, [0x08] * 6 + [0x09, 0x0B, 0x0C, 0x0D, 0x0E, 0x00, 0x0A, 0xFF])
    lengths = pick(draw, [[3, 5, 4]] * 6 + [[1, 28, 28], [3, 0, 4], [0, 5, 4], [3], [3, 20], [3, 1, 5, 4], []])
    body = bytes(prod(lengths) * SIZES.get(kind, 1))
    if pick(draw, [False, False, True]):
        lengths = [pick(draw, [n, n, *LENGTHS]) for n in lengths]
    magic = bytes([0, 0, kind, pick(draw, [len(lengths)] * 9 + [0, 1, 2, 4, 5, 255])])
    if kind in (0x0D, 0x0E) and body and draw(st.booleans()):
        body = struct.pack(">f" if kind == 0x0D else ">d", pick(draw, [float("nan"), float("inf"), 1e30])) + body[8:]
    data = magic + struct.pack(f">{len(lengths)}I", *lengths) + body
    if pick(draw, [False, False, True]):
        data = draw(damaged(data, [b"\0\0\x08\x03", b"\x1f\x8b"]))
    if pick(draw, [False, False, True]):
        data = gzip.compress(data, mtime=0)
        if pick(draw, [False] * 30 + [True]):
            data += zeros() * pick(draw, [1, 1, 2, 200])
        if draw(st.booleans()):
            data = draw(damaged(data, [b"\x1f\x8b"]))
    return data


def check(data: bytes, folder: Path) -> bool:
    path = folder / FILE
    path.write_bytes(data)
    try:
        with strictly():
            shape = mnist.sample_shape(folder, "train")
        if len(shape) != 3 or prod(shape) > max(len(data) * 1100, 28 * 28):
            raise Fault(f"a file of {len(data)} bytes is planned with images of {shape}")
    except BadInput as error:
        refused(error, FILE)
        shape = None
    try:
        with strictly():
            array = mnist.read_idx(path)
    except BadInput as error:
        refused(error, FILE)
        array = None
    count = len(array) if array is not None and array.ndim else 3
    labels = np.zeros(min(count, 1 << 20), np.uint8)
    (folder / LABELS).write_bytes(b"\0\0\x08\x01" + struct.pack(">I", len(labels)) + labels.tobytes())
    try:
        with strictly():
            read = mnist.read(folder, "train")
    except BadInput as error:
        refused(error, "train")
        return False
    if changed_bit(good(), data) is not None and (array is None or array.tobytes() != bytes(range(12))):
        raise Misread(f"gzip with another bit is read as {array!r}")
    if array is None or shape is None or tuple(read.shape) != tuple(shape):
        raise Fault(f"images of shape {read.shape}, and a header that promises {shape}")
    return True


KIND = Kind("idx", files(), check, 120)
