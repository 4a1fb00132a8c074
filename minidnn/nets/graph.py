"""A net resolved for one phase: layers with their tensors, shapes and parameters.

Blobs are versioned: the top of an in-place layer is a new Blob of the same name. So a name may mean several values, but
a Blob is one value. A Blob with several consumers is Caffe's implicit Split. The tops of an explicit Split are Blobs
with the tensor of its bottom.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np

from minidnn.errors import few
from minidnn.formats import floating
from minidnn.layers.base import PLACES, Layer, Parameter, ShapeError, Shapes, addressable
from minidnn.layers.fillers import check_fill
from minidnn.nets.sharing import Sharing
from minidnn.program import Role, Tensor
from minidnn.schema import InvalidFile, LayerParameter
from minidnn.schema.sources import TOKENS
from minidnn.spoken import many
from minidnn.visible import visible

Readers = dict[str, list[tuple[LayerParameter, int]]]
RESERVED = ("rate", "iteration", "objective", "loss_scale", PLACES)  # names of tensors that programs add


@dataclass(eq=False)
class Node:
    """A layer in a graph, with its bottoms and tops. `parameters` are in the order of Caffe's blobs, and `place` says
    where the layer is written, for errors."""

    layer: Layer
    bottoms: tuple[Blob, ...] = ()
    tops: tuple[Blob, ...] = ()
    parameters: tuple[Parameter, ...] = ()
    place: str = ""

    @property
    def name(self) -> str:
        return self.layer.name

    def tensor_name(self, p: Parameter) -> str:
        """The name of the tensor of one of its parameters."""
        return p.tensor or f"{self.name}.{p.name}"

    def __repr__(self) -> str:
        return f"{self.name} ({self.layer.type})"


@dataclass(eq=False)
class Blob:
    """One version of a named value: its tensor, the layer that makes it, and the layers that read it, in file order."""

    name: str
    tensor: Tensor
    maker: Node
    consumers: list[Node] = field(default_factory=list)

    def __repr__(self) -> str:
        return f"{self.name}{list(self.tensor.shape)}"


@dataclass(eq=False, repr=False)
class Graph:
    """The layers of a phase in the file's order, in which they can run."""

    name: str
    phase: str
    layers: tuple[Node, ...]
    force_backward: bool = False  # whether gradients of the data are computed, too
    format: str = "float32"  # the number format of inputs, from which those of the other activations follow
    place: str = ""  # where the net is written, for errors
    old: bool = False  # whether its file has layers in Caffe's old form, so that none of the present form may be added

    def __repr__(self) -> str:
        return f"<graph of {self.name or 'net'}, {self.phase}: {many(len(self.layers), 'layer')}, {self.told}>"

    @property
    def told(self) -> str:
        """How many numbers it learns, and its inputs, in words."""
        learned = {
            node.tensor_name(p): math.prod(p.shape)
            for node in self.layers
            for p in node.parameters
            if p.learnable and not p.constant
        }
        inputs = [blob for node in self.layers if not node.bottoms for blob in node.tops]
        shapes = [f"{blob.name} {'x'.join(map(str, blob.tensor.shape))}" for blob in inputs]
        return f"{sum(learned.values()):,} parameters, inputs {few(shapes)}"

    @property
    def blobs(self) -> list[Blob]:
        """The tops of all layers, in order."""
        return [blob for node in self.layers for blob in node.tops]

    @property
    def outputs(self) -> list[Blob]:
        """The blobs without consumers."""
        return [blob for blob in self.blobs if not blob.consumers]

    @property
    def compared(self) -> frozenset[Tensor]:
        """The labels that layers only compare with scores; the labels of an embedding are read as they are."""
        uses: dict[Tensor, bool] = {}
        for node in self.layers:
            for i, blob in enumerate(node.bottoms if node.tops else ()):
                if blob.tensor.role is Role.LABEL:
                    uses[blob.tensor] = uses.get(blob.tensor, True) and node.layer.labels == i > 0
        return frozenset(t for t, only in uses.items() if only)

    @property
    def windows(self) -> dict[Tensor, Tensor]:
        """The tokens behind those of each window, by these, of the layers that give tokens."""
        found = (n for n in self.layers if n.layer.source and TOKENS.match(getattr(n.layer.param, "source", "")))
        return {n.tops[0].tensor: n.tops[-1].tensor for n in found}

    @property
    def tokens(self) -> int | None:
        """The tokens of a sample; None: no layer gives tokens."""
        return next((t.size // t.shape[0] for t in self.windows), None)

    @property
    def constants(self) -> list[str]:
        """The names of the tensors whose values the net's own file gives, and nothing changes."""
        return [node.tensor_name(p) for node in self.layers for p in node.parameters if p.constant]

    @property
    def kept(self) -> list[str]:
        """The names of the tensors that a step leaves for the next one, and no file of weights has."""
        return [node.tensor_name(p) for node in self.layers for p in node.parameters if p.kept]

    def __getitem__(self, layer: str) -> Node:
        for node in self.layers:
            if node.name == layer:
                return node
        raise KeyError(f"{self.name} has no layer {layer!r} in phase {self.phase}")

    def __str__(self) -> str:
        """One line per layer: name, type, bottoms, and tops with their shapes."""
        rows = []
        for node in self.layers:
            bottoms, tops = " ".join(b.name for b in node.bottoms), " ".join(map(repr, node.tops))
            rows.append([visible(cell) for cell in (node.name, node.layer.type, bottoms, tops)])
        widths = [max((len(row[i]) for row in rows), default=0) for i in range(3)]
        lines = ["  ".join((*(c.ljust(w) for c, w in zip(row, widths, strict=False)), row[3])).rstrip() for row in rows]
        return "\n".join([visible(f"{self.name or 'net'} ({self.phase})"), *lines])


def resolve(
    name: str,
    phase: str,
    specs: Sequence[LayerParameter],
    types: dict[str, type[Layer]],
    place: Callable[[LayerParameter], str],
    shapes_of: Shapes,
    owners: Mapping[str, str] = MappingProxyType({}),
    force_backward: bool = False,
    format: str = "float32",
    whole: str = "",
) -> Graph:
    """The graph of these layers. Their names and blobs must fit together, as `wiring` (schema/checks.py) checks.

    types:  layer classes by `type`
    place:  the place of a layer in its file, for errors
    shapes_of: the shapes of a source's samples and labels
    owners: the layers that own the named parameters (nets/sharing.py)
    format: the number format of samples, from which the formats of all tops follow
    whole:  the place of the net in its file

    Raises ShapeError, which names the layer, its bottoms and the layers that make them. Raises InvalidFile for reserved
    names and wrong `param` lists, and passes errors of `sample` on.
    """
    sharing, readers = Sharing(specs, owners), _readers(specs)
    current: dict[str, Blob] = {}
    nodes: list[Node] = []
    for spec in specs:
        layer = types[spec.type](spec, getattr(spec, types[spec.type].field_name or "", None), phase)
        node = Node(layer, tuple(current[b] for b in spec.bottom), place=place(spec))
        try:
            layer.ask(shapes_of)
        except ValueError as error:
            raise type(error)(f"{node.place}: layer {spec.name!r}: {error}") from None
        bottoms = [b.tensor.shape for b in node.bottoms]
        try:
            shapes = [tuple(shape) for shape in layer.shapes(bottoms)]
            dtypes = list(layer.dtypes(_one_format(layer, [b.tensor.dtype for b in node.bottoms])))
            node.parameters = sharing.resolved(spec, layer.parameters(bottoms))
            for top, shape in zip(spec.top, shapes, strict=False):
                addressable(shape, f"its top {top!r}")
            for p in node.parameters:
                addressable(p.shape, f"its parameter {p.name}")
                check_fill(p.filler, p.blob_shape or p.shape, f"its parameter {p.name}")
            for i, top in enumerate(spec.top if layer.inputs else ()):
                labels = _holds_labels(top, dtypes[i] == "int32", readers, types)
                dtypes[i] = "int32" if labels else "float32"
                if labels and math.prod(shapes[i]) == shapes[i][0]:  # one per sample
                    shapes[i] = shapes[i][:1]
        except ShapeError as error:
            raise ShapeError(f"{node.place}: {_described(node)}: {error}") from None
        if len(shapes) != len(spec.top) or len(dtypes) != len(spec.top):
            raise TypeError(f"{_described(node)} gave {len(shapes)} shapes for {len(spec.top)} tops")
        if len(spec.param) > len(node.parameters):
            n, listed = len(node.parameters), len(spec.param)
            raise InvalidFile([f"{node.place}: {_described(node)} has {n} parameters, but its param lists {listed}"])
        tops = []
        for top, shape, dtype in zip(spec.top, shapes, dtypes, strict=True):
            role = Role.ACTIVATION
            if layer.inputs:
                if top in RESERVED:
                    raise InvalidFile([f"{node.place}: layer {spec.name!r}: {top!r} is a name of minidnn's own"])
                role = Role.LABEL if dtype == "int32" else Role.INPUT
            if dtype == "float32" and not any(floating(b.tensor.dtype) for b in node.bottoms):  # an input, an embedding
                dtype = format
            made = Tensor(_tensor_name(layer, top), shape, dtype, role)
            tops.append(Blob(top, node.bottoms[0].tensor if layer.same else made, node))
        for blob in node.bottoms:
            blob.consumers.append(node)
        node.tops = tuple(tops)
        current.update((blob.name, blob) for blob in tops)
        nodes.append(node)
    return Graph(name, phase, tuple(nodes), force_backward, format, whole)


def check_shared(graph: Graph, other: Graph) -> None:
    """Raise ShapeError if a layer's parameter differs between two phases, which share it. It may have another shape, or
    other values if it is constant, or layers may share it in one phase alone."""
    theirs = {(n.name, p.name): (p.shape, n.tensor_name(p), p) for n in other.layers for p in n.parameters}
    for node in graph.layers:
        for p in node.parameters:
            mine = p.shape, node.tensor_name(p), p
            (shape, tensor, their), what = theirs.get((node.name, p.name), mine), f"its {p.name} is"
            if shape == p.shape and p.constant and not np.array_equal(p.filler.array, their.filler.array):
                what = f"its {p.name} has other values in phase {graph.phase} than in phase {other.phase}"
            elif shape != p.shape:
                what += f" {p.shape} in phase {graph.phase}, but {shape} in phase {other.phase}"
            elif tensor != mine[1]:
                what += f" {mine[1]} in phase {graph.phase}, but {tensor} in phase {other.phase}: "
                what += "give it the same name in `param`, after the same layer, in both"
            else:
                continue
            raise ShapeError(f"{node.place}: layer {node.name!r}: {what}")


def _one_format(layer: Layer, bottoms: list[str]) -> list[str]:
    """The bottoms' dtypes. Raises ShapeError if they have two number formats, unless the layer is a loss."""
    result = sorted({dtype for dtype in bottoms if floating(dtype)})
    if len(result) > 1 and not layer.loss:
        raise ShapeError(f"its bottoms are {' and '.join(result)}, and a layer takes numbers of one format")
    return bottoms


def _tensor_name(layer: Layer, top: str) -> str:
    if layer.inputs:
        return top
    return f"{layer.name}.y" if len(layer.spec.top) == 1 else f"{layer.name}.{top}"


def _readers(specs: Sequence[LayerParameter]) -> Readers:
    """blob -> the layers that read it, each with the number of the bottom."""
    result: Readers = {}
    for spec in specs:
        for i, bottom in enumerate(spec.bottom):
            result.setdefault(bottom, []).append((spec, i))
    return result


def _holds_labels(top: str, otherwise: bool, readers: Readers, types: dict[str, type[Layer]]) -> bool:
    """Whether a top holds whole numbers: the layers that read it read it as labels, or as numbers of rows. If none
    reads it, it does if it is called "label", or `otherwise`. Raises ShapeError if one layer reads it as labels, and
    another as numbers."""
    uses = {i in (kind.labels, kind.indices): name for kind, i, name in _uses(top, readers, types)}
    if len(uses) == 2:
        what = f"layer {uses[True]!r} reads {top!r} as labels, layer {uses[False]!r} as numbers"
        raise ShapeError(f"{what}: give them a top each")
    return next(iter(uses), otherwise or top == "label")


def _uses(top: str, readers: Readers, types: dict[str, type[Layer]]) -> Iterator[tuple[type[Layer], int, str]]:
    """(type of layer, number of the bottom, the layer's name) where a top's values are read, also under another name.
    A layer without tops reads nothing."""
    names = {top}
    waiting = [top]
    while waiting:
        for other, i in readers.get(waiting.pop(), ()):
            kind = types[other.type]
            if kind.same or (kind.moves and i == 0):
                new = [renamed for renamed in other.top if renamed not in names]
                names.update(new)
                waiting += new
            elif kind.tops != (0, 0):
                yield kind, i, other.name


def _described(node: Node) -> str:
    """The node in an error message: layer 'ip1' (InnerProduct) on 'pool1' (64, 20, 4, 4) from layer 'pool1'."""
    on = ", ".join(f"{b.name!r} {b.tensor.shape} from layer {b.maker.name!r}" for b in node.bottoms)
    return f"layer {node.name!r} ({node.layer.type})" + (f" on {on}" if on else "")
