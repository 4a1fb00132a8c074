"""A node of an ONNX graph, and the Reader to which operators (`ops/`) add layers for it."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from minidnn.layers import LAYERS
from minidnn.layers.base import Shape, ShapeError, text
from minidnn.onnx.package import onnx
from minidnn.schema import Document, InvalidFile, check_net

# What Python and NumPy raise where shapes, types or attributes of a node are not as ONNX says that they are.
UNFIT = (ValueError, IndexError, KeyError, TypeError, AttributeError, ZeroDivisionError, OverflowError)
Weights = dict[str, np.ndarray]  # "<layer>/<blob>" -> float32, in Caffe's shapes


class Refused(Exception):
    """A node that no layer computes; `reading` adds which one."""


class Node:
    """A node with its attributes as Python values; `name` names the layers that it becomes."""

    def __init__(self, proto: Any, version: int, name: str) -> None:
        helper = onnx().helper
        self.proto, self.version, self.name = proto, version, name
        self.type: str = proto.op_type
        self.inputs: list[str] = list(proto.input)
        self.outputs: list[str] = list(proto.output)
        result = {a.name: helper.get_attribute_value(a) for a in proto.attribute}
        self.attributes = {k: v.decode() if isinstance(v, bytes) else v for k, v in result.items()}

    def get(self, name: str, default: Any = None) -> Any:
        value = self.attributes.get(name, default)
        return list(value) if isinstance(value, Sequence) and not isinstance(value, str) else value

    def input(self, i: int) -> str:
        """The i-th input's name; "" if it is left out."""
        return self.inputs[i] if i < len(self.inputs) else ""


Handler = Callable[["Reader", Node], None]


class Reader:
    """A graph on its way to a net. Operators call `blob`, `constant`, `shape` and `layer`.

    values: numbers of inputs that are known although they are inputs, as when one node is run alone
    """

    def __init__(self, batch: int | None, values: Mapping[str, np.ndarray]) -> None:
        self.batch = batch
        self.constants: dict[str, np.ndarray] = {}
        self.values = dict(values)
        self.blobs: dict[str, str] = {}  # value -> blob
        self.shapes: dict[str, Shape] = {}  # of blobs
        self.inputs: dict[str, Shape] = {}  # value -> shape, of inputs that a layer may read
        self.whole: set[str] = set()  # inputs of whole numbers: only an Embed reads them
        self.layers: list[dict[str, Any]] = []
        self.weights: Weights = {}
        self.heads = 0  # Input layers, which come first
        self.names: dict[str, int] = {}  # of layers and blobs -> the last number behind it

    # ---- what operators ask

    def constant(self, name: str, what: str) -> np.ndarray:
        """The numbers of a value. Raises Refused if they are known only when the net runs."""
        result = self.known(name)
        if result is None:
            raise Refused(f"its {what}, {name!r}, is computed as the net runs; it must be a constant")
        return result

    def known(self, name: str) -> np.ndarray | None:
        """The numbers of a value; None if they are not known, or if there is no value."""
        return self.constants.get(name, self.values.get(name))

    def is_blob(self, name: str) -> bool:
        return name in self.blobs or (name in self.inputs and name not in self.constants)

    def blob(self, name: str, whole: bool = False) -> str:
        """The blob that holds a value. Raises Refused if it is a constant, or if it holds whole numbers and not
        `whole`."""
        if name in self.whole and not whole:
            raise Refused(f"its input {name!r} holds whole numbers, and minidnn computes in float32")
        if name in self.blobs:
            return self.blobs[name]
        if name not in self.inputs:
            raise Refused(f"its input {name!r} is a constant, which no layer reads")
        blob = self.unused(name)
        spec = {"name": blob, "type": "Input", "top": blob, "input_param": {"shape": {"dim": list(self.inputs[name])}}}
        self.layers.insert(self.heads, spec)
        self.heads += 1
        self.blobs[name], self.shapes[blob] = blob, self.inputs[name]
        return blob

    def shape(self, name: str) -> Shape:
        """The shape of a value."""
        known = self.constants.get(name)
        return tuple(known.shape) if known is not None else self.shapes[self.blob(name)]

    def unused(self, name: str) -> str:
        """A name for a layer or blob that no other has, from a name in the file."""
        clean = re.sub(r"[^A-Za-z0-9_.-]+", "_", name).strip("_.") or "value"
        result, k = clean, self.names.get(clean, 1)
        while result in self.names:
            k += 1
            result = f"{clean}_{k}"
        self.names[clean] = k
        self.names.setdefault(result, 1)
        return result

    def layer(
        self,
        kind: str,
        bottoms: Sequence[str],
        params: Sequence[np.ndarray] = (),
        tops: int = 1,
        name: str = "",
        **fields: Any,
    ) -> list[str]:
        """Add a layer; its tops, blobs of new names. `fields` are messages and fields of the layer.

        params: its blobs' values, in Caffe's order and shapes. Raises Refused if minidnn has no such layer, or if the
        layer cannot take these bottoms."""
        if kind not in LAYERS:
            raise Refused(f"there is no layer {kind} for it")
        made = self.unused(name or kind.lower())
        top = [made] if tops == 1 else [self.unused(f"{made}_{i}") for i in range(tops)]
        spec = {"name": made, "type": kind, "bottom": list(bottoms), "top": top, **fields}
        document = Document({"layer": [_source(blob, self.shapes[blob]) for blob in dict.fromkeys(bottoms)] + [spec]})
        try:
            checked = check_net(document, LAYERS).parameter.layer[-1]
            here = LAYERS[kind](checked, getattr(checked, LAYERS[kind].field_name or "", None), "TEST")
            shapes = here.shapes([self.shapes[b] for b in bottoms])
            blobs = here.parameters([self.shapes[b] for b in bottoms])
        except (InvalidFile, ShapeError) as error:
            raise Refused(str(error)) from error
        if len(params) != len(blobs):
            raise TypeError(f"{kind} has {len(blobs)} parameters, got {len(params)}")
        for p, value in zip(blobs, params, strict=True):
            wanted = p.blob_shape or p.shape
            if value.size != math.prod(wanted):
                raise Refused(f"its {p.name} has shape {text(value.shape)}, where {text(wanted)} is needed")
            self.weights[f"{made}/{p.name}"] = np.ascontiguousarray(value, np.float32).reshape(wanted)
        self.shapes.update(zip(top, map(tuple, shapes), strict=True))
        self.layers.append(spec)
        return top

    def gives(self, node: Node, blobs: Sequence[str]) -> None:
        """The node's outputs are these blobs."""
        self.blobs.update(zip(node.outputs, blobs, strict=False))


def _source(blob: str, shape: Shape) -> dict[str, Any]:
    return {"name": f"of {blob}", "type": "Input", "top": blob, "input_param": {"shape": {"dim": list(shape)}}}
