"""The live parameters of a loaded net, as NumPy arrays in Caffe's shapes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, MutableMapping

import numpy as np

from minidnn.errors import BadInput, few, near
from minidnn.layers import rows
from minidnn.layers.rows import Rows
from minidnn.memory.execution.machine import Machine
from minidnn.nets.graph import Graph
from minidnn.program import Tensor
from minidnn.spoken import many

FEW = 4  # layers that a repr names


class WeightsError(BadInput, ValueError):
    """Weights that do not fit the net; the message names the layer and both shapes."""


class Parameters(Mapping[str, "Blobs"]):
    """`params["conv1"]["w"]`: the live parameters of a machine, by layer.

    tensors: their tensors, each once, with Caffe's shape
    names:   the tensor for each "<layer>/<blob>"; a parameter that layers share has several names
    shapes:  Caffe's shape of each blob, by layer and by the blob's name"""

    def __init__(self, machine: Machine, graphs: Iterable[Graph], persistent: Mapping[str, Tensor]) -> None:
        self._layers: dict[str, Blobs] = {}
        self.tensors: dict[Tensor, tuple[int, ...]] = {}
        self.names: dict[str, Tensor] = {}
        self.shapes: dict[str, dict[str, tuple[int, ...]]] = {}
        for graph in graphs:
            for node in graph.layers:
                own = [p for p in node.parameters if not (p.constant or p.kept)]
                shapes = {p.name: p.blob_shape or p.shape for p in own}
                tensors = {p.name: persistent[node.tensor_name(p)] for p in own}
                if tensors:
                    self.shapes[node.name] = shapes
                    self._layers[node.name] = Blobs(machine, tensors, shapes)
                    self.tensors.update((t, shapes[name]) for name, t in tensors.items())
                    self.names.update((f"{node.name}/{name}", t) for name, t in tensors.items())
        self.names.update((saved_name(t), t) for t in self.tensors)

    @property
    def layout(self) -> dict[str, list[str]]:
        """The name in snapshots of each blob of each layer, in Caffe's order; a shared one is in several layers."""
        return {
            layer: [saved_name(self.names[f"{layer}/{blob}"]) for blob in blobs] for layer, blobs in self.shapes.items()
        }

    def __repr__(self) -> str:
        """The first layers, with the shapes of their blobs."""
        layers = [f"{name} {blobs.told}" for name, blobs in self._layers.items()]
        return f"<parameters of {many(len(layers), 'layer')}: {few(layers, FEW)}>"

    def __getitem__(self, layer: str) -> Blobs:
        if layer not in self._layers:
            raise KeyError(f"no layer with parameters is called {layer!r}{near(layer, self._layers)}")
        return self._layers[layer]

    def __iter__(self) -> Iterator[str]:
        return iter(self._layers)

    def __len__(self) -> int:
        return len(self._layers)


def saved_name(tensor: Tensor) -> str:
    """The name "<layer>/<blob>" of a parameter in snapshots; of layers that share it, the first has it."""
    return "/".join(tensor.name.rsplit(".", 1))


def all_zero(graph: Graph, params: Mapping[str, Blobs]) -> list[str]:
    """The names of learning layers whose weights, blob "w", are all zero: no gradient passes such a layer. If layers
    share weights, the first of them is named."""
    learned = {
        node.tensor_name(p): params[node.name].rows(p.name)
        for node in graph.layers
        for p in node.parameters
        if p.name == "w" and p.lr_mult != 0
    }
    return [name.rsplit(".", 1)[0] for name, rows in learned.items() if not any(piece.any() for piece in rows.pieces())]


def by_name(
    weights: Mapping[str, np.ndarray | Rows], shapes: Mapping[str, Mapping[str, tuple[int, ...]]]
) -> dict[str, np.ndarray | Rows]:
    """The weights with the names of blobs in place of their numbers: "conv1/0" is "conv1/w".

    shapes: Caffe's shape of each blob, by layer and by the blob's name, in their order

    A numbered blob of four axes, the first ones of length 1, gets the parameter's shape: so are those of old files.
    Raises WeightsError if a layer is given with more or fewer numbered blobs than it has."""
    result = dict(weights)
    for layer, blobs in shapes.items():
        names = list(blobs)
        numbered = [f"{layer}/{i}" for i in range(len(names) + 1) if f"{layer}/{i}" in result]
        if numbered and len(numbered) != len(names):
            given = f"{len(numbered)}{' or more' if len(numbered) > len(names) else ''}"
            raise WeightsError(f"layer {layer}: has {len(names)} blobs ({', '.join(names)}), but is given with {given}")
        for key, name in zip(numbered, names, strict=True) if numbered else ():
            values, shape = rows.of(result.pop(key)), blobs[name]
            if values.shape == (1,) * (4 - len(shape)) + shape:
                values = Rows(shape, values.dtype, values.pieces)
            result[f"{layer}/{name}"] = values
    return result


def rows_of(machine: Machine, tensor: Tensor, shape: tuple[int, ...] | None = None) -> Rows:
    """The rows of a persistent tensor, in this shape of as many elements; default: the tensor's own."""
    shape = shape or tensor.shape

    def pieces() -> Iterator[np.ndarray]:
        if shape[:1] != tensor.shape[:1]:  # its rows are no rows of the tensor
            yield from rows.of(machine.get(tensor).reshape(shape)).pieces()
            return
        for first, last in rows.split(shape, tensor.itemsize):
            yield machine.get(tensor, first, last).reshape(-1, *shape[1:])

    return Rows(shape, np.dtype(tensor.dtype), pieces)


def assign(machine: Machine, tensor: Tensor, values: Rows) -> None:
    """Overwrite a persistent tensor between steps by values of as many elements."""
    if values.shape[:1] != tensor.shape[:1] or not tensor.shape:
        machine.set(tensor, values.whole().reshape(tensor.shape))
        return
    first = 0
    for piece in values.pieces():
        part = piece.reshape(-1, *tensor.shape[1:])
        machine.set(tensor, part, first)
        first += len(part)


class Blobs(MutableMapping[str, np.ndarray]):
    """A layer's blobs as float32 arrays in Caffe's shapes, by name or, as in Caffe, by number.

    A read returns a copy; to change a blob, assign it: that raises WeightsError if the shape differs."""

    def __init__(self, machine: Machine, tensors: dict[str, Tensor], shapes: dict[str, tuple[int, ...]]) -> None:
        self._machine, self._tensors, self._shapes = machine, tensors, shapes

    def _name(self, key: str | int) -> str:
        return list(self._tensors)[key] if isinstance(key, int) else key

    def __getitem__(self, key: str | int) -> np.ndarray:
        name = self._name(key)
        return self._machine.get(self._tensors[name]).reshape(self._shapes[name])

    def rows(self, key: str | int) -> Rows:
        """The blob, a few rows at a time."""
        name = self._name(key)
        return rows_of(self._machine, self._tensors[name], self._shapes[name])

    def __setitem__(self, key: str | int, value: np.ndarray | Rows) -> None:
        name = self._name(key)
        values = rows.of(value)
        if values.shape != self._shapes[name]:
            raise WeightsError(f"{self._tensors[name].name} has shape {self._shapes[name]}, got {values.shape}")
        assign(self._machine, self._tensors[name], values)

    @property
    def told(self) -> str:
        """The shape of each blob, in words."""
        return ", ".join(f"{name} {'x'.join(map(str, shape))}" for name, shape in self._shapes.items())

    def __repr__(self) -> str:
        return f"<blobs: {self.told}>"

    def __delitem__(self, key: str | int) -> None:
        raise TypeError("a layer's blobs cannot be removed")

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)
