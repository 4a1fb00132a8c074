"""From an ONNX model to a Net and its weights.

Each node becomes one or more layers (`ops/`). Values that are known when the file is read are parameters, which are
trained, and constants (origins.py), and whatever nodes compute from constants alone (`constants`). What nodes compute
from parameters, layers compute, too. All shapes are static: free lengths take the numbers that the caller gives. Shapes
are those of minidnn's layers, so each node is judged where it stands.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from minidnn.errors import few
from minidnn.nets.net import Net
from minidnn.onnx import exported, scripted
from minidnn.onnx.constants import FOLDED, Budget, check_places, fold
from minidnn.onnx.ends import Given, Shapes, inputs, silence, with_loss
from minidnn.onnx.file import InvalidModel, load
from minidnn.onnx.fusing import fuse
from minidnn.onnx.node import Bound, Node, Reader, Refused, Weights
from minidnn.onnx.ops import OPS, add_layers
from minidnn.onnx.ops.normalizations import in_training
from minidnn.onnx.origins import Origins, Trained, arrays, by_place, decided, frozen
from minidnn.onnx.pieces import follow, of_cells
from minidnn.schema import Document

RANDOM = ("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Bernoulli", "Multinomial")


def read(
    path: str | Path,
    batch: int | None = None,
    loss: bool = False,
    *,
    shapes: Shapes | None = None,
    lengths: Mapping[str, int] | None = None,
    trained: Trained = None,
    notes: list[str] | None = None,
) -> tuple[Net, Weights]:
    """The net of an ONNX file and its weights.

    What is a parameter in the file is trained, and once if it is used twice; other numbers are frozen (origins.py).

    batch:   the size of a free first axis of inputs; default: 1
    loss:    append labels and a SoftmaxWithLoss to the first output, so that the net can be trained
    shapes:  shapes of inputs, by name, for free lengths and other ones: {"x": (4, 32)}
    lengths: lengths of free axes, by the name that the file gives them: {"T": 32}
    trained: the names of the numbers to train, or a function that says whether to train those of a name; default: what
             the file shows
    notes:   gets a line for what was frozen, and for what the file lacks; None: these are warnings

    Raises InvalidModel, which names every node that no layer computes, and, with `loss`, what the exporter has taken
    out and how to export the model so that it stays. Raises OSError if the file cannot be read."""
    model, beside = load(path)
    given = Given(batch, {}, dict(shapes or {}), dict(lengths or {}), trained, beside=beside)
    result = from_model(model, str(path), given, loss)
    if notes is not None:
        notes += result.notes
    for line in result.notes if notes is None else ():
        warnings.warn(line, stacklevel=2)
    return result.net, dict(result.net.weights)


@dataclass(frozen=True)
class Reading:
    """A model as a net, which begins with the model's weights.

    places:     where each parameter is, by its name in the file
    statistics: where each running statistic of a BatchNorm is: (layer, blob)
    """

    net: Net
    notes: list[str]
    places: dict[str, Bound]
    statistics: dict[str, tuple[str, str]]


def from_model(model: Any, source: str, given: Given, loss: bool = False) -> Reading:
    """A model in memory; `source` is its name in errors. Raises as `read`."""
    result, origins = walk(model, source, given)
    notes = [f"{source}: {line}" for line in (frozen(result.frozen), *origins.notes, *result.notes) if line]
    lost = few(origins.problems, 3)
    flaws = [*([f"{lost}; {remedy(model)}"] if lost else []), *origins.unlike]
    if flaws and loss:
        raise InvalidModel(*(f"{source}: {flaw}" for flaw in flaws))
    notes += [f"{source}: it cannot be trained: {flaw}" for flaw in flaws]
    if not given.whole and exported_for_inference(result, model):
        notes.append(
            f"{source}: it was exported for inference, so that it has no Dropout even if the module has; "
            f"if it has, {remedy(model)}"
        )
    silence(result)
    if loss:
        with_loss(result, model.graph.output[0].name, source)
    name = Path(source).stem or model.graph.name
    net = Net.from_document(Document({"name": name, "layer": result.finished()}, what=f"{source}: net {name}"))
    places = {name: bound for name, bound in result.bound.items() if bound.weight.trained}
    net = net.with_weights(result.weights)
    net.flaws = tuple(f"{source}: {flaw}" for flaw in flaws)
    return Reading(net, notes, places, result.statistics)


def remedy(model: Any) -> str:
    """What to do about a file from which the exporter has taken something out."""
    return f"export it by {exported.CALL if exported.noted(model) else scripted.CALL}"


def exported_for_inference(reader: Reader, model: Any) -> bool:
    """Whether PyTorch has exported a module that may have had Dropouts, as in `eval`."""
    return model.producer_name == "pytorch" and not reader.training


def walk(model: Any, source: str, given: Given) -> tuple[Reader, Origins]:
    """The Reader after all nodes, and what its numbers are. Raises InvalidModel with all nodes that no layer computes.

    The walk begins anew if layers that share a parameter need it in different orders or shapes."""
    numbers, unread = arrays(model, given.beside)
    origins = decided(_origins(model, numbers), given.trained, source)
    shared, apart = set[str](), set[str]()
    while True:
        reader = Reader(given.batch, given.values, shared, apart)
        _walked(reader, model, origins, unread, source, given)
        if not reader.conflicts:
            return reader, origins
        apart |= reader.conflicts & shared
        shared |= reader.conflicts


def _origins(model: Any, numbers: Mapping[str, np.ndarray]) -> Origins:
    if exported.noted(model):
        return exported.exported(model, numbers)
    if model.producer_name == "pytorch":
        return scripted.scripted(model, numbers)
    return by_place(list(model.graph.node), numbers)


def _walked(reader: Reader, model: Any, origins: Origins, unread: Mapping[str, str], source: str, given: Given) -> None:
    graph, budget = model.graph, Budget(model.ByteSize() + sum(x.nbytes for x in given.beside.values()))
    version = max((i.version for i in model.opset_import if i.domain in ("", "ai.onnx")), default=1)
    reader.constants.update(origins.constants)
    reader.parameters.update(origins.parameters)
    nodes = [Node(proto, version) for proto in origins.nodes]
    cells = of_cells(nodes)
    reader.ends = {o.name for o in graph.output}
    wanted = reader.ends | _read(graph) | {name for node in nodes for name in node.inputs}
    problems = [f"{source}: initializer {name!r}: {reason}" for name, reason in unread.items()]
    lost = set(unread)  # values that were refused, or whose nodes were: what reads them is not blamed
    problems += inputs(reader, graph, source, given, lost)
    reader.training = given.whole or any(map(_trains, nodes))
    for k, node in enumerate(nodes):
        node.name = _name(node, reader)
        node.outputs = [name if name in wanted else "" for name in node.outputs]
        if not any(node.outputs) and not _of_constants(reader, node):
            continue  # wrong constants are told all the same
        if lost.intersection(node.inputs):
            lost.update(node.outputs)
            continue
        try:
            _one(reader, node, cells, budget)
        except Refused as reason:
            label = f"{node.type} {node.proto.name!r}" if node.proto.name else f"node {k}, {node.type}"
            problems.append(f"{source}: {label}: {reason}")
            lost.update(node.outputs)
    if problems:
        raise InvalidModel(*problems)
    fuse(reader, reader.ends)


def _trains(node: Node) -> bool:
    """Whether a node says that the module was exported as it trains."""
    return node.type == "Dropout" or (node.type == "BatchNormalization" and in_training(node))


def _one(reader: Reader, node: Node, cells: Collection[str], budget: Budget) -> None:
    if node.proto.domain not in ("", "ai.onnx"):
        raise Refused(f"operators of the domain {node.proto.domain!r} are not ONNX's own")
    if node.type in RANDOM:
        raise Refused("it draws new random numbers in each run, and minidnn's only random layer is Dropout")
    if node.type == "Shape" and node.inputs[0] not in reader.constants:
        shape = reader.shape(node.inputs[0])[node.get("start", 0) : node.get("end")]
        reader.constants[node.outputs[0]] = np.array(shape, np.int64)
    elif _of_constants(reader, node) and (node.type in FOLDED or node.type not in OPS):
        _fold(reader, node, budget)
    elif node.outputs[0] in cells and follow(reader, node, budget):
        return
    elif node.type not in OPS:
        raise Refused(f"minidnn has no layers for it; it has for {few(sorted(OPS), 60)}")
    else:
        check_places(node, reader.constants)
        add_layers(reader, node)
        if node.overlooked:
            said = ", ".join(f"{k} = {node.attributes[k]}" for k in node.overlooked)
            raise Refused(f"minidnn does not know {said} there; leave it out, or convert the model to a newer opset")


def _read(graph: Any) -> set[str]:
    """The values that nodes read, those of graphs within nodes included."""
    result: set[str] = set()
    for node in graph.node:
        result.update(name for name in node.input if name)
        for a in node.attribute:
            for within in (a.g, *a.graphs):
                result |= _read(within) | {o.name for o in within.output}
    return result


def _of_constants(reader: Reader, node: Node) -> bool:
    return all(name in reader.constants for name in node.inputs if name)


def _fold(reader: Reader, node: Node, budget: Budget) -> None:
    """Compute a node of constants."""
    result = fold(node, [reader.constants[n] if n else None for n in node.inputs], budget)
    reader.constants.update((n, value) for n, value in zip(node.outputs, result, strict=False) if n)


def _name(node: Node, reader: Reader) -> str:
    """The name of the node's layers: that of its weight without ".weight", or of its output."""
    weights = [reader.parameters[n].name for n in node.inputs if n in reader.parameters]
    weights += [n for n in node.inputs if n in reader.constants]
    for name in weights:
        if name.endswith(".weight"):
            return name.removesuffix(".weight")
    return next((n for n in node.outputs if n), node.type).removesuffix(".y")
