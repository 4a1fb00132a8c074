"""What a net without a loss lacks to be trained: labels, or targets, and a loss that fits its last output.

its last layer   the loss
Softmax          SoftmaxWithLoss, which has a softmax of its own, on what the Softmax reads
Sigmoid          SigmoidCrossEntropyLoss, likewise
any other        SoftmaxWithLoss; EuclideanLoss on one number a sample
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from minidnn.errors import InvalidInput
from minidnn.layers.base import Shape
from minidnn.nets.graph import Blob, Graph, Node
from minidnn.program import Role
from minidnn.schema import NetParameter, prototext
from minidnn.schema.files import PROTOTEXT
from minidnn.spoken import either

OWN = {"Softmax": "SoftmaxWithLoss", "Sigmoid": "SigmoidCrossEntropyLoss"}  # losses that do these layers' work


def has_loss(graph: Graph) -> bool:
    """Whether a top of a layer has a weight in the objective."""
    return any(node.layer.loss_weight(i) for node in graph.layers for i in range(len(node.tops)))


def lacking(graph: Graph) -> tuple[list[dict[str, Any]], Node | None]:
    """(the layers, as a file's values, that would give the graph a loss; the layer in whose place they stand).

    The latter is None unless the last layer works in place, so that the loss could not read what it reads. Raises
    InvalidInput if no output can have a loss."""
    node, output = _last(graph)
    kind, axis, scores = _kind(node, output)
    current = {blob.name: blob for blob in graph.blobs}
    taken = current.keys() | {n.name for n in graph.layers}
    labels = next((b for b in graph.outputs if b.tensor.role is Role.LABEL), None)
    shape = list(scores.tensor.shape)
    if kind == "SoftmaxWithLoss":
        shape[axis] = 1
        shape = shape[:1] if len(shape) == 2 else shape
    else:
        labels = None
    name = labels.name if labels else _unused("label" if kind == "SoftmaxWithLoss" else "target", taken)
    source = {"name": name, "type": "Input", "top": [name], "input_param": {"shape": [{"dim": shape}]}}
    top = _unused("loss", taken)
    loss: dict[str, Any] = {"name": top, "type": kind, "bottom": [scores.name, name], "top": [top]}
    loss |= {"softmax_param": {"axis": axis}} if axis != 1 else {}
    return [loss] if labels else [source, loss], None if current[scores.name] is scores else node


def _kind(node: Node, output: Blob) -> tuple[str, int, Blob]:
    """(the loss that fits the last layer, the axis of the classes, the blob that the loss reads)."""
    shape = output.tensor.shape
    if (kind := OWN.get(node.layer.type)) is not None:
        axis = node.layer.spec.softmax_param.axis if node.layer.type == "Softmax" else 1
        return kind, axis % len(shape), node.bottoms[0]
    axis = classes_axis(shape)
    return "SoftmaxWithLoss" if shape[axis] > 1 else "EuclideanLoss", axis, output


def classes_axis(shape: Shape) -> int:
    """The axis of the classes of scores: of images 1, else the last."""
    return 1 if len(shape) == 4 else len(shape) - 1


def remedy(graph: Graph) -> str:
    """How to give the graph a loss, in a clause: the lines to add to its file, or the option that does."""
    try:
        layers, replaced = lacking(graph)
    except InvalidInput as error:
        return str(error)
    file = graph.place.split(":")[0]
    adds = either("--loss adds one", "net.with_loss() adds one")
    suffix = Path(file).suffix
    if not (lines := _lines(suffix, layers)):
        return adds
    new = f"NEW{suffix}" if graph.old else file
    first = f"bring its `layers` into the present form (`minidnn convert {file} {new}`), and " if graph.old else ""
    where = f"put in place of layer {replaced.name!r} of" if replaced else "append to"
    return f"{adds}; to have it in the file, {first}{where} {new}: {lines}"


def _lines(suffix: str, layers: Sequence[dict[str, Any]]) -> str:
    """The layers as a file of this suffix has them, on one line; empty for other forms."""
    if suffix in PROTOTEXT:
        text = prototext.dump(NetParameter.model_validate({"layer": layers}))
        return " ".join(line.strip() for line in text.splitlines())
    return " ".join(f"- {json.dumps(layer)}" for layer in layers) if suffix in (".yaml", ".yml") else ""


def _last(graph: Graph) -> tuple[Node, Blob]:
    """The last output that is computed, and its layer."""
    for node in reversed(graph.layers):
        for blob in reversed(node.tops):
            if (
                node.bottoms
                and not blob.consumers
                and blob.tensor.role is Role.ACTIVATION
                and len(blob.tensor.shape) > 1
            ):
                return node, blob
    raise InvalidInput(f"{graph.place}: no layer of net {graph.name} gives an output that a loss could compare")


def _unused(name: str, known: set[str]) -> str:
    return next(one for i in range(len(known) + 1) if (one := f"{name}{i or ''}") not in known)
