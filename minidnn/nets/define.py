"""Nets written in Python: `define` calls layers on blobs, and each call is recorded as a layer of a file.

    class LeNet(minidnn.Net):
        def define(self, batch=64):
            data, label = L.Data(source="digits", batch_size=batch)
            x = L.Convolution(data, num_output=20, kernel_size=5, weight_filler=dict(type="xavier"))
            ...

Each layer type, a user's own too, is a function of `L`. It takes blobs first, then fields, named as in Caffe. A field
belongs to the layer itself (name, top, include, exclude, param, loss_weight, propagate_down) or to the message of its
type. A layer without a name gets one: conv1, conv2, relu1.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import numpy as np

from minidnn.layers import LAYERS
from minidnn.schema import message_of, present
from minidnn.schema.elsewhere import no_type

LOSSES = (
    "SoftmaxWithLoss", "SigmoidCrossEntropyLoss", "EuclideanLoss", "SmoothL1Loss", "HingeLoss", "ContrastiveLoss",
    "InfogainLoss", "MultinomialLogisticLoss",
)  # fmt: skip
COMMON = ("include", "exclude", "param", "loss_weight", "propagate_down")
PREFIX = {
    "Convolution": "conv", "Pooling": "pool", "InnerProduct": "ip", "ReLU": "relu", "LRN": "norm", "Softmax": "prob",
    "BatchNorm": "bn", "Dropout": "drop", "Accuracy": "accuracy", "Input": "data", "BatchReindex": "reindex",
    "LayerNorm": "ln", "AbsVal": "abs", "Deconvolution": "deconv", "Upsample": "up", "GroupNorm": "gn",
    "InstanceNorm": "in", "StochasticDepth": "skip",
    **dict.fromkeys(LOSSES, "loss"),
}  # fmt: skip
ONCE = (*LOSSES, "Accuracy", "Softmax", "Data", "Input")  # the name of the first one in a net has no number
# default tops of types that have not one
TOPS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("Data", "ImageData", "HDF5Data", "MemoryData"), ("data", "label")), "Silence": (),
}  # fmt: skip

_writing: ContextVar[Writer | None] = ContextVar("writing", default=None)


class Top:
    """A blob inside `define`: the result of a layer, to pass to other layers. `version` counts in-place changes."""

    __slots__ = ("layer", "name", "version", "writer")

    def __init__(self, name: str, layer: str, version: int, writer: Writer) -> None:
        self.name, self.layer, self.version, self.writer = name, layer, version, writer

    def __repr__(self) -> str:
        return f"<blob {self.name!r} of layer {self.layer!r}>"


class Writer:
    """Records the calls of one `define` as `layers`, the layers of a file."""

    def __init__(self) -> None:
        self.layers: list[dict[str, Any]] = []
        self._names: set[str] = set()
        self._versions: dict[str, tuple[int, str]] = {}  # blob -> (times it was overwritten, the last layer to do so)
        self._counts: dict[str, int] = {}

    def call(self, kind: str, blobs: tuple[Any, ...], fields: dict[str, Any]) -> Top | tuple[Top, ...]:
        """Record a layer of this type; return its top, or a tuple of its tops.

        Raises TypeError for wrong arguments, and ValueError for a blob that another layer has overwritten."""
        fields = {field: _plain(value) for field, value in fields.items()}
        name = fields.pop("name", None)
        if name is None:
            name = self._name(kind)
        self._names.add(name)
        bottoms = [self._bottom(kind, name, blob) for blob in blobs]
        in_place = fields.pop("in_place", False)
        given = fields.pop("top", None)
        if in_place and (given is not None or len(bottoms) != 1):
            raise TypeError(f"L.{kind} {name!r}: in_place=True needs one blob and no top")
        tops = bottoms if in_place else _tops(kind, name, given)
        layer: dict[str, Any] = {"name": name, "type": kind}
        layer |= {"bottom": bottoms} if bottoms else {}
        layer |= {"top": list(tops)} if tops else {}
        layer |= {field: fields.pop(field) for field in COMMON if field in fields}
        for field, value in fields.items():
            message = home(kind, field)
            if message is None:
                layer[field] = value
            else:
                layer.setdefault(message, {})[field] = value
        self.layers.append(layer)
        made = []
        for top in tops:
            version = self._versions.get(top, (0, ""))[0]
            if top in bottoms:
                version += 1
                self._versions[top] = (version, name)
            made.append(Top(top, name, version, self))
        return made[0] if len(made) == 1 else tuple(made)

    def _bottom(self, kind: str, name: str, blob: Any) -> str:
        if not isinstance(blob, Top):
            hint = "; it takes several blobs one by one, or *them" if isinstance(blob, list | tuple) else ""
            raise TypeError(f"L.{kind} {name!r} takes blobs, as layers return them; got {blob!r}{hint}")
        if blob.writer is not self:
            raise TypeError(f"L.{kind} {name!r}: {blob!r} belongs to another net")
        version, by = self._versions.get(blob.name, (0, ""))
        if version != blob.version:
            raise ValueError(f"L.{kind} {name!r}: {blob!r} is gone, layer {by!r} worked on it in place")
        return blob.name

    def _name(self, kind: str) -> str:
        prefix = PREFIX.get(kind, kind.lower())
        while True:
            self._counts[prefix] = count = self._counts.get(prefix, 0) + 1
            name = prefix if count == 1 and kind in ONCE else f"{prefix}{count}"
            if name not in self._names:
                return name


class Layers:
    """`L`: each layer type as a function of blobs and fields."""

    def __getattr__(self, kind: str) -> Callable[..., Any]:
        if kind not in LAYERS:
            raise AttributeError(no_type(kind, LAYERS))

        def layer(*blobs: Any, **fields: Any) -> Any:
            writer = _writing.get()
            if writer is None:
                raise RuntimeError(f"L.{kind} was called outside `define`: a net is a class with that method")
            return writer.call(kind, blobs, fields)

        layer.__name__ = layer.__qualname__ = kind
        layer.__doc__ = LAYERS[kind].__doc__
        return layer

    def __dir__(self) -> list[str]:
        return sorted(LAYERS)

    def __repr__(self) -> str:
        return f"<L, {len(LAYERS)} layer types, as in L.Convolution(x, num_output=9, kernel_size=3); dir(L) lists them>"


L = Layers()


def layers_of(define: Callable[[], Any]) -> list[dict[str, Any]]:
    """Call `define` and return the layers that it records, as plain values."""
    writer = Writer()
    token = _writing.set(writer)
    try:
        define()
    finally:
        _writing.reset(token)
    return writer.layers


def _plain(value: Any) -> Any:
    """The value with Python's numbers in place of NumPy's, which the strict schema would refuse."""
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    return value.item() if isinstance(value, np.generic) else value


def _tops(kind: str, name: str, value: Any) -> list[str]:
    if value is not None:
        return [value] if isinstance(value, str) else list(value)
    return list(TOPS.get(kind, (name,)))


def home(kind: str, field: str) -> str | None:
    """The name of the message that a field belongs to; None: the field belongs to the layer itself, or is a message.

    An unknown field goes to the type's own message, whose check will refuse it."""
    layer = LAYERS[kind]
    takes = [f for f in (layer.field_name, *layer.also) if f]
    if field in takes or field.endswith("_param"):
        return None
    for name in takes:
        if present(message_of(layer, name), field):
            return name
    return takes[0] if takes else None
