"""LSTM and GRU."""

from __future__ import annotations

import math

import numpy as np

from minidnn.layers.recurrent import Recurrent
from minidnn.nets.graph import Node
from minidnn.onnx.gates import ordered
from minidnn.onnx.weight import constant
from minidnn.onnx.writing.writer import Export, NotExported, Writer, ints


def recurrent(w: Writer, node: Node) -> None:
    """One node, with an axis of directions that a Squeeze takes away."""
    layer, (y, *states) = node.layer, w.tops(node)
    assert isinstance(layer, Recurrent)
    given = dict(zip(layer.names(len(node.bottoms)), w.bottoms(node), strict=True))
    if "cont" in given:
        raise NotExported(
            f"{node.place}: layer {node.name!r}: ONNX's {layer.type} has neither cont nor x_static: give it x only"
        )
    x, shape = given.pop("x"), node.bottoms[0].tensor.shape
    if len(shape) != 3:
        flat = f"{y}.rows"
        w.add("Reshape", node, [x, ints(w, node, "rows", [0, 0, math.prod(shape[2:])])], [flat])
        x = flat

    def gates(name: str) -> np.ndarray:
        return ordered(layer.type, constant(w.of(node, name))).numbers

    hidden = gates("b_hidden") if any(p.name == "b_hidden" for p in node.parameters) else np.zeros_like(w.of(node, "b"))
    both = np.concatenate([gates("b"), hidden])
    weights = [w.initializer(node, name, gates(name)[None]) for name in ("w", "w_hidden")]
    more = {"linear_before_reset": 1} if layer.type == "GRU" else {}
    steps, width = f"{y}.steps", layer.param.num_output
    inputs = [x, *weights, w.initializer(node, "b", both[None]), *(["", *given.values()] if given else [])]
    w.add(layer.type, node, inputs, [steps, *states], hidden_size=width, **more)
    w.add("Squeeze", node, [steps, ints(w, node, "directions", [1])], [y])


EXPORTED: dict[str, Export] = {"LSTM": recurrent, "GRU": recurrent}
