"""The files of an ONNX model: itself, and those beside it in which data of its tensors lie.

What PyTorch exports by default has its weights in `m.onnx.data` beside `m.onnx`. A tensor names the file, an offset and
a length. All of that comes from strangers: a file must be a regular one within the model's folder, and hold the bytes;
and all tensors together may not read more bytes than their files have.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from minidnn.errors import BadInput
from minidnn.files import regular
from minidnn.onnx.node import Refused
from minidnn.onnx.package import onnx
from minidnn.onnx.tensors import array, kind_of
from minidnn.visible import visible

LISTED = 100  # errors that a message lists at most
LARGEST = (1 << 31) - 1  # bytes of a message of protobuf
AT_ONCE = 1 << 30  # bytes of one system call


class InvalidModel(BadInput, ValueError):
    """A file that is no ONNX model, or that minidnn has no layers for; the message names the node and the reason."""

    several = True

    def __init__(self, *errors: str) -> None:
        """errors: one line each"""
        more = [f"and {len(errors) - LISTED} more errors"] if len(errors) > LISTED else []
        lines = (visible("; ".join(error.splitlines())) for error in errors[:LISTED])
        super().__init__("\n".join([*lines, *more]))


def load(path: str | Path) -> tuple[Any, dict[str, np.ndarray]]:
    """The model of a file, and by their names the initializers whose data lie in other files: in the model these are
    empty.

    Raises InvalidModel, and OSError if the file cannot be read."""
    try:
        model = _parsed(_content(path))
        with Beside(Path(path).parent) as beside:
            result = beside.take(model)
        _check(model)
    except Refused as reason:
        raise InvalidModel(f"{path}: not a valid ONNX model: {reason}") from reason
    return model, result


def _content(path: str | Path) -> bytes:
    handle, size = _opened(path)
    with open(handle, "rb") as file:
        if size > LARGEST:
            raise Refused(
                f"it has {size} bytes, and protobuf reads {LARGEST} at most; let the program that writes it put the "
                "weights into another file (external data)"
            )
        return file.read()


def _opened(path: str | Path) -> tuple[int, int]:
    """(handle, size) of a regular file. Raises OSError."""
    handle = regular.handle(os.fspath(path), os.O_RDONLY)
    return handle, os.fstat(handle).st_size


def _parsed(content: bytes) -> Any:
    package = onnx()
    try:
        result = package.load_model_from_string(content)
    except Exception as error:  # protobuf's own, of several types
        if isinstance(error, MemoryError):
            raise
        raise Refused(_reason(error)) from error
    _check_texts(result)
    return result


def _check_texts(message: Any) -> None:
    """Raise Refused for a text that is no UTF-8: protobuf gives it as bytes."""
    waiting = [message]
    while waiting:
        for field, value in waiting.pop().ListFields():
            if field.type == field.TYPE_MESSAGE:
                waiting += [value] if hasattr(value, "ListFields") else value
            elif field.type == field.TYPE_STRING:
                for text in [value] if isinstance(value, str | bytes) else value:
                    if isinstance(text, bytes):
                        raise Refused(f"its {field.name} {text[:60]!r} is not UTF-8 text")


def _check(model: Any) -> None:
    """Let ONNX's checker judge the model, and look for what it takes and minidnn does not."""
    versions = {i.version for i in model.opset_import if i.domain in ("", "ai.onnx")}
    if len(versions) > 1:
        raise Refused(f"it says that its operators are of the versions {' and '.join(map(str, sorted(versions)))}")
    if max(versions, default=0) > (known := onnx().defs.onnx_opset_version()):
        raise Refused(
            f"its operators are of version {max(versions)}, and the package onnx, {onnx().__version__}, knows those up "
            f"to {known}; export the model for that one, or install a newer onnx"
        )
    for tensor in model.graph.sparse_initializer:
        raise Refused(f"initializer {tensor.values.name!r} is sparse, and minidnn reads dense ones")
    for attribute in (a for node in model.graph.node for a in node.attribute if a.ref_attr_name):
        raise Refused(f"the attribute {attribute.name!r} refers to one of a function, and its node is in none")
    o = onnx().TensorProto
    for value in model.graph.input:
        if value.type.tensor_type.elem_type in (o.STRING, o.COMPLEX64, o.COMPLEX128):
            raise Refused(f"input {value.name!r} holds texts or complex numbers, which no layer reads")
    package = onnx()
    try:
        package.checker.check_model(model)
    except Exception as error:  # the checker's, and those of its C++: each names the model's error
        if isinstance(error, MemoryError):
            raise
        raise Refused(_reason(error)) from error


def _reason(error: Exception) -> str:
    return (str(error) or type(error).__name__).strip().splitlines()[0]


