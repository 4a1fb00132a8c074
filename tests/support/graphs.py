"""Layers and graphs from snippets of YAML, for tests of layers and of differentiation."""

from __future__ import annotations

from ruamel.yaml import YAML

from minidnn.layers import LAYERS
from minidnn.nets.graph import Graph
from minidnn.nets.net import Net
from minidnn.program import Tensor
from minidnn.schema import LayerParameter
from minidnn.zoo import load
from tests.support.paths import NET_FILES


def layer(text: str, phase: str = "TRAIN", sample=(3, 8, 8)):
    """A layer with the name "it". text: its other fields, as inside the braces of a YAML mapping."""
    spec = LayerParameter.model_validate({"name": "it", **YAML(typ="safe").load("{" + text + "}")})
    kind = LAYERS[spec.type]
    made = kind(spec, getattr(spec, kind.field_name or "", None), phase)
    made.sample = sample  # a net would get the sample's shape from its data
    return made


def graph(layers: str, phase: str = "TRAIN", head: str = "name: net") -> Graph:
    """A graph from a YAML list of layers."""
    return Net.from_text(f"{head}\nlayer:\n{layers}").graph(phase)


def net(name: str, phase: str = "TRAIN") -> Graph:
    """The graph of a net in tests/support/nets."""
    return load(NET_FILES / f"{name}.yaml").graph(phase)


def tensor(graph: Graph, blob: str) -> Tensor:
    """The tensor of the last version of a blob."""
    return next(b.tensor for n in reversed(graph.layers) for b in n.tops if b.name == blob)
