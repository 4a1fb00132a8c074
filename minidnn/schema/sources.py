"""The messages of layers that make data: from a source, from a filler, from the caller."""

from __future__ import annotations

from typing import Literal

from minidnn.schema.common import BlobShape, FillerParameter
from minidnn.schema.message import Message, Positive, Repeated, Uint, field


class InputParameter(Message):
    shape: Repeated[BlobShape] = field(1, ())


class DataParameter(Message):
    source: str = field(1)
    batch_size: Positive = field(4)
    backend: Literal["LEVELDB", "LMDB"] = field(8, "LEVELDB")  # read but ignored: minidnn has no database sources
    prefetch: Uint = field(10, 4)  # read but ignored: the loader prefetches one batch


class TransformationParameter(Message):
    scale: float = field(1, 1.0)
    mirror: bool = field(2, False)
    crop_size: Uint = field(3, 0)
    mean_value: Repeated[float] = field(5, ())


class DummyDataParameter(Message):
    data_filler: Repeated[FillerParameter] = field(1, ())
    shape: Repeated[BlobShape] = field(6, ())
    num: Repeated[Positive] = field(2, ())  # num, channels, height and width: the old form of shape
    channels: Repeated[Positive] = field(3, ())
    height: Repeated[Positive] = field(4, ())
    width: Repeated[Positive] = field(5, ())


class MemoryDataParameter(Message):
    batch_size: Positive = field(1)
    channels: Positive = field(2)
    height: Positive = field(3)
    width: Positive = field(4)


class ParameterParameter(Message):
    shape: BlobShape = field(1)
