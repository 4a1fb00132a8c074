"""The messages of layers that make data: from a source, from a filler, from the caller."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import Field, model_validator

from minidnn.schema.common import BlobShape, FillerParameter
from minidnn.schema.message import OURS, Message, Positive, Repeated, Uint, field

Share = Annotated[float, Field(ge=0, le=1)]
WORKERS = 256  # processes of one layer, at most
Workers = Annotated[int, Field(ge=0, le=WORKERS)]
TOKENS = re.compile(r"(synthetic_tokens:|(?:tokens|text):.*:length=)(\d+)")  # up to a window's length

WINDOWS = re.compile(r"(synthetic_tokens|tokens|text):")  # what sources of tokens begin with


class InputParameter(Message):
    shape: Repeated[BlobShape] = field(1, ())


class DataParameter(Message):
    source: str = field(1)
    batch_size: Positive = field(4)
    backend: Literal["LEVELDB", "LMDB"] = field(8, "LEVELDB", obeyed=False)  # a source's own files tell
    rand_skip: Uint = field(7, 0)  # samples to pass over at the beginning, a random number below this
    force_encoded_color: bool = field(9, False)
    prefetch: Uint = field(10, 4, obeyed=False)  # the loader prefetches one batch, workers two
    threads: Uint = field(11, 0, obeyed=False)  # these five are NVIDIA's Caffe's
    parser_threads: Uint = field(12, 0, obeyed=False)
    cache: bool = field(13, False, obeyed=False)
    precache: bool = field(16, False, obeyed=False)
    shuffle: bool | None = field(14, None)  # whether each epoch has an order of its own; None: in TRAIN
    workers: Workers = field(OURS, 0)  # processes that make samples; 0: a thread does
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
    force_color: bool = field(6, False)  # encoded images in colour, or in grey, however they are stored
    force_gray: bool = field(7, False)
    resize: Repeated[Positive] = field(OURS, ())  # the shorter side, or height and width; data/augment.py has these
    channel_order: Literal["BGR", "RGB"] = field(OURS + 1, "BGR")  # of decoded images; BGR is Caffe's
    exif: bool | None = field(OURS + 8, None)  # turn JPEGs as EXIF says; None: as Caffe does on OpenCV
    crop_area: Repeated[Annotated[float, Field(gt=0, le=1)]] = field(OURS + 2, ())  # from here on in TRAIN only
    crop_ratio: Repeated[Annotated[float, Field(gt=0)]] = field(OURS + 3, (3 / 4, 4 / 3))
    rotation: Annotated[float, Field(ge=0, le=180)] = field(OURS + 4, 0.0)
    brightness: Share = field(OURS + 5, 0.0)
    contrast: Share = field(OURS + 6, 0.0)
    saturation: Share = field(OURS + 7, 0.0)
    mask_token: Uint | None = field(OURS + 9, None)  # the id that hides tokens, which become labels; in both phases
    mask_vocabulary: Positive | None = field(OURS + 10, None)  # ids below this may take a token's place
    mask_ratio: Annotated[float, Field(gt=0, le=1)] = field(OURS + 11, 0.15)  # of tokens that are chosen

    @model_validator(mode="after")
    def _one_of_two(self) -> TransformationParameter:
        if self.mean_file and self.mean_value:
            raise ValueError("expected mean_file or mean_value, got both")
        if self.force_color and self.force_gray:
            raise ValueError("expected force_color or force_gray, got both")
        return self

    @model_validator(mode="after")
    def _whole_mask(self) -> TransformationParameter:
        given = [name for name in ("mask_token", "mask_vocabulary") if getattr(self, name) is not None]
        if len(given) == 1 or (self.has("mask_ratio") and not given):
            raise ValueError("masks need mask_token, such as 103, and mask_vocabulary, such as 30522")
        return self

    @model_validator(mode="after")
    def _sizes(self) -> TransformationParameter:
        if len(self.resize) > 2:
            raise ValueError(f"expected one or two numbers as resize, got {list(self.resize)}")
        for name in ("crop_area", "crop_ratio"):
            two = getattr(self, name)
            if self.has(name) and (len(two) != 2 or two[0] > two[1]):
                raise ValueError(f"expected the least and the largest value as {name}, got {list(two)}")
        if self.crop_area and not self.crop_size:
            raise ValueError("crop_area needs crop_size, the size that the part gets")
        if self.has("crop_ratio") and not self.crop_area:
            raise ValueError("crop_ratio needs crop_area")
        return self


class ImageDataParameter(Message):
    """Caffe's list of images. Where `new_height` and `new_width` are 0, images are not resized."""

    source: str = field(1)  # a text with the path of an image and its label on each line
    batch_size: Positive = field(4, 1)
    rand_skip: Uint = field(7, 0)  # samples to pass over at the beginning, a random number below this
    shuffle: bool = field(8, False)  # give each epoch an order of its own, in both phases
    new_height: Uint = field(9, 0)
    new_width: Uint = field(10, 0)
    is_color: bool = field(11, True)
    root_folder: str = field(12, "")  # goes before each path
    workers: Workers = field(OURS, 0)
    scale: float | None = field(2, None, old=True)  # these four belong into transform_param now
    mean_file: str | None = field(3, None, old=True)
    crop_size: Uint | None = field(5, None, old=True)
    mirror: bool | None = field(6, None, old=True)

    @model_validator(mode="after")
    def _both_sizes(self) -> ImageDataParameter:
        if bool(self.new_height) != bool(self.new_width):
            raise ValueError("expected new_height and new_width, or neither")
        return self


class HDF5DataParameter(Message):
    """Caffe's HDF5 files: each top is the dataset of its name."""

    source: str = field(1)  # a text with the name of an HDF5 file on each line, or such a file
    batch_size: Positive = field(2)
    shuffle: bool = field(3, False)  # give each epoch an order of its own, in both phases
    workers: Workers = field(OURS, 0)


class ColumnParameter(HDF5DataParameter):
    """One top of an HDF5Data layer; no file has this message."""

    dataset: str = field(OURS + 1)
    tops: Repeated[str] = field(OURS + 2, ())  # all of the layer's, which have as many rows


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
    source: str = field(OURS, "", obeyed=False)  # a fork's, whose data the caller gives here
    share_in_parallel: bool = field(OURS + 1, True, obeyed=False)


class ParameterParameter(Message):
    shape: BlobShape = field(1)
