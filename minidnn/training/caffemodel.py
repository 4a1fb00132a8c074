"""Weights in Caffe's own files, .caffemodel: by layer, each layer's blobs by number.

Names are "<layer>/<number>": the net says which parameter a number is. A written file has the net's layers, too, so
that Caffe and other readers of its files can use it. Neither way needs all weights in memory.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from minidnn.errors import BadInput
from minidnn.layers.rows import Rows, split
from minidnn.schema import NetParameter
from minidnn.schema.binary import BinaryNet, BlobProto, Layer
from minidnn.schema.blobs import Blob, blob, message
from minidnn.schema.forks import SCALE
from minidnn.schema.table import fields
from minidnn.schema.wire import LARGEST, head, message_bytes, sized, varint

SUFFIX = ".caffemodel"
_LAYER = fields(BinaryNet)["layer"].number or 0
_NAME, _BLOBS = (fields(Layer)[name].number or 0 for name in ("name", "blobs"))
_DATA, _SHAPE = (fields(BlobProto)[name].number or 0 for name in ("data", "shape"))
_STATISTICS = 3  # blobs of Caffe's BatchNorm


class TooLarge(BadInput, ValueError):
    """Weights that do not fit into a .caffemodel; the message names the number of bytes."""


def read(path: str | Path) -> dict[str, Rows]:
    """The weights of a .caffemodel by "<layer>/<number>"; values are read when they are asked for.

    A blob of an old file has four axes, the first ones of length 1. What scales and shifts in NVCaffe's BatchNorm is
    that of the Scale behind it (schema/forks.py). Raises InvalidFile if the file is no whole
    .caffemodel, and OSError if it cannot be opened."""
    file, net = message(path, BinaryNet)
    result: dict[str, Rows] = {}
    for layer in (*net.get("layers", ()), *net.get("layer", ())):
        if isinstance(layer, dict):
            name, blobs = str(layer.get("name", "")), layer.get("blobs", ())
            for i, given in enumerate(blobs):
                affine = i >= _STATISTICS and layer.get("type") == "BatchNorm"
                place = f"{name}{SCALE}/{i - _STATISTICS}" if affine else f"{name}/{i}"
                result[place] = rows_of(blob(file, given, f"blob {i} of layer {name}"))
    return result


def rows_of(blob: Blob) -> Rows:
    """The rows of an array of a file."""
    row = math.prod(blob.shape[1:])

    def pieces() -> Iterator[np.ndarray]:
        for first, last in split(blob.shape, blob.dtype.itemsize):
            yield blob.read(first * row, last * row).reshape(-1, *blob.shape[1:])

    return Rows(blob.shape, blob.dtype, pieces)


def pieces(net: NetParameter, weights: Mapping[str, Sequence[Rows]]) -> Iterator[bytes]:
    """The bytes of a .caffemodel with this net and its layers' blobs, one after another. Values become float32.

    Raises TooLarge before the first one if Caffe could not read so large a file."""
    bare = net.model_copy(update={"layer": ()})
    bare.model_fields_set.discard("layer")
    others = weights.keys() - {layer.name for layer in net.layer}  # of another test net: with no more than their names
    layers = [(message_bytes(layer), weights.get(layer.name, ())) for layer in net.layer]
    layers += [(sized(_NAME, name.encode()), weights[name]) for name in sorted(others)]
    heads = [[layer, *(blob_head(_BLOBS, values.shape) for values in blobs)] for layer, blobs in layers]
    sizes = [
        sum(map(len, begins)) + sum(4 * math.prod(values.shape) for values in blobs)
        for begins, (_, blobs) in zip(heads, layers, strict=True)
    ]
    total = sum(sizes)
    if total > LARGEST - 2**16:
        raise TooLarge(f"{total} bytes of weights: a .caffemodel holds less than 2 GiB; write .safetensors")
    yield message_bytes(bare)
    for (_, blobs), (first, *begins), size in zip(layers, heads, sizes, strict=True):
        yield head(_LAYER, size)
        yield first
        for begin, values in zip(begins, blobs, strict=True):
            yield begin
            yield from map(raw, values.pieces())


def raw(piece: np.ndarray) -> bytes:
    """The bytes of these numbers as float32."""
    return np.ascontiguousarray(piece, "<f4").tobytes()


def blob_head(number: int, shape: Sequence[int]) -> bytes:
    """The bytes before the float32 numbers of an array, which is the field `number` of its message."""
    nbytes = 4 * math.prod(shape)
    begin = sized(_SHAPE, sized(1, b"".join(varint(n) for n in shape))) + head(_DATA, nbytes)
    return head(number, len(begin) + nbytes) + begin
