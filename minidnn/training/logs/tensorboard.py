"""Event files of TensorBoard: a TFRecord for each step and each test, which holds a protobuf message `Event`.

The formats are TensorFlow's: of its record writer, and of its messages Event, Summary and SessionLog. A record is its
length in 8 bytes, the masked CRC-32C of these, its bytes, and their masked CRC-32C. Where a run goes on, TensorBoard
drops the points from that iteration on that it has read before.
"""

from __future__ import annotations

import itertools
import os
import socket
import struct
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from minidnn.files.replace import make_folder
from minidnn.schema.wire import EIGHT, FOUR, VARINT, sized, varint
from minidnn.training.logs.appended import Appended
from minidnn.training.logs.record import scalars

_VERSION = b"brain.Event:2"
# numbers of fields in these messages
_WALL_TIME, _STEP, _FILE_VERSION, _SUMMARY, _SESSION_LOG = 1, 2, 3, 5, 7  # Event
_VALUE, _TAG, _SIMPLE_VALUE = 1, 1, 2  # Summary; Summary.Value
_STATUS, _START = 1, 1  # SessionLog


class EventFile:
    """A new event file in a folder, with the curves of one run."""

    def __init__(self, folder: Path, iteration: int, now: Callable[[], float] = time.time) -> None:
        """`iteration`: where the run begins. Makes the folder. Raises OSError."""
        self._now = now
        make_folder(folder)
        self._file = _opened(folder, f"events.out.tfevents.{int(now()):010d}.{socket.gethostname()}.{os.getpid()}")
        self._write(0, sized(_FILE_VERSION, _VERSION))
        self._write(iteration, sized(_SESSION_LOG, varint(_STATUS << 3 | VARINT) + varint(_START)))

    def __call__(self, record: Mapping[str, Any]) -> None:
        """Write the record's curves, if it has any. Raises OSError."""
        if result := scalars(record):
            summary = b"".join(sized(_VALUE, _value(name, value)) for name, value in result.items())
            self._write(record["iteration"], sized(_SUMMARY, summary))

    def _write(self, step: int, what: bytes) -> None:
        when = varint(_WALL_TIME << 3 | EIGHT) + struct.pack("<d", self._now())
        self._file.write(framed(when + varint(_STEP << 3 | VARINT) + varint(step) + what))

    def close(self) -> None:
        self._file.close()


def _opened(folder: Path, name: str) -> Appended:
    """A new file of that name, and a number that no other has."""
    for number in itertools.count():
        try:
            return Appended(folder / f"{name}.{number}", new=True)
        except FileExistsError:
            continue
    raise AssertionError


def _value(tag: str, value: float) -> bytes:
    with np.errstate(over="ignore"):
        number = varint(_SIMPLE_VALUE << 3 | FOUR) + np.float32(value).tobytes()
    return sized(_TAG, tag.encode("utf-8", "backslashreplace")) + number


def framed(record: bytes) -> bytes:
    """The record as a TFRecord."""
    length = struct.pack("<Q", len(record))
    return length + _masked(length) + record + _masked(record)


def _masked(raw: bytes) -> bytes:
    """The CRC-32C of these bytes, masked as in TFRecords: rotated by 15 bits, and a constant added."""
    crc = crc32c(raw)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def crc32c(raw: bytes) -> int:
    """The CRC-32C (Castagnoli) of these bytes."""
    crc = 0xFFFFFFFF
    for byte in raw:
        crc = crc >> 8 ^ _TABLE[(crc ^ byte) & 255]
    return crc ^ 0xFFFFFFFF


def _entry(byte: int) -> int:
    for _ in range(8):
        byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
    return byte


_TABLE = tuple(map(_entry, range(256)))


def problem(folder: Path) -> str | None:
    """Why event files cannot be written to this folder, which may have to be made; None if they can."""
    there = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    if not there.is_dir():
        return f"{there} is not a folder" if there != folder else "is not a folder"
    return None if os.access(there, os.W_OK | os.X_OK) else f"the folder {there} cannot be written to"
