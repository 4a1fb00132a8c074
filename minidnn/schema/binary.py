"""The messages that only Caffe's binary files have: arrays of numbers, images, the state of a solver.

Arrays are long, so they are read as spans: where their bytes lie in the file (schema/wire.py).
"""

from __future__ import annotations

from typing import Any

from minidnn.schema.caffe import LayerParameter, NetParameter
from minidnn.schema.common import BlobShape
from minidnn.schema.message import OURS, Message, Repeated, field
from minidnn.schema.old import V1LayerParameter


class BlobProto(Message):
    """An array. `num` to `width` are its shape in old files."""

    num: int = field(1, 0)
    channels: int = field(2, 0)
    height: int = field(3, 0)
    width: int = field(4, 0)
    data: Repeated[Any] = field(5, (), wire="float")
    diff: Repeated[Any] = field(6, (), wire="float")
    shape: BlobShape | None = field(7, None)
    double_data: Repeated[Any] = field(8, (), wire="double")
    double_diff: Repeated[Any] = field(9, (), wire="double")


class Datum(Message):
    """An image with its label, as in LMDB databases."""

    channels: int = field(1, 0)
    height: int = field(2, 0)
    width: int = field(3, 0)
    data: Repeated[Any] = field(4, (), wire="byte")
    label: int = field(5, 0)
    float_data: Repeated[Any] = field(6, (), wire="float")
    encoded: bool = field(7, False)


class Resume(Message):
    """Ours: what else minidnn continues from. Caffe skips it."""

    about: str = field(OURS, "")  # JSON: version, position, seed, facts, names of the history, checksum
    state: Repeated[BlobProto] = field(OURS + 1, ())  # what Caffe has no place for


class SolverState(Message):
    iter: int = field(1, 0)
    learned_net: str = field(2, "")
    history: Repeated[BlobProto] = field(3, ())
    current_step: int = field(4, 0)
    minidnn: Resume | None = field(OURS, None)


class Layer(LayerParameter):
    """A layer of a binary file: with its blobs, and with the phase that Caffe notes when it writes."""

    phase: int = field(10, 0)
    blobs: Repeated[BlobProto] = field(7, ())


class OldLayer(V1LayerParameter):
    blobs: Repeated[BlobProto] = field(6, ())


class BinaryNet(NetParameter):
    """A .caffemodel."""

    layer: Repeated[Layer] = field(100, ())  # type: ignore[assignment]
    layers: Repeated[OldLayer] = field(2, ())  # type: ignore[assignment]
