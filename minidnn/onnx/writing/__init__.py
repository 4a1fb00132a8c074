"""From a Net and its weights to an ONNX model of its phase TEST.

The model has the net's inputs with the batch left free, its weights as initializers "<layer>.weight" and
"<layer>.bias", and its scores as outputs. Losses, accuracies and labels are left out. A BatchNorm and the Scale behind
it become one BatchNormalization.

Files of this folder say which operators a layer becomes, by its type.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from minidnn.files.replace import replacing
from minidnn.nets.graph import Blob, Graph, Node
from minidnn.nets.net import Net
from minidnn.nets.scores import with_scores
from minidnn.onnx.package import onnx
from minidnn.onnx.writing import attention, elements, moves, normalizations, products, recurrent
from minidnn.onnx.writing.writer import Export, NotExported, Writer
from minidnn.program import Role

__all__ = ["NotExported", "model", "write"]

OPSETS = range(17, 24)  # 17 is of September 2022, and ONNX Runtime reads it since version 1.12; 23 of April 2025
BATCH = "batch"
EXPORTED: dict[str, Export] = {
    **products.EXPORTED,
    **normalizations.EXPORTED,
    **elements.EXPORTED,
    **moves.EXPORTED,
    **recurrent.EXPORTED,
    **attention.EXPORTED,
}


def write(net: Net, weights: Mapping[str, np.ndarray], path: str | Path, opset: int | None = None) -> None:
    """Write the net of phase TEST with these weights, "<layer>/<blob>" -> values in Caffe's shapes.

    opset: the version of ONNX's operators, from 17 to 23; None: 17, and 23 for a net with Attention or RotaryEmbedding,
           whose operators it brought

    Raises NotExported for another version, or if ONNX has no operator for a layer, and KeyError if weights are
    missing."""
    content = model(net, weights, opset).SerializeToString()
    with replacing(Path(path), "wb") as file:
        file.write(content)


def model(net: Net, weights: Mapping[str, np.ndarray], opset: int | None = None) -> Any:
    """The model in memory. Raises as `write`."""
    o, graph = onnx(), with_scores(net).graph("TEST")
    used = _used(graph)
    if opset is None:
        opset = attention.SINCE if any(n.layer.type in attention.EXPORTED for n in used) else OPSETS[0]
    if opset not in OPSETS:
        raise NotExported(f"opset {opset}: files are written in {OPSETS[0]} to {OPSETS[-1]}")
    writer = Writer(weights, opset)
    problems = []
    for node in used:
        for blob in node.tops:
            writer.names[blob] = blob.tensor.name
        if not node.layer.inputs and node.layer.type not in EXPORTED:
            problems.append(f"{node.place}: layer {node.name!r}: ONNX has no operator for {node.layer.type}")
    for node in used:
        follower = _scale_behind(node)
        if follower is not None:
            writer.scaled[node.name] = follower
    if problems:
        raise NotExported("\n".join(problems))
    done = {follower.name for follower in writer.scaled.values()}
    for node in used:
        if not node.layer.inputs and node.name not in done:
            EXPORTED[node.layer.type](writer, node)
    inside = {id(node) for node in used}
    sources = [b for node in used if node.layer.inputs for b in node.tops]
    inputs = [b for b in sources if b.tensor.role is not Role.LABEL or any(id(c) in inside for c in b.consumers)]
    ends = [b for n in used if n.bottoms for b in n.tops if not any(id(c) in inside for c in b.consumers)]
    info = o.helper.make_tensor_value_info
    made = o.helper.make_graph(
        writer.nodes,
        net.name or "net",
        [info(writer.names[b], o.TensorProto.FLOAT, [BATCH, *b.tensor.shape[1:]]) for b in inputs],
        [info(writer.names[b], o.TensorProto.FLOAT, [BATCH, *b.tensor.shape[1:]]) for b in ends],
        [o.numpy_helper.from_array(np.asarray(v, order="C"), n) for n, v in writer.initializers.items()],
    )
    opsets = [o.helper.make_opsetid("", opset)]
    result = o.helper.make_model(made, opset_imports=opsets, producer_name="minidnn")
    result.ir_version = o.helper.find_min_ir_version_for(opsets)
    o.checker.check_model(result)
    return result


def _used(graph: Graph) -> list[Node]:
    """The layers that compute scores: none that is a loss or reads labels, and none that only these read."""

    def scores(n: Node) -> bool:
        labelled = n.layer.type != "Embed" and any(b.tensor.role is Role.LABEL for b in n.bottoms)
        return not (n.layer.loss or n.layer.type == "Silence" or labelled)

    kept = [n for n in graph.layers if scores(n)]
    inside = {id(n) for n in kept}

    def read(b: Blob) -> bool:
        return b.tensor.role is not Role.LABEL or any(id(c) in inside for c in b.consumers)

    return [n for n in kept if n.bottoms or any(map(read, n.tops))]


def _scale_behind(node: Node) -> Node | None:
    """The Scale that alone reads a BatchNorm's top."""
    if node.layer.type != "BatchNorm" or len(node.tops[0].consumers) != 1:
        return None
    (after,) = node.tops[0].consumers
    plain = after.layer.type == "Scale" and len(after.bottoms) == 1
    return after if plain and after.layer.param.axis == 1 and after.layer.param.num_axes == 1 else None
