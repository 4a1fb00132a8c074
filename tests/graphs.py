"""Graphs from YAML text, resolved by the bare rules, for tests of layers and of differentiation."""

from __future__ import annotations

from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from minidnn.layers import LAYERS
from minidnn.program import Role, Tensor
from minidnn.schema.messages import LayerParameter

NETS = Path(__file__).parent / "nets"


@dataclass(eq=False)
class Blob:
    name: str
    tensor: Tensor
    maker: Any
    consumers: list = field(default_factory=list)


@dataclass(eq=False)
class Node:
    name: str
    layer: Any
    bottoms: tuple[Blob, ...]
    tops: tuple[Blob, ...] = ()
    parameters: tuple = ()


@dataclass(eq=False)
class Graph:
    name: str
    phase: str
    layers: tuple[Node, ...]
    force_backward: bool = False

    def tensor(self, name: str) -> Tensor:
        return next(b.tensor for n in reversed(self.layers) for b in n.tops if b.name == name)


def layer(text: str, phase: str = "TRAIN", sample=(3, 8, 8)):
    """One layer from a YAML mapping without name."""
    return _layer({"name": "it", **YAML(typ="safe").load("{" + text + "}")}, phase, sample)


def _layer(document, phase, sample=(3, 8, 8)):
    spec = LayerParameter.model_validate(document)
    kind = LAYERS[spec.type]
    made = kind(spec, getattr(spec, kind.field_name) if kind.field_name else None, phase)
    if spec.type == "Data":
        made.sample = sample
    return made


def graph(text: str, phase: str = "TRAIN", name: str = "net", force_backward: bool = False) -> Graph:
    """A graph from a YAML list of layers; 1-D inputs are labels."""
    blobs: dict[str, Blob] = {}
    nodes = []
    for document in YAML(typ="safe").load(text):
        made = _layer(document, phase)
        node = Node(made.name, made, tuple(blobs[b] for b in made.spec.bottom))
        for b in node.bottoms:
            if node not in b.consumers:
                b.consumers.append(node)
        shapes = [b.tensor.shape for b in node.bottoms]
        node.parameters = tuple(made.parameters(shapes))
        tops = []
        for top, shape in zip(made.spec.top, made.shapes(shapes), strict=True):
            if node.bottoms:
                tensor = Tensor(f"{node.name}.y" if len(made.spec.top) == 1 else f"{node.name}.{top}", shape)
            else:
                label = len(shape) == 1
                tensor = Tensor(top, shape, "int32" if label else "float32", Role.LABEL if label else Role.INPUT)
            blobs[top] = Blob(top, tensor, node)
            tops.append(blobs[top])
        node.tops = tuple(tops)
        nodes.append(node)
    return Graph(name, phase, tuple(nodes), force_backward)


def net(name: str, phase: str = "TRAIN") -> Graph:
    """One of tests/nets."""
    document = YAML(typ="safe").load(NETS / f"{name}.yaml")
    text = StringIO()
    YAML(typ="safe").dump(document["layer"], text)
    return graph(text.getvalue(), phase, name)
