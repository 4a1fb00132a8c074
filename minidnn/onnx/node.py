"""A node of an ONNX graph, and the Reader to which operators (`ops/`) add layers for it."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from minidnn.layers import LAYERS
from minidnn.layers.base import Parameter, Shape, ShapeError, text
from minidnn.onnx.package import onnx
from minidnn.onnx.weight import Rows, Weight, constant
from minidnn.schema import Document, InvalidFile, check_net

# What Python and NumPy raise where shapes, types or attributes of a node are not as ONNX says that they are.
UNFIT = (ValueError, IndexError, KeyError, TypeError, AttributeError, ZeroDivisionError, OverflowError)
Weights = dict[str, np.ndarray]  # "<layer>/<blob>" -> float32, in Caffe's shapes


# What changes no value that minidnn computes: memory in version 1, random numbers, the order of indices, 8-bit formats.
UNUSED = ("consumed_inputs", "seed", "storage_order", "saturate", "round_mode")


class Refused(Exception):
    """A node that no layer computes; `reading` adds which one."""


class Node:
    """A node with its attributes as Python values; `name` names the layers that it becomes."""

    def __init__(self, proto: Any, version: int, name: str = "") -> None:
        self.proto, self.version, self.name = proto, version, name
        self.type: str = proto.op_type
        self.inputs: list[str] = list(proto.input)
        self.outputs: list[str] = list(proto.output)
        self.attributes = {a.name: _value(a) for a in proto.attribute}
        self.asked: set[str] = set()

    def note(self, name: str) -> str:
        """What PyTorch's exporter notes of the node under this name; "" if it does not."""
        return next((p.value for p in self.proto.metadata_props if p.key == f"pkg.torch.onnx.{name}"), "")

    def get(self, name: str, default: Any = None) -> Any:
        self.asked.add(name)
        value = self.attributes.get(name, default)
        return list(value) if isinstance(value, Sequence) and not isinstance(value, str) else value

    @property
    def overlooked(self) -> list[str]:
        """The attributes that no operator's function has asked for, and that are not what they are by default."""
        rest = [k for k in self.attributes if k not in self.asked and k not in UNUSED]
        if not rest:
            return []
        from onnx import defs

        known = defs.get_schema(self.type, self.version).attributes
        plain = {k: _value(known[k].default_value) for k in rest if k in known and known[k].default_value.name}
        return [k for k in rest if k not in plain or plain[k] != self.attributes[k]]

    def input(self, i: int) -> str:
        """The i-th input's name; "" if it is left out."""
        return self.inputs[i] if i < len(self.inputs) else ""


def _value(attribute: Any) -> Any:
    value = onnx().helper.get_attribute_value(attribute)
    if isinstance(value, list):
        return [v.decode() if isinstance(v, bytes) else v for v in value]
    return value.decode() if isinstance(value, bytes) else value


Handler = Callable[["Reader", Node], None]


