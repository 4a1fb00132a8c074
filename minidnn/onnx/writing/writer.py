"""The nodes and initializers of a model that is being written."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from minidnn.errors import BadInput
from minidnn.nets.graph import Blob, Node
from minidnn.onnx.package import onnx

NAMED = {"w": "weight", "b": "bias"}  # blobs whose initializers have PyTorch's names


class NotExported(BadInput, ValueError):
    """A net with layers that no operator of ONNX computes; the message names all of them."""

    several = True


class Writer:
    """The nodes and initializers of a model that is being written."""

    def __init__(self, weights: Mapping[str, np.ndarray]) -> None:
        self.weights = weights
        self.nodes: list[Any] = []
        self.initializers: dict[str, np.ndarray] = {}
        self.names: dict[Blob, str] = {}  # the value that holds a blob
        self.scaled: dict[str, Node] = {}  # BatchNorm -> the Scale that its node does, too

    def of(self, node: Node, blob: str) -> np.ndarray:
        return np.asarray(self.weights[f"{node.name}/{blob}"], np.float32)

    def initializer(self, node: Node, blob: str, value: np.ndarray | None = None) -> str:
        """The name of an initializer with a parameter's values, or with these."""
        name = f"{node.name}.{NAMED.get(blob, blob)}"
        self.initializers[name] = self.of(node, blob) if value is None else value
        return name

    def add(self, kind: str, node: Node, inputs: Sequence[str], outputs: Sequence[str], **attributes: Any) -> None:
        name = f"{node.name}_{len(self.nodes)}"
        self.nodes.append(onnx().helper.make_node(kind, list(inputs), list(outputs), name=name, **attributes))

    def bottoms(self, node: Node) -> list[str]:
        return [self.names[b] for b in node.bottoms]

    def tops(self, node: Node) -> list[str]:
        return [self.names[b] for b in node.tops]


Export = Callable[[Writer, Node], None]


def ints(w: Writer, node: Node, what: str, numbers: Sequence[int]) -> str:
    """The name of an initializer with these whole numbers, such as a shape."""
    return w.initializer(node, f"{what}_shape", np.array(numbers, np.int64))


def same(kind: str, **fixed: Any) -> Export:
    """What writes a layer as one node of this operator, with these attributes."""
    return lambda w, node: w.add(kind, node, w.bottoms(node), w.tops(node), **fixed)