class Beside:
    """The files beside a model, in its folder. Use it in a `with` statement: it holds them open."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.files: dict[str, tuple[int, int]] = {}  # location -> handle, size
        self.arrays: dict[tuple[Any, ...], np.ndarray] = {}
        self.taken = 0  # bytes

    def __enter__(self) -> Beside:
        return self

    def __exit__(self, *error: object) -> None:
        for handle, _ in self.files.values():
            os.close(handle)

    def take(self, model: Any) -> dict[str, np.ndarray]:
        """The initializers of the model that lie in other files; they are made empty there. Other tensors get their
        data. Raises Refused, which names the tensor."""
        outside = onnx().TensorProto.EXTERNAL
        result = {}
        for tensor in model.graph.initializer:
            if tensor.data_location == outside:
                result[tensor.name] = self._named(tensor)
                del tensor.dims[:]
                tensor.dims.append(0)
                _let_go(tensor)
        for tensor in tensors(model):
            if tensor.data_location == outside:
                tensor.raw_data = self._named(tensor).tobytes()
                _let_go(tensor)
        return result

    def _named(self, tensor: Any) -> np.ndarray:
        try:
            return self.array(tensor)
        except Refused as reason:
            raise Refused(f"tensor {tensor.name!r}: {reason}") from reason

    def array(self, tensor: Any) -> np.ndarray:
        """The numbers of a tensor that lie in another file. Tensors of the same place have one array."""
        said = {entry.key: entry.value for entry in tensor.external_data}
        if len(said) < len(tensor.external_data):
            raise Refused("it says twice where its data lie")
        shape, dtype = kind_of(tensor)
        handle, size = self._file(said.get("location", ""))
        offset = _number(said, "offset", 0)
        length = _number(said, "length", max(size - offset, 0))
        where = f"its data are {length} bytes at {offset} of {said['location']!r}"
        if offset + length > size:
            raise Refused(f"{where}, which has {size}: the file is truncated, or of another model")
        simple = dtype.isbuiltin == 1
        if simple and length != math.prod(shape) * dtype.itemsize:
            raise Refused(f"{where}, and its shape and type need {math.prod(shape) * dtype.itemsize}")
        key = said["location"], offset, length, shape, dtype
        if key not in self.arrays:
            self._count(length)
            self.arrays[key] = (
                _read(handle, offset, shape, dtype) if simple else _few_bits(tensor, handle, offset, length)
            )
            self.arrays[key].flags.writeable = False
        return self.arrays[key]

    def _count(self, length: int) -> None:
        """Count bytes that are read. Raises Refused where tensors overlap, and so ask for more than there is."""
        self.taken += length
        if self.taken > sum(size for _, size in self.files.values()):
            raise Refused("its data overlap with those of other tensors")

    def _file(self, location: str) -> tuple[int, int]:
        """(handle, size) of a file. Raises Refused unless it is a regular one within the folder."""
        if location not in self.files:
            parts = Path(location).parts
            if not parts or "\0" in location or ".." in parts or Path(location).is_absolute():
                raise Refused(f"its data lie in {location!r}, and only files in the model's folder are read")
            home = os.path.realpath(self.folder)
            path = os.path.realpath(self.folder / location)
            if os.path.commonpath([home, path]) != home:
                raise Refused(f"its data lie in {location!r}, a link out of the model's folder; copy the file there")
            try:
                self.files[location] = _opened(path)
            except OSError as error:
                what = f"its data lie in {str(self.folder / location)!r}: {error.strerror}"
                raise Refused(f"{what}; that file belongs next to the model") from error
        return self.files[location]


def _number(said: dict[str, str], name: str, default: int) -> int:
    text = said.get(name)
    if text is None:
        return default
    if not re.fullmatch(r"[0-9]{1,18}", text):
        raise Refused(f"the {name} of its data is {text!r}, which is not a number of bytes")
    return int(text)


def _read(handle: int, offset: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
    result = np.empty(shape, dtype.newbyteorder("<"))
    view = result.reshape(-1).view(np.uint8).data
    at = 0
    while at < len(view):
        count = os.preadv(handle, [view[at : at + AT_ONCE]], offset + at)
        if not count:
            raise Refused("its data end while they are read")
        at += count
    return result.astype(dtype, copy=False)


def _few_bits(tensor: Any, handle: int, offset: int, length: int) -> np.ndarray:
    """Numbers of a type that NumPy lacks, such as bfloat16 and those of 4 bits."""
    whole = type(tensor)(dims=tensor.dims, data_type=tensor.data_type)
    whole.raw_data = _read(handle, offset, (length,), np.dtype(np.uint8)).tobytes()
    return array(whole)


def _let_go(tensor: Any) -> None:
    del tensor.external_data[:]
    tensor.ClearField("data_location")


def tensors(model: Any) -> Iterator[Any]:
    """All tensors of a model, also those within its nodes."""
    yield from _of_graph(model.graph)
    for function in model.functions:
        yield from _of_nodes(function.node)


def _of_graph(graph: Any) -> Iterator[Any]:
    yield from graph.initializer
    yield from _of_nodes(graph.node)


def _of_nodes(nodes: Any) -> Iterator[Any]:
    for attribute in (a for node in nodes for a in node.attribute):
        if attribute.HasField("t"):
            yield attribute.t
        yield from attribute.tensors
        for graph in (*((attribute.g,) if attribute.HasField("g") else ()), *attribute.graphs):
            yield from _of_graph(graph)
