"""The ends of a graph: its inputs, whose free lengths the caller gives, and the loss behind its output."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from minidnn.errors import near
from minidnn.layers.base import Shape
from minidnn.nets.loss import classes_axis
from minidnn.onnx.file import InvalidModel
from minidnn.onnx.node import Reader, Refused
from minidnn.onnx.origins import Trained
from minidnn.onnx.package import onnx
from minidnn.spoken import either

Shapes = Mapping[str, Sequence[int]]


@dataclass(frozen=True)
class Given:
    """What the caller says of a model: see `read` (reading.py).

    values: the numbers of some inputs
    whole:  whether the model is known to have all that the module has
    beside: the numbers of initializers whose data lie in other files
    """

    batch: int | None = None
    values: Mapping[str, np.ndarray] = field(default_factory=dict)
    shapes: Shapes = field(default_factory=dict)
    lengths: Mapping[str, int] = field(default_factory=dict)
    trained: Trained = None
    whole: bool = False
    beside: Mapping[str, np.ndarray] = field(default_factory=dict)


def inputs(reader: Reader, graph: Any, source: str, given: Given, lost: set[str]) -> list[str]:
    """Enter the graph's inputs with their shapes. Returns what is wrong with them, and adds those to `lost`."""
    o, problems, free = onnx(), [], set[str]()
    known = {*reader.constants, *reader.parameters, *lost}
    values = [v for v in graph.input if v.name not in known]
    for value in values:
        free |= {d.dim_param for d in value.type.tensor_type.shape.dim if d.dim_param}
        try:
            reader.inputs[value.name] = _shape(value, given)
            if value.type.tensor_type.elem_type in (o.TensorProto.INT32, o.TensorProto.INT64):
                reader.whole.add(value.name)
        except Refused as reason:
            problems.append(f"{source}: input {value.name!r}: {reason}")
            lost.add(value.name)
    names = [v.name for v in values]
    problems += [f"{source}: shapes: it has no input {n!r}{near(n, names)}" for n in given.shapes if n not in names]
    problems += [f"{source}: lengths: it has no free axis {n!r}{near(n, free)}" for n in given.lengths if n not in free]
    return problems


def _shape(value: Any, given: Given) -> Shape:
    """The shape of an input. Raises Refused if a length is missing, or is another than the file's."""
    if not value.type.HasField("tensor_type"):
        raise Refused("it is not a tensor")
    dims = list(value.type.tensor_type.shape.dim)
    wanted = given.shapes.get(value.name)
    if wanted is not None and len(wanted) != len(dims):
        raise Refused(f"it has {len(dims)} axes, and shapes gives {tuple(wanted)}")
    return tuple(_length(i, d, given, None if wanted is None else int(wanted[i])) for i, d in enumerate(dims))


def _length(i: int, dim: Any, given: Given, wanted: int | None) -> int:
    fixed = dim.dim_value if dim.HasField("dim_value") and dim.dim_value > 0 else None
    if wanted is not None:
        if wanted < 1 or (fixed not in (None, wanted) and i):
            raise Refused(f"its axis {i} has the length {fixed}, and shapes gives {wanted}")
        return wanted
    if fixed is not None and not (i == 0 and given.batch):
        return fixed
    if dim.dim_param in given.lengths and not (i == 0 and given.batch):
        return int(given.lengths[dim.dim_param])
    if i == 0:
        return given.batch or 1
    by_name = (
        f"lengths={{{dim.dim_param!r}: N}}, or shapes={{NAME: (...)}}" if dim.dim_param else "shapes={NAME: (...)}"
    )
    raise Refused(
        f"its axis {i} ({dim.dim_param or 'unnamed'}) has no length; give one by "
        f"{either('--shape NAME=...', by_name)}, or export it with a fixed one"
    )


def silence(reader: Reader) -> None:
    """Let a Silence read what nothing reads, and what is no output of the graph: it shall be none of the net's."""
    wanted = {blob for layer in reader.layers for blob in layer.get("bottom", ())}
    wanted |= {reader.blobs[name] for name in reader.ends if name in reader.blobs}
    tops = [top for layer in reader.layers if layer["type"] != "Input" for top in layer["top"]]
    if unread := [top for top in tops if top not in wanted]:
        reader.layer("Silence", unread, tops=0, name="unread")


def with_loss(reader: Reader, output: str, source: str) -> None:
    """Append labels and a SoftmaxWithLoss to an output: images have their classes along axis 1, all else along the last
    axis."""
    if output not in reader.blobs:
        raise InvalidModel(f"{source}: its first output {output!r} is a constant")
    scores = reader.blobs[output]
    made = [layer for layer in reader.layers if scores in layer.get("top", ())]
    if made and made[-1]["type"] == "Softmax":  # the loss has a softmax of its own
        reader.layers.remove(made[-1])
        (scores,) = made[-1]["bottom"]
    shape = reader.shapes[scores]
    if len(shape) < 2:
        raise InvalidModel(f"{source}: its output {output!r} has shape {shape}: a loss needs scores (N, classes)")
    axis = classes_axis(shape)
    if shape[axis] == 1:
        raise InvalidModel(
            f"{source}: its output {output!r} has shape {shape}: a softmax of one number is 1 whatever it is; "
            "read it with loss=False, and give it a loss of its own (net.with_loss() takes a EuclideanLoss)"
        )
    label, name = reader.unused("label"), reader.unused("loss")
    dims = [n for i, n in enumerate(shape) if i != axis]
    spec = {"name": label, "type": "Input", "top": label, "input_param": {"shape": {"dim": dims}}}
    reader.layers.insert(reader.heads, spec)
    loss: dict[str, Any] = {"name": name, "type": "SoftmaxWithLoss", "bottom": [scores, label], "top": name}
    reader.layers.append(loss | ({"softmax_param": {"axis": axis}} if axis != 1 else {}))