class Reader:
    """A graph on its way to a net. Operators call `blob`, `weight`, `constant`, `shape` and `layer`.

    A value is known when the file is read (a constant, or a parameter, which is trained), or it is a blob.

    values: numbers of inputs that are known although they are inputs, as when one node is run alone
    shared: parameters that layers share: each keeps the order that its elements have in the file
    apart:  parameters that layers read in several shapes: each is the blob of a Parameter layer
    """

    def __init__(
        self,
        batch: int | None,
        values: Mapping[str, np.ndarray],
        shared: Iterable[str] = (),
        apart: Iterable[str] = (),
    ) -> None:
        self.batch = batch
        self.constants: dict[str, np.ndarray] = {}
        self.parameters: dict[str, Weight] = {}  # value -> the parameter, as the value's readers get it
        self.values = dict(values)
        self.shared, self.apart, self.conflicts = frozenset(shared), frozenset(apart), set[str]()
        self.blobs: dict[str, str] = {}  # value -> blob
        self.shapes: dict[str, Shape] = {}  # of blobs
        self.pieces: dict[str, np.ndarray] = {}  # value -> which elements of parameters it has (pieces.py)
        self.elements: dict[str, tuple[int, Weight]] = {}  # parameter -> (the number of its first element, itself)
        self.sequences: dict[str, list[str]] = {}  # value -> the blobs of a sequence
        self.inputs: dict[str, Shape] = {}  # value -> shape, of inputs that a layer may read
        self.whole: set[str] = set()  # inputs of whole numbers: only an Embed reads them
        self.compared: dict[str, tuple[str, float]] = {}  # value -> (blob, number): whether blob > number
        self.ends: set[str] = set()  # outputs of the graph
        self.training = False  # whether some node of the file says that it is in training mode
        self.layers: list[dict[str, Any]] = []
        self.weights: Weights = {}
        self.heads = 0  # Input layers, which come first
        self.names: dict[str, int] = {}  # of layers and blobs -> the last number behind it
        self.bound: dict[str, Bound] = {}  # parameter -> where it is
        self.statistics: dict[str, tuple[str, str]] = {}  # value -> (layer, blob) of a BatchNorm
        self.frozen: dict[str, Shape] = {}  # constants that layers have
        self.notes: list[str] = []  # what else the caller should know

    # ---- what operators ask

    def constant(self, name: str, what: str) -> np.ndarray:
        """The numbers of a value. Raises Refused if they are known only when the net runs, or if they are trained."""
        result = self.known(name)
        if result is None and name in self.parameters:
            raise Refused(f"its {what} is the parameter {self.parameters[name].name!r}; it must be a constant")
        if result is None:
            raise Refused(f"its {what}, {name!r}, is computed as the net runs; it must be a constant")
        return result

    def known(self, name: str) -> np.ndarray | None:
        """The numbers of a value; None if they are not known, if they are trained, or if there is no value."""
        return self.constants.get(name, self.values.get(name))

    def weight(self, name: str) -> Weight | None:
        """The parameter or constant that a value is; None if a layer must read it from a blob."""
        if (known := self.known(name)) is not None:
            return constant(known, name)
        result = self.parameters.get(name)
        return None if result is None or result.name in self.apart else result

    def needed(self, name: str, what: str) -> Weight:
        """The same. Raises Refused for a value that must be read from a blob."""
        result = self.weight(name)
        if result is None and name in self.parameters:
            raise Refused(
                f"its {what} is the parameter {self.parameters[name].name!r}, which other nodes read in another shape; "
                "minidnn's layers share it only in one"
            )
        if result is None:
            raise Refused(
                f"its {what}, {name!r}, is computed as the net runs, and minidnn's layer for it has one of its own"
            )
        return result

    def refuse_training(self) -> None:
        """Raise Refused where the model is run on these inputs, as in TEST, and not read to be trained."""
        if self.values:
            raise Refused("it is in training mode, and models are run here as in phase TEST")

    def is_blob(self, name: str) -> bool:
        return name in self.blobs or (name in self.inputs and name not in self.constants)

    def blob(self, name: str, whole: bool = False) -> str:
        """The blob that holds a value; of a parameter or a constant, the top of a Parameter. Raises Refused if it holds
        whole numbers and not `whole`."""
        if name in self.whole and not whole:
            raise Refused(f"its input {name!r} holds whole numbers, and minidnn computes in float32")
        if name in self.blobs:
            return self.blobs[name]
        if name not in self.inputs:
            return self._held(name)
        blob = self.unused(name)
        spec = {"name": blob, "type": "Input", "top": blob, "input_param": {"shape": {"dim": list(self.inputs[name])}}}
        self.layers.insert(self.heads, spec)
        self.heads += 1
        self.blobs[name], self.shapes[blob] = blob, self.inputs[name]
        return blob

    def _held(self, name: str) -> str:
        """The top of a Parameter with a value that the file gives, in the value's shape."""
        value = self.parameters.get(name)
        if value is None:
            numbers = self.constants.get(name)
            if numbers is None or numbers.dtype.kind != "f" or not numbers.size:
                raise Refused(f"its input {name!r} is a constant, which no layer reads")
            value = constant(numbers, name)
        root = value.root()
        key = f"{root.name} as it is"
        if key not in self.blobs:
            dims = {"shape": {"dim": list(root.shape) or [1]}}
            (self.blobs[key],) = self.layer("Parameter", [], [root], name=root.name, parameter_param=dims)
        blob, label = self.blobs[key], f"{root.name}_view"
        for shape, order in value.turns:
            assert not isinstance(order, Rows), "the value of a cell is read by no other node"
            blob = self.in_shape(blob, shape, label)
            (blob,) = self.layer("Permute", [blob], name=label, permute_param={"order": list(order)})
        self.blobs[name] = self.in_shape(blob, value.shape or (1,), label)
        return self.blobs[name]

    def in_shape(self, blob: str, shape: Sequence[int], name: str) -> str:
        """The blob with its elements in another shape: itself, or a Reshape's top."""
        if self.shapes[blob] == tuple(shape):
            return blob
        dims = {"shape": {"dim": [int(n) for n in shape]}}
        return self.layer("Reshape", [blob], name=name, reshape_param=dims)[0]

    def shape(self, name: str) -> Shape:
        """The shape of a value."""
        if name in self.parameters:
            return self.parameters[name].shape
        known = self.constants.get(name)
        if known is not None:
            return tuple(known.shape)
        return self.inputs[name] if name in self.inputs else self.shapes[self.blob(name)]

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
        params: Sequence[Weight | np.ndarray] = (),
        tops: int = 1,
        name: str = "",
        **fields: Any,
    ) -> list[str]:
        """Add a layer; its tops, blobs of new names. `fields` are messages and fields of the layer.

        params: its blobs' values, in Caffe's order; what is no parameter is frozen. Raises Refused if minidnn has no
        such layer, or if the layer cannot take these bottoms."""
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
        self._bind(spec, blobs, [w if isinstance(w, Weight) else constant(w) for w in params])
        self.shapes.update(zip(top, map(tuple, shapes), strict=True))
        self.layers.append(spec)
        return top

    def _bind(self, spec: dict[str, Any], blobs: Sequence[Parameter], weights: Sequence[Weight]) -> None:
        """Give a layer's blobs their values, and say in its `param` which are frozen, and which it shares."""
        entries: list[dict[str, Any]] = [{} for _ in blobs]
        for p, weight, entry in zip(blobs, weights, entries, strict=True):
            wanted = p.blob_shape or p.shape
            if weight.size != math.prod(wanted):
                raise Refused(f"its {p.name} has shape {text(weight.shape)}, where {text(wanted)} is needed")
            here = Bound(spec, entry, p, weight)
            there = self.bound.setdefault(weight.name, here) if weight.name else here
            if not weight.trained and p.learnable:
                entry |= {"lr_mult": 0, "decay_mult": 0}
                self.frozen |= {weight.name: weight.shape} if weight.name else {}
            if there is not here and here.fits(there):
                for one in (there, here):
                    one.entry["name"] = weight.name
                continue
            if there is not here and weight.trained:
                self.conflicts.add(weight.name)
            numbers = weight.numbers if not p.learnable or weight.trained else finite(weight.numbers)
            self.weights[f"{spec['name']}/{p.name}"] = np.ascontiguousarray(numbers, np.float32).reshape(wanted)
        if any(p.learnable for p in blobs):
            spec["param"] = entries  # emptied of what says nothing at the end

    def gives(self, node: Node, blobs: Sequence[str]) -> None:
        """The node's outputs are these blobs."""
        self.blobs.update((name, blob) for name, blob in zip(node.outputs, blobs, strict=False) if name)

    def finished(self) -> list[dict[str, Any]]:
        """The layers, without what says nothing."""
        for spec in self.layers:
            entries = spec.pop("param", [])
            while entries and not entries[-1]:
                entries.pop()
            spec |= {"param": entries} if entries else {}
        return self.layers


