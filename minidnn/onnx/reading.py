"""From an ONNX model to a Net and its weights.

Each node becomes one or more layers (`ops/`). Values that are known when the file is read are constants: initializers,
and whatever nodes compute from these alone (`constants`). All shapes are static: a free batch
takes the number that the caller gives. Shapes are those of minidnn's layers, so each node is judged where it stands.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from minidnn.errors import few
from minidnn.layers.base import Shape
from minidnn.nets.net import Net
from minidnn.onnx.constants import FOLDED, Budget, check_places, fold
from minidnn.onnx.file import InvalidModel, load
from minidnn.onnx.node import Node, Reader, Refused, Weights
from minidnn.onnx.ops import OPS, add_layers
from minidnn.onnx.package import onnx
from minidnn.onnx.tensors import array
from minidnn.schema import Document

NONE: Mapping[str, np.ndarray] = MappingProxyType({})


def read(path: str | Path, batch: int | None = None, loss: bool = False) -> tuple[Net, Weights]:
    """The net of an ONNX file and its weights.

    batch: the size of a free first axis of inputs; default: 1
    loss:  append labels and a SoftmaxWithLoss to the last output, so that the net can be trained

    Raises InvalidModel, which names every node that no layer computes, and OSError if the file cannot be read."""
    model, beside = load(path)
    return from_model(model, str(path), batch, {}, loss, beside)


def from_model(
    model: Any,
    source: str,
    batch: int | None,
    values: Mapping[str, np.ndarray],
    loss: bool = False,
    beside: Mapping[str, np.ndarray] = NONE,
) -> tuple[Net, Weights]:
    """The net of a model in memory; `source` is its name in errors, `values` the numbers of some inputs, `beside` those
    of initializers whose data lie in other files."""
    result = walk(model, source, batch, values, beside)
    outputs = [o.name for o in model.graph.output]
    name = Path(source).stem or model.graph.name
    if loss:
        _with_loss(result, outputs[0], source)
    net = Net.from_document(Document({"name": name, "layer": result.layers}, what=f"{source}: net {name}"))
    return net, result.weights


def walk(
    model: Any,
    source: str,
    batch: int | None,
    values: Mapping[str, np.ndarray],
    beside: Mapping[str, np.ndarray] = NONE,
) -> Reader:
    """The Reader after all nodes. Raises InvalidModel with all nodes that no layer computes."""
    graph, o = model.graph, onnx()
    reader, budget = Reader(batch, values), Budget(model.ByteSize() + sum(x.nbytes for x in beside.values()))
    version = max((i.version for i in model.opset_import if i.domain in ("", "ai.onnx")), default=1)
    problems: list[str] = []
    lost: set[str] = set()  # values that were refused, or whose nodes were: what reads them is not blamed
    for tensor in graph.initializer:
        try:
            known = beside.get(tensor.name)
            reader.constants[tensor.name] = array(tensor) if known is None else known
        except Refused as reason:
            problems.append(f"{source}: initializer {tensor.name!r}: {reason}")
            lost.add(tensor.name)
    for value in graph.input:
        if value.name not in reader.constants:
            try:
                reader.inputs[value.name] = _shape(value, batch)
                if value.type.tensor_type.elem_type in (o.TensorProto.INT32, o.TensorProto.INT64):
                    reader.whole.add(value.name)
            except Refused as reason:
                problems.append(f"{source}: input {value.name!r}: {reason}")
                lost.add(value.name)
    for k, proto in enumerate(graph.node):
        node = Node(proto, version, _name(proto, reader))
        if lost.intersection(node.inputs):
            lost.update(node.outputs)
            continue
        try:
            _one(reader, node, budget)
        except Refused as reason:
            label = f"{node.type} {proto.name!r}" if proto.name else f"node {k}, {node.type}"
            problems.append(f"{source}: {label}: {reason}")
            lost.update(node.outputs)
    if problems:
        raise InvalidModel(*problems)
    return reader


def _one(reader: Reader, node: Node, budget: Budget) -> None:
    if node.proto.domain not in ("", "ai.onnx"):
        raise Refused(f"operators of the domain {node.proto.domain!r} are not ONNX's own")
    if node.type == "Shape" and reader.is_blob(node.inputs[0]):
        shape = reader.shape(node.inputs[0])[node.get("start", 0) : node.get("end")]
        reader.constants[node.outputs[0]] = np.array(shape, np.int64)
    elif all(name in reader.constants for name in node.inputs if name) and (
        node.type in FOLDED or node.type not in OPS
    ):
        _fold(reader, node, budget)
    elif node.type not in OPS:
        raise Refused(f"minidnn has no layers for it; it has for {few(sorted(OPS), 60)}")
    else:
        check_places(node, reader.constants)
        add_layers(reader, node)


def _fold(reader: Reader, node: Node, budget: Budget) -> None:
    """Compute a node of constants."""
    result = fold(node, [reader.constants[n] if n else None for n in node.inputs], budget)
    reader.constants.update((n, value) for n, value in zip(node.outputs, result, strict=False) if n)


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
    reader.layers.insert(reader.heads, spec)
    name = reader.unused("loss")
    reader.layers.append({"name": name, "type": "SoftmaxWithLoss", "bottom": [scores, label], "top": name})
