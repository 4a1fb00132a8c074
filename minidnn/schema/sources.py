"""The messages of layers that make data: from a source, from a filler, from the caller."""

from __future__ import annotations

from typing import Literal

from pydantic import model_validator

from minidnn.schema.common import BlobShape, FillerParameter
from minidnn.schema.message import Message, Positive, Repeated, Uint, field


class InputParameter(Message):
    shape: Repeated[BlobShape] = field(1, ())


class DataParameter(Message):
    source: str = field(1)
    batch_size: Positive = field(4)
    backend: Literal["LEVELDB", "LMDB"] = field(8, "LEVELDB", obeyed=False)  # there are no database sources
    prefetch: Uint = field(10, 4, obeyed=False)  # the loader prefetches one batch
    scale: float | None = field(2, None, old=True)  # these four belong into transform_param now
    mean_file: str | None = field(3, None, old=True)
    crop_size: Uint | None = field(5, None, old=True)
    mirror: bool | None = field(6, None, old=True)


class TransformationParameter(Message):
    scale: float = field(1, 1.0)
    mirror: bool = field(2, False)
    crop_size: Uint = field(3, 0)
    mean_file: str = field(4, "")  # a binaryproto with the mean of all images, which is subtracted at each pixel
    mean_value: Repeated[float] = field(5, ())

    @model_validator(mode="after")
    def _one_mean(self) -> TransformationParameter:
        if self.mean_file and self.mean_value:
            raise ValueError("expected mean_file or mean_value, got both")
        return self


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
