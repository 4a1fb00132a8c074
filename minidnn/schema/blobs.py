"""Arrays in Caffe's binary files: weights (.caffemodel), means (.binaryproto), images (Datum)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from pydantic import BaseModel, ValidationError

from minidnn.files.parts import Held, Parts
from minidnn.schema.document import InvalidFile
from minidnn.schema.table import fields
from minidnn.schema.wire import Reader, Span, sized, varint

T = TypeVar("T", bound=BaseModel)


@dataclass(frozen=True)
class Blob:
    """An array of a file, read when it is asked for."""

    shape: tuple[int, ...]  # four axes in old files, the first ones of length 1
    dtype: np.dtype
    file: Parts | Held
    spans: tuple[Span, ...]

    def read(self, first: int, last: int) -> np.ndarray:
        """The elements from `first` to `last`, `last` excluded, as (last - first,). Raises InvalidFile if the file has
        been written to."""
        size = self.dtype.itemsize
        if len(self.spans) == 1:
            raw = self.file.read(self.spans[0].at + first * size, (last - first) * size)
        else:
            raw = b"".join(self.file.read(span.at, span.nbytes) for span in self.spans)[first * size : last * size]
        return np.frombuffer(raw, self.dtype)

    def whole(self) -> np.ndarray:
        return self.read(0, math.prod(self.shape)).reshape(self.shape)


def message(path: str | Path, model: type[BaseModel]) -> tuple[Parts, dict[str, Any]]:
    """(the file, the plain values of the message in it). Raises InvalidFile, and OSError if it cannot be opened."""
    file = Parts(path, lambda text: InvalidFile([text]))
    return file, Reader(file.near, file.size, str(path)).message(model)


def blob(file: Parts, value: Any, what: str) -> Blob:
    """The array of a BlobProto's plain values; `what` is its name in errors. Raises InvalidFile."""
    from minidnn.schema.binary import BlobProto

    proto = _checked(BlobProto, file, value, what)
    shape = (proto.num, proto.channels, proto.height, proto.width) if proto.shape is None else proto.shape.dim
    double = bool(proto.double_data)
    spans: Sequence[Span] = proto.double_data if double else proto.data
    dtype = np.dtype("<f8" if double else "<f4")
    return _sized(Blob(tuple(shape), dtype, file, tuple(spans)), what)


@dataclass(frozen=True)
class Picture:
    """An image and its label, as a Datum has them."""

    label: int
    content: bytes | np.ndarray  # an encoded image, or its values (C, H, W), uint8 or float32

    def to_bytes(self) -> bytes:
        """The bytes of the Datum."""
        label = varint(5 << 3) + varint(self.label)
        values = self.content
        if isinstance(values, bytes):
            return sized(4, values) + label + varint(7 << 3) + varint(1)
        shape = b"".join(varint(i << 3) + varint(n) for i, n in enumerate(values.shape, 1))
        if values.dtype == np.uint8:
            return shape + sized(4, values.tobytes()) + label
        return shape + label + sized(6, values.astype("<f4").tobytes())


def datum(path: str | Path) -> Picture:
    """The image of a Datum in a file, and its label. Raises InvalidFile, and OSError if it cannot be opened."""
    return _picture(Parts(path, lambda text: InvalidFile([text])))


def datum_of(data: bytes, name: str) -> Picture:
    """The same of a Datum's bytes; `name` is for errors. Raises InvalidFile."""
    return _picture(Held(data, name))


def _picture(file: Parts | Held) -> Picture:
    from minidnn.schema.binary import Datum

    given = Reader(file.near, file.size, str(file.path)).message(Datum)
    image = _checked(Datum, file, given, "the image")
    if image.encoded:
        return Picture(image.label, b"".join(file.read(span.at, span.nbytes) for span in image.data))
    spans, dtype = (image.data, "<u1") if image.data else (image.float_data, "<f4")
    shape = image.channels, image.height, image.width
    return Picture(image.label, _sized(Blob(shape, np.dtype(dtype), file, tuple(spans)), "the image").whole())


def array(path: str | Path) -> np.ndarray:
    """The array in a .binaryproto. Raises InvalidFile, and OSError if it cannot be opened."""
    from minidnn.schema.binary import BlobProto

    return blob(*message(path, BlobProto), "the array").whole()


def mean(path: str | Path) -> np.ndarray:
    """The mean of images in a .binaryproto, float32 (C, H, W). Raises InvalidFile, and OSError if it cannot be
    opened."""
    result = array(path)
    if len(result.shape) not in (3, 4) or (len(result.shape) == 4 and result.shape[0] != 1):
        raise InvalidFile([f"{path}: expected a mean of one image, (1, C, H, W), got {result.shape}"])
    values = result.astype(np.float32).reshape(result.shape[-3:])
    if not np.isfinite(values).all():
        raise InvalidFile([f"{path}: the mean has values that are not finite"])
    return values


def array_bytes(values: np.ndarray) -> bytes:
    """The bytes of a .binaryproto with these values, as float32."""
    from minidnn.schema.binary import BlobProto

    numbers = {name: fields(BlobProto)[name].number or 0 for name in ("data", "shape")}
    shape = sized(numbers["shape"], sized(1, b"".join(varint(n) for n in values.shape)))
    return shape + sized(numbers["data"], np.ascontiguousarray(values, "<f4").tobytes())


def _checked(model: type[T], file: Parts | Held, value: Any, what: str) -> T:
    """The message of these plain values. Raises InvalidFile with the first error."""
    try:
        return model.model_validate(value)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise InvalidFile([f"{file.path}: {what}: {'.'.join(map(str, first['loc']))}: {first['msg']}"]) from None


def _sized(message: Blob, what: str) -> Blob:
    """The array itself. Raises InvalidFile unless it has as many bytes as its shape says."""
    nbytes = sum(span.nbytes for span in message.spans)
    if min(message.shape, default=1) < 0 or math.prod(message.shape) * message.dtype.itemsize != nbytes:
        numbers = f"{nbytes // message.dtype.itemsize} numbers"
        raise InvalidFile([f"{message.file.path}: {what} has the shape {message.shape}, but {numbers}"])
    return message