@dataclass(frozen=True)
class Bound:
    """The first place of a parameter or constant: a blob of a layer, whose entry in `param` is `entry`."""

    spec: dict[str, Any]
    entry: dict[str, Any]
    blob: Parameter
    weight: Weight

    @property
    def key(self) -> str:
        """The blob's name, "<layer>/<blob>"."""
        return f"{self.spec['name']}/{self.blob.name}"

    def in_file(self, values: np.ndarray, shape: Shape) -> np.ndarray:
        """Values of the blob, as the parameter has them in the file, where it has this shape."""
        return replace(self.weight, numbers=values.reshape(self.weight.shape)).root().numbers.reshape(shape)

    def fits(self, other: Bound) -> bool:
        """Whether both can be one tensor, as nets/sharing.py demands."""
        p, q = self.blob, other.blob
        alike = (p.shape, p.blob_shape or p.shape, p.learnable, p.float32)
        same = alike == (q.shape, q.blob_shape or q.shape, q.learnable, q.float32)
        return same and self.weight.trained == other.weight.trained and self.weight.lies_as(other.weight)


def finite(numbers: np.ndarray) -> np.ndarray:
    """With the largest finite numbers in place of infinite ones, such as those of a mask: weights are finite."""
    most = np.finfo(np.float32).max
    return np.clip(numbers, -most, most) if numbers.dtype.kind == "f" else numbers


def _source(blob: str, shape: Shape) -> dict[str, Any]:
    return {"name": f"of {blob}", "type": "Input", "top": blob, "input_param": {"shape": {"dim": list(shape)}}}
