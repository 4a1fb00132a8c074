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

    def __init__(self, weights: Mapping[str, np.ndarray], opset: int) -> None:
        self.weights, self.opset = weights, opset
        self.nodes: list[Any] = []
        self.initializers: dict[str, np.ndarray] = {}
        self.names: dict[Blob, str] = {}  # the value that holds a blob
        self.scaled: dict[str, Node] = {}  # BatchNorm -> the Scale that its node does, too
        self.made: set[str] = set()  # values that layers share

    def of(self, node: Node, blob: str) -> np.ndarray:
        return np.asarray(self.weights[f"{node.name}/{blob}"], np.float32)

    def initializer(self, node: Node, blob: str, value: np.ndarray | None = None) -> str:
        """The name of an initializer with a parameter's values, or with these."""
        name = f"{node.name}.{NAMED.get(blob, blob)}"
        self.initializers[name] = self.of(node, blob) if value is None else value
        return name

    def shared(self, name: str, value: np.ndarray) -> str:
        """The name itself, of an initializer with this value, which layers share."""
        self.initializers.setdefault(name, value)
        return name

    def once(self, name: str, make: Callable[[], None]) -> str:
        """The name itself, of a value that layers share: the first of them has nodes made for it."""
        if name not in self.made:
            self.made.add(name)
            make()
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


def reduce(w: Writer, node: Node, kind: str, x: str, y: str, axes: Sequence[int], keepdims: int = 0) -> None:
    """Reduce x over these axes: an input since version 18, and of ReduceSum since version 13."""
    if w.opset >= 18 or kind == "ReduceSum":
        w.add(kind, node, [x, ints(w, node, "axes", axes)], [y], keepdims=keepdims)
    else:
        w.add(kind, node, [x], [y], keepdims=keepdims, axes=axes)


def same(kind: str, **fixed: Any) -> Export:
    """What writes a layer as one node of this operator, with these attributes."""
    return lambda w, node: w.add(kind, node, w.bottoms(node), w.tops(node), **fixed)
