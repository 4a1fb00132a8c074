"""npz and npy files: refused with the file's name, or the shape that their header says is the shape that they have."""

from __future__ import annotations

import io
import warnings
import zipfile
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import strategies as st

from minidnn.data import npz
from minidnn.errors import BadInput
from tests.fuzz.kind import Fault, Kind, Misread, refused, strictly
from tests.fuzz.mutate import flipped
from tests.fuzz.pieces import damaged, pick
from tests.fuzz.samples import changed_bit

FILE = "data.npz"
DTYPES = ["<f4", "<f8", ">f4", "<f2", "u1", "<i4", "<i8", "<u8", "?", "<c8", "S3", "<U2", "O", "<M8[s]", "V4", "<f16"]
SHAPES = [(4, 1, 3, 3), (4, 3, 3), (4, 9), (4,), (), (0, 1, 3, 3), (4, 0), (1, 1), (4, 1, 1, 1, 1), (1000, 1), (3, 4)]
VALUES = [0.0, 1.0, -1.0, 200.0, 1e30, 1e300, 2**31, 2**40, 2**63, float("nan"), float("inf")]
NAMES = ["x", "images", "y", "labels", "data", "z", "", "../x", "x.npy", "\x1b[2J", "a/b", "\u540d"]
HEADERS = [
    b"{'descr': '<f4', 'fortran_order': False, 'shape': (4, 9), }",
    b"{'descr': '<f4', 'fortran_order': True, 'shape': (4, 9), }",
    b"{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296), }",
    b"{'descr': '<f4', 'shape': (4, 9,",
    b"{'descr': '<f4', 'fortran_order': False, 'shape': (-4, 9), }",
    b"{'descr': 7, 'fortran_order': False, 'shape': (4, 9), }",
    b"{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000,), }",
    b"__import__('os').getcwd()",
    b"",
    b"(" * 500,
    b"{'descr': '|O', 'fortran_order': False, 'shape': (4, 9), }",
    b"{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (4,), }",
    b"{'descr': '<f4', 'fortran_order': False, 'shape': (4L, 9L), }",
    b"{'descr': '<f4', 'fortran_order': False, 'shape': (4.5, 9), }",
    b"{'descr': '<f4', 'fortran_order': False, 'shape': (True, 9), }",
    b"{'descr': '<f4', 'fortran_order': 0, 'shape': (4, 9), }",
]
PIECES = [
    b"PK\x03\x04",
    b"PK\x01\x02",
    b"PK\x05\x06",
    b"\x93NUMPY\x01\x00",
    b"\x93NUMPY\x02\x00",
    b"\x93NUMPY\x03\x00",
    *HEADERS,
]


@st.composite
def arrays(draw: Any, labels: bool) -> bytes:
    """An npy file."""
    right = pick(draw, [True, True, True, False])
    kind = pick(draw, ["<i4", "u1", "<i8"] if labels and right else ["<f4", "<f8", "u1"] if right else DTYPES)
    shapes = [(4,), (4, 1)] if labels else [(4, 1, 3, 3), (4, 3, 3), (4, 9)]
    shape = pick(draw, shapes if right else SHAPES)
    array = np.zeros(shape, kind)
    if array.dtype.kind in "fiu" and array.size:
        value = pick(draw, [v for v in VALUES if array.dtype.kind == "f" or (v == v and v < 2**63)])
        with np.errstate(all="ignore"):
            array.reshape(-1)[draw(st.integers(0, array.size - 1))] = np.float64(value).astype(array.dtype)
    file = io.BytesIO()
    np.lib.format.write_array(file, np.asfortranarray(array) if draw(st.booleans()) else array, allow_pickle=True)
    data = file.getvalue()
    if pick(draw, [False] * 6 + [True]):
        header = pick(draw, HEADERS)
        header += b" " * (-(len(header) + 11) % 64) + b"\n"
        data = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + bytes(144)
    return draw(damaged(data, PIECES, 2)) if pick(draw, [False] * 6 + [True]) else data


@lru_cache
def good() -> bytes:
    """An archive with a checksum of each array."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, array in (("x", np.arange(24, dtype=np.uint8).reshape(4, 1, 2, 3)), ("y", np.arange(4))):
            member = io.BytesIO()
            np.save(member, array)
            archive.writestr(zipfile.ZipInfo(f"{name}.npy"), member.getvalue(), zipfile.ZIP_DEFLATED)
    return file.getvalue()


@st.composite
def files(draw: Any) -> bytes:
    if pick(draw, [False] * 6 + [True]):
        return draw(flipped(good()))
    if pick(draw, [False] * 9 + [True]):
        return draw(arrays(False))
    names = [("x", False), ("y", True)]
    names += [(name, False) for name in draw(st.lists(st.sampled_from(NAMES), max_size=1))]
    if pick(draw, [False] * 5 + [True]):
        names = names[draw(st.integers(0, 1)) :][: draw(st.integers(0, 2))]
    file = io.BytesIO()
    method = pick(
        draw,
        [zipfile.ZIP_STORED] * 12
        + [zipfile.ZIP_DEFLATED] * 3
        + [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA],
    )
    with zipfile.ZipFile(file, "w", method) as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a name twice
        for name, labels in dict(names).items():
            entry = zipfile.ZipInfo(name + pick(draw, [".npy"] * 9 + [""]) or "x")
            entry.compress_type = method
            archive.writestr(entry, draw(arrays(labels)))
    data = file.getvalue()
    if pick(draw, [False, False, True]):
        return draw(damaged(data, PIECES))
    if pick(draw, [False] * 4 + [True]):  # a field of a header: flags, method, sizes, offsets
        raw = bytearray(data)
        at = pick(draw, [data.find(sign) for sign in (b"PK\x03\x04", b"PK\x01\x02", b"PK\x05\x06")])
        if at >= 0:
            field = at + draw(st.integers(4, 40))
            raw[field : field + 1] = pick(draw, [b"\0", b"\1", b"\x08", b"\x63", b"\xff"])
        return bytes(raw)
    return data


def check(data: bytes, folder: Path) -> bool:
    (folder / FILE).write_bytes(data)
    found = []
    for use in (npz.read_arrays, npz.sample_shape, npz.read):
        try:
            with strictly():
                found.append(use(FILE))
        except BadInput as error:
            refused(error, FILE)
            found.append(None)
    _, shape, read = found
    if read is None:
        return False
    if shape is None or tuple(read.shape) != tuple(shape):
        raise Fault(f"samples of shape {read.shape}, and a header that promises {shape}")
    images, labels = read.take(np.arange(len(read)))
    if changed_bit(good(), data) is not None and (images.tobytes(), labels.tolist()) != (
        bytes(range(24)),
        [0, 1, 2, 3],
    ):
        raise Misread(f"an archive with another bit is read as {images!r}, {labels!r}")
    if len(images) != len(labels) or labels.dtype != np.int32 or labels.min() < 0 or read.highest() != labels.max():
        raise Fault("accepted samples that contradict each other")
    return True


KIND = Kind("npz", files(), check, 120)
