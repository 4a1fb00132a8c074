"""Layers and resolved graphs from snippets of YAML, for tests of layers and of differentiation."""

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
    """One layer, called `it`, from the inside of a YAML mapping."""
    spec = LayerParameter.model_validate({"name": "it", **YAML(typ="safe").load("{" + text + "}")})
    kind = LAYERS[spec.type]
    made = kind(spec, getattr(spec, kind.field_name), phase)
    made.sample = sample  # the net asks the data for it
    return made


def graph(layers: str, phase: str = "TRAIN", head: str = "name: net") -> Graph:
    """A graph from a YAML list of layers."""
    return Net.from_text(f"{head}\nlayer:\n{layers}").graph(phase)


def net(name: str, phase: str = "TRAIN") -> Graph:
    """One of tests/support/nets."""
    return load(NET_FILES / f"{name}.yaml").graph(phase)


def tensor(graph: Graph, blob: str) -> Tensor:
    """The last version of a blob."""
    return next(b.tensor for n in reversed(graph.layers) for b in n.tops if b.name == blob)
