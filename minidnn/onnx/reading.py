"""From an ONNX model to a Net and its weights.

Each node becomes one or more layers (`ops/`). Values that are known when the file is read are constants: initializers,
and whatever nodes compute from these alone, which ONNX's own evaluator works out. All shapes are static: a free batch
takes the number that the caller gives. Shapes are those of minidnn's layers, so each node is judged where it stands.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from minidnn.errors import BadInput, few
from minidnn.layers import LAYERS
from minidnn.layers.base import Shape, ShapeError, text
from minidnn.nets.net import Net
from minidnn.onnx.package import onnx
from minidnn.schema import Document, InvalidFile, check_net

Weights = dict[str, np.ndarray]  # "<layer>/<blob>" -> float32, in Caffe's shapes


class InvalidModel(BadInput, ValueError):
    """A file that is no ONNX model, or that minidnn has no layers for; the message names the node and the reason."""

    several = True


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
        found = {a.name: helper.get_attribute_value(a) for a in proto.attribute}
        self.attributes = {k: v.decode() if isinstance(v, bytes) else v for k, v in found.items()}

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
        self.names: set[str] = set()

    # ---- what operators ask

    def constant(self, name: str, what: str) -> np.ndarray:
        """The numbers of a value. Raises Refused if they are known only when the net runs."""
        found = self.known(name)
        if found is None:
            raise Refused(f"its {what}, {name!r}, is computed as the net runs; it must be a constant")
        return found

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
        self.layers.insert(sum(layer["type"] == "Input" for layer in self.layers), spec)
        self.blobs[name], self.shapes[blob] = blob, self.inputs[name]
        return blob

    def shape(self, name: str) -> Shape:
        """The shape of a value."""
        known = self.constants.get(name)
        return tuple(known.shape) if known is not None else self.shapes[self.blob(name)]

    def unused(self, name: str) -> str:
        """A name for a layer or blob that no other has, from a name in the file."""
        clean = re.sub(r"[^A-Za-z0-9_.-]+", "_", name).strip("_.") or "value"
        found, k = clean, 1
        while found in self.names:
            k += 1
            found = f"{clean}_{k}"
        self.names.add(found)
        return found

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


def read(path: str | Path, batch: int | None = None, loss: bool = False) -> tuple[Net, Weights]:
    """The net of an ONNX file and its weights.

    batch: the size of a free first axis of inputs; default: 1
    loss:  append labels and a SoftmaxWithLoss to the last output, so that the net can be trained

    Raises InvalidModel, which names every node that no layer computes, and OSError if the file cannot be read."""
    content = Path(path).read_bytes()
    try:
        model = onnx().load_model_from_string(content)
        onnx().checker.check_model(model)
    except Exception as error:  # of protobuf, and of the checker: each says what is wrong with the file
        if isinstance(error, MemoryError | KeyboardInterrupt):
            raise
        reason = (str(error) or type(error).__name__).strip().splitlines()[0]
        raise InvalidModel(f"{path}: no valid ONNX model: {reason}") from error
    return from_model(model, str(path), batch, {}, loss)


def from_model(
    model: Any, source: str, batch: int | None, values: Mapping[str, np.ndarray], loss: bool = False
) -> tuple[Net, Weights]:
    """The net of a model in memory; `source` is its name in errors, `values` the numbers of some inputs."""
    found = walk(model, source, batch, values)
    outputs = [o.name for o in model.graph.output]
    name = Path(source).stem or model.graph.name
    if loss:
        _with_loss(found, outputs[0], source)
    for blob in (b for layer in found.layers if layer["type"] == "Input" for b in [layer["top"]]):
        found.names.add(blob)
    net = Net.from_document(Document({"name": name, "layer": found.layers}, what=f"{source}: net {name}"))
    return net, found.weights


def walk(model: Any, source: str, batch: int | None, values: Mapping[str, np.ndarray]) -> Reader:
    """The Reader after all nodes. Raises InvalidModel with all nodes that no layer computes."""
    from minidnn.onnx.ops import OPS

    graph, o = model.graph, onnx()
    reader = Reader(batch, values)
    version = max((i.version for i in model.opset_import if i.domain in ("", "ai.onnx")), default=1)
    reader.constants.update((t.name, o.numpy_helper.to_array(t)) for t in graph.initializer)
    problems: list[str] = []
    for value in graph.input:
        if value.name not in reader.constants:
            try:
                reader.inputs[value.name] = _shape(value, batch)
                if value.type.tensor_type.elem_type in (o.TensorProto.INT32, o.TensorProto.INT64):
                    reader.whole.add(value.name)
            except Refused as reason:
                problems.append(f"{source}: input {value.name!r}: {reason}")
    lost: set[str] = set()  # values of nodes that were refused: what reads them is not blamed
    for k, proto in enumerate(graph.node):
        node = Node(proto, version, _name(proto, reader))
        if lost.intersection(node.inputs):
            lost.update(node.outputs)
            continue
        try:
            _one(reader, node, OPS)
        except Refused as reason:
            label = f"{node.type} {proto.name!r}" if proto.name else f"node {k}, {node.type}"
            problems.append(f"{source}: {label}: {reason}")
            lost.update(node.outputs)
    if problems:
        raise InvalidModel("\n".join(problems))
    return reader


def _one(reader: Reader, node: Node, ops: Mapping[str, Handler]) -> None:
    if node.proto.domain not in ("", "ai.onnx"):
        raise Refused(f"operators of the domain {node.proto.domain!r} are not ONNX's own")
    if node.type == "Shape" and reader.is_blob(node.inputs[0]):
        shape = reader.shape(node.inputs[0])[node.get("start", 0) : node.get("end")]
        reader.constants[node.outputs[0]] = np.array(shape, np.int64)
    elif all(name in reader.constants for name in node.inputs if name):
        _fold(reader, node)
    elif node.type not in ops:
        raise Refused(f"minidnn has no layers for it; it has for {few(sorted(ops), 60)}")
    else:
        ops[node.type](reader, node)


def _fold(reader: Reader, node: Node) -> None:
    """Compute a node of constants."""
    from onnx.reference import ReferenceEvaluator

    o = onnx()
    inputs = [o.helper.make_tensor_value_info(n, 0, None) for n in dict.fromkeys(node.inputs) if n]
    outputs = [o.helper.make_tensor_value_info(n, 0, None) for n in node.outputs if n]
    graph = o.helper.make_graph([node.proto], "constant", inputs, outputs)
    model = o.helper.make_model(graph, opset_imports=[o.helper.make_opsetid("", node.version)])
    found = ReferenceEvaluator(model).run(None, {n: reader.constants[n] for n in node.inputs if n})
    reader.constants.update(zip([n for n in node.outputs if n], map(np.asarray, found), strict=True))


def _shape(value: Any, batch: int | None) -> Shape:
    """The shape of an input. Raises Refused if it is not static, apart from the batch."""
    tensor = value.type.tensor_type
    if not value.type.HasField("tensor_type"):
        raise Refused("it is no tensor")
    dims = []
    for i, d in enumerate(tensor.shape.dim):
        if d.HasField("dim_value") and d.dim_value > 0 and not (i == 0 and batch):
            dims.append(d.dim_value)
        elif i == 0:
            dims.append(batch or 1)
        else:
            raise Refused(f"its axis {i} ({d.dim_param or 'unnamed'}) has no length; export it with a fixed one")
    return tuple(dims)


def _name(proto: Any, reader: Reader) -> str:
    """The name of the node's layers: that of its weight without ".weight", or of its output."""
    weights = [n for n in proto.input if n in reader.constants and n.endswith(".weight")]
    if weights:
        return weights[0].removesuffix(".weight")
    return next((n for n in proto.output if n), proto.op_type).removesuffix(".y")


def _with_loss(reader: Reader, output: str, source: str) -> None:
    if output not in reader.blobs:
        raise InvalidModel(f"{source}: its first output {output!r} is a constant")
    scores = reader.blobs[output]
    made = [layer for layer in reader.layers if scores in layer.get("top", ())]
    if made and made[-1]["type"] == "Softmax":  # the loss has a softmax of its own
        reader.layers.remove(made[-1])
        (scores,) = made[-1]["bottom"]
    n = reader.shapes[scores][0]
    label = reader.unused("label")
    spec = {"name": label, "type": "Input", "top": label, "input_param": {"shape": {"dim": [n]}}}
    reader.layers.insert(sum(layer["type"] == "Input" for layer in reader.layers), spec)
    name = reader.unused("loss")
    reader.layers.append({"name": name, "type": "SoftmaxWithLoss", "bottom": [scores, label], "top": name})
