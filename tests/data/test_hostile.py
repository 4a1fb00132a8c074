"""npz files that are damaged, or that zipfile cannot read: each is the file's error, and names it."""

from __future__ import annotations

import io
import zipfile

import numpy as np
import pytest

from minidnn.data import DataError
from minidnn.data.npz import read, sample_shape


def npy(header: bytes | None = None) -> bytes:
    file = io.BytesIO()
    np.save(file, np.arange(800, dtype=np.float32).reshape(2, 400))
    raw = file.getvalue()
    return raw if header is None else raw[:10] + header.ljust(len(raw[10:128]) - 1) + b"\n" + raw[128:]


def archive(path, x: bytes, compression: int = zipfile.ZIP_STORED) -> bytearray:
    with zipfile.ZipFile(path, "w", compression) as file:
        file.writestr("x.npy", x)
        file.writestr("y.npy", npy())
    return bytearray(path.read_bytes())


def each(raw: bytearray, signature: bytes, offset: int, value: int) -> None:
    """Set a byte behind each header with this signature."""
    at = raw.find(signature)
    while at >= 0:
        raw[at + offset] = value
        at = raw.find(signature, at + 4)


LOCAL, CENTRAL = b"PK\x03\x04", b"PK\x01\x02"


def encrypted(path):
    raw = archive(path, npy())
    each(raw, LOCAL, 6, 1)
    each(raw, CENTRAL, 8, 1)
    return raw


def unknown_method(path):
    raw = archive(path, npy())
    each(raw, LOCAL, 8, 99)
    each(raw, CENTRAL, 10, 99)
    return raw


def unknown_version(path):
    raw = archive(path, npy())
    each(raw, CENTRAL, 6, 250)
    return raw


def damaged_lzma(path):
    raw = archive(path, npy(), zipfile.ZIP_LZMA)
    raw[60:90] = b"\xff" * 30
    return raw


def tokens(path):
    return archive(path, npy(b"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 400,"))


def types(path):
    return archive(path, npy(b"{'descr': 7, 'fortran_order': False, 'shape': (2, 400), }"))


@pytest.mark.parametrize("damage", [encrypted, unknown_method, unknown_version, damaged_lzma, tokens, types])
def test_a_damaged_file_is_named(tmp_path, damage):
    path = tmp_path / "data.npz"
    path.write_bytes(damage(path))
    for use in (read, sample_shape):
        with pytest.raises(DataError, match=r"data.npz: not a whole npz or npy file \(\d+ bytes\): ."):
            use(path)


def test_a_file_without_damage_is_read(tmp_path):
    archive(tmp_path / "data.npz", npy())
    assert sample_shape(tmp_path / "data.npz") == (400,)
