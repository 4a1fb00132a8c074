"""Net: a checked list of layers, from a file, YAML or Caffe's prototxt, or from a Python class.

Both ways give the same layer messages, so that each can be written as the other. `graph(phase)` resolves a Net to
tensors and shapes.
"""

from __future__ import annotations

import copy
import inspect
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import prod
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np

from minidnn import notebook
from minidnn.errors import InvalidInput
from minidnn.formats import named
from minidnn.layers import LAYERS
from minidnn.layers.base import Shape, ShapeError
from minidnn.layers.fillers import fill
from minidnn.layers.rows import Rows, of
from minidnn.nets import dataless
from minidnn.nets.define import layers_of
from minidnn.nets.graph import Graph, check_shared, resolve
from minidnn.nets.located import located, nowhere
from minidnn.nets.loss import has_loss, lacking
from minidnn.nets.sharing import owners
from minidnn.schema import (
    PHASES,
    CheckedNet,
    Document,
    InvalidFile,
    LayerParameter,
    NetParameter,
    NetState,
    Problem,
    check_net,
    dump,
    load_net,
    parse,
    plain,
    prototext,
    wiring,
)
from minidnn.schema.message import LARGEST
from minidnn.schema.sources import TOKENS
from minidnn.spoken import many


class Net:
    """A network. Create one with `Net.from_file(path)`, or with a subclass whose `define` calls layers
    (nets/define.py).

    Two nets are equal if their layers and fields are equal."""

    name: str | None = None  # a subclass may set these three; its name is the class's by default
    force_backward: bool = False  # whether gradients of the data are computed, too
    state: ClassVar[Mapping[str, Any]] = {}  # level and stages, such as {"stage": ["deploy"]}
    weights: Mapping[str, np.ndarray] = MappingProxyType({})  # first values by "<layer>/<blob>", in place of fillers
    weights_file: str = ""  # the file that they come from
    flaws: tuple[str, ...] = ()  # why training it would not be what its file's maker trains
    _remarks: tuple[str, ...] = ()

    def __init__(self, *positional: Any, **arguments: Any) -> None:
        """The arguments are those of `define`. If `define` takes no `batch`, a `batch` replaces the batch sizes of
        the net. Raises the errors of `from_file`, and TypeError if there is no `define`."""
        define = getattr(self, "define", None)
        if define is None:
            raise TypeError("a Net comes from Net.from_file(path), or from a subclass that has a method `define`")
        signature = inspect.signature(define)
        batch = None if "batch" in signature.parameters else arguments.pop("batch", None)
        bound = signature.bind(*positional, **arguments)
        own = type(self).name
        name = type(self).__name__ if own is None else own
        data: dict[str, Any] = {"name": name}
        data |= {"force_backward": True} if self.force_backward else {}
        data |= {"state": dict(self.state)} if self.state else {}
        data["layer"] = layers_of(lambda: define(*bound.args, **bound.kwargs))
        self._take(check_net(Document(data, what=f"net {name}"), LAYERS), batch)

    @classmethod
    def from_file(cls, path: str | Path, batch: int | None = None, dropped: list[str] | None = None) -> Net:
        """Read a net from a file: YAML or, with the suffix .prototxt, Caffe's format. `batch` replaces its batch sizes.

        dropped: collects the places of unknown fields, which are then ignored; None: unknown fields are errors

        Raises InvalidFile with every error and its place, and ShapeError for a layer that cannot take its bottoms, in
        either phase."""
        return Net._of(load_net(path, LAYERS, dropped), batch)

    @classmethod
    def from_text(cls, text: str, batch: int | None = None, source: str = "net.yaml") -> Net:
        """Read a net from the text of a file; `source` names the file, with its suffix, in errors. Raises the errors
        of `from_file`."""
        return Net._of(check_net(parse(text, source), LAYERS), batch)

    @classmethod
    def from_parameter(cls, parameter: NetParameter, batch: int | None = None) -> Net:
        """Make a net from a message, such as a solver's `net_param`. Raises the errors of `from_file`."""
        return Net._of(check_net(Document(_file(parameter)), LAYERS), batch)

    @classmethod
    def from_document(cls, document: Document, at: tuple[str | int, ...] = (), batch: int | None = None) -> Net:
        """Make a net from a field of a file, such as a solver's `net_param`. Raises the errors of `from_file`."""
        return Net._of(check_net(document, LAYERS, at), batch)

    @staticmethod
    def _of(checked: CheckedNet, batch: int | None) -> Net:
        net = Net.__new__(Net)
        net._take(checked, batch)
        return net

    def _changed(self, parameter: NetParameter, batch: int | None = None) -> Net:
        """This net with another message, and the same first values."""
        net = copy.copy(self)
        net._take(replace(self._checked, parameter=parameter), batch, new=False)
        return net

    def _take(self, checked: CheckedNet, batch: int | None = None, new: bool = True) -> None:
        """`new`: whether the net is new; of one that is changed, a phase is resolved when it is used."""
        parameter = checked.parameter if batch is None else _with_batch(checked.parameter, batch)
        parameter = located(parameter, os.path.dirname(checked.document.source)) if new else parameter
        self.parameter = parameter
        self.name = parameter.name
        self.layers: tuple[LayerParameter, ...] = parameter.layer
        self.force_backward = parameter.force_backward
        self._checked = checked
        self._graphs: dict[tuple[str, NetState, str], Graph] = {}
        self._resolved = {phase: graph for phase in PHASES if new and (graph := self._first(phase))}

    @property
    def notes(self) -> tuple[str, ...]:
        """Remarks on how the net was read: the meaning of some fields of its file, and what was added."""
        return tuple(dict.fromkeys((*self._checked.document.notes, *self._remarks)))

    # ---- as a value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Net) and self.parameter == other.parameter

    def __hash__(self) -> int:
        return hash((self.name, tuple(layer.name for layer in self.layers)))

    def __repr__(self) -> str:
        """The net's layers, parameters and inputs; layers alone where its shapes are not known."""
        from minidnn.data import DataError

        text = f"net {self.name!r}: {many(len(self.layers), 'layer')}"
        try:
            return f"<{text}, {self.graph('TRAIN').told}>"
        except (InvalidFile, ShapeError, DataError):
            return f"<{text}>"

    def _repr_html_(self) -> str:
        """The table of `minidnn show`, for notebooks."""
        return notebook.html(self)

    def with_batch(self, batch: int) -> Net:
        """This net with another batch size in each Data and Input layer."""
        return self._changed(self.parameter, batch)

    def with_images(self, side: int) -> Net:
        """This net with square images of `side` by `side` pixels from each Data and Input layer.

        The images of Data layers are then synthetic (data/synthetic.py). Raises InvalidFile if no layer gives
        images."""
        return self._changed(_with_images(self.parameter, side))

    def with_layers(self, layers: Sequence[LayerParameter]) -> Net:
        """The net of these layers, which begins with the values that this one brings. Raises InvalidFile."""
        made = Net.from_parameter(self.parameter.model_copy(update={"layer": tuple(layers)}))
        return made.with_weights(self.weights, self.weights_file) if self.weights else made

    def with_tokens(self, length: int) -> Net:
        """This net with windows of `length` tokens from each Data layer (data/tokens.py). Raises InvalidFile if none
        gives tokens."""
        if self.tokens is None:
            raise InvalidFile([f"net {self.name}: no Data layer gives tokens (source: tokens:, text:)"])
        return self._changed(_with_tokens(self.parameter, length))

    @property
    def tokens(self) -> int | None:
        """The tokens of a window; None: no Data layer gives tokens."""
        found = (TOKENS.match(_source_of(layer)) for layer in self.layers)
        return next((int(match[2]) for match in found if match), None)

    def without_data(self) -> tuple[Net, dict[str, str]]:
        """(this net, {source: shape}) where the sources that cannot be read give made-up images (data/synthetic.py) of
        the size that their layer crops or resizes to, with as many channels as it has mean values, else 3, or 1 in
        grey. Planning needs no more of them."""
        parameter, replaced = dataless.without_data(self.parameter, _shapes)
        return (self._changed(parameter), replaced) if replaced else (self, {})

    def with_shapes(self, shapes: Mapping[str, Shape], batch: int | None = None) -> Net:
        """This net with inputs of these shapes, by top, in place of its data layers; `batch` overrides the batch
        sizes of the shapes. Tops of other layers are ignored."""
        return self._changed(dataless.with_shapes(self.parameter, shapes, batch))

    def remedies(self) -> Iterator[tuple[str, str]]:
        """(a top, the form of its shape) of each layer whose data are not here, and whose shape does not follow."""
        return dataless.remedies(self.parameter, _shapes)

    def with_state(self, state: NetState) -> Net:
        """This net with another level and other stages."""
        return self._changed(self.parameter.model_copy(update={"state": state}))

    def with_weights(self, weights: Mapping[str, np.ndarray], file: str = "", notes: Sequence[str] = ()) -> Net:
        """This net with these initial values, "<layer>/<blob>" -> those of a blob; a file of the net does not contain
        them.

        file: where they come from; notes: further remarks on the net"""
        net = self._changed(self.parameter)
        net.weights, net.weights_file, net._remarks = dict(weights), file, (*self._remarks, *notes)
        return net

    def with_loss(self) -> Net:
        """This net with labels and a loss for its last output (nets/loss.py), unless it has a loss. Raises
        InvalidInput if no output can have a loss, or if the net's file lacks parts that training needs."""
        graph = self.graph("TRAIN")
        if has_loss(graph):
            return self
        if self.flaws:
            raise InvalidInput("\n".join(self.flaws))
        layers, replaced = lacking(graph)
        own = [plain(layer) for layer in self.layers if replaced is None or layer.name != replaced.name]
        document = Document({**_file(self.parameter), "layer": [*own, *layers]}, what=graph.place)
        what = f"{layers[-1]['type']} of {' and '.join(layers[-1]['bottom'])}"
        result = copy.copy(self)
        result._remarks = (*self.notes, f"{graph.place}: net {graph.name} has no loss: {what} is added")
        result._take(check_net(document, LAYERS))
        return result

    def to_yaml(self) -> str:
        """The text of a YAML file of an equal net."""
        return dump(_file(self.parameter))

    def to_prototxt(self) -> str:
        """The text of a prototxt of an equal net."""
        return prototext.dump(self.parameter)

    def to_python(self) -> str:
        """The Python source of a class of an equal net."""
        from minidnn.nets.as_python import source

        return source(self.parameter)

    # ---- resolved

    def graph(self, phase: str, state: NetState | None = None, format: str = "float32") -> Graph:
        """The layers of a phase, "TRAIN" or "TEST", with their tensors and shapes.

        state:  level and stages instead of the net's own
        format: the number format of activations (formats.py)

        Raises InvalidFile if layers do not fit together in this phase, and ShapeError if shapes do not.
        """
        if phase not in ("TRAIN", "TEST"):
            raise ValueError(f"there is no phase {phase!r}, only TRAIN and TEST")
        state = state or self.parameter.state
        key = (phase, state, named(format))
        if key not in self._graphs:
            first = self._resolved.pop(phase, None) if key == (phase, self.parameter.state, "float32") else None
            graph = first or self._checked_graph(phase, state, format)
            for other in self._graphs.values():
                check_shared(graph, other)
            self._graphs[key] = graph
        return self._graphs[key]

    def _first(self, phase: str) -> Graph | None:
        """The graph of a phase when the net is made, so that its errors of shape are raised there. None if layers do
        not fit together in this phase, which may never be used, or if its data cannot be read, which may come later."""
        from minidnn.data import DataError

        if self._problems(phase, self.parameter.state):
            return None
        try:
            return self._resolve(phase, self.parameter.state, "float32")
        except DataError:
            return None

    def _problems(self, phase: str, state: NetState) -> list[Problem]:
        return wiring(zip(self.layers, self._checked.paths, strict=True), LAYERS, phase, state)

    def _checked_graph(self, phase: str, state: NetState, format: str) -> Graph:
        if problems := self._problems(phase, state):
            where = self._checked.document.where
            raise InvalidFile([f"{where(p.path)}: in phase {phase}, {p.message}" for p in problems])
        return self._resolve(phase, state, format)

    def _resolve(self, phase: str, state: NetState, format: str) -> Graph:
        from minidnn.data import DataError

        document = self._checked.document
        here = {id(layer): path for layer, path in zip(self.layers, self._checked.paths, strict=True)}
        try:
            graph = resolve(
                self.name or "",
                phase,
                [layer for layer in self.layers if layer.included(phase, state)],
                LAYERS,
                lambda layer: document.place(here[id(layer)]),
                _shapes,
                owners(self.layers),
                self.force_backward,
                format,
                document.place(self._checked.at),
            )
            graph.old = document.old
            return graph
        except DataError as error:
            folder = os.path.dirname(document.source)
            if folder in ("", ".") or not nowhere(self.parameter):
                raise
            raise DataError(f"{error} (relative paths start at the working folder, or else at {folder})") from error

    def initial(self, seed: int = 0, phase: str = "TRAIN", state: NetState | None = None) -> dict[str, np.ndarray]:
        """The first values of the phase's parameters by tensor name, float32. They depend on seed and name alone."""
        drawn = self.drawn(seed, phase, state)
        shapes = {n.tensor_name(p): p.shape for n in self.graph(phase, state).layers for p in n.parameters}
        return {name: drawn[name].whole().reshape(shape) for name, shape in shapes.items()}

    def drawn(self, seed: int = 0, phase: str = "TRAIN", state: NetState | None = None) -> dict[str, Rows]:
        """Like `initial`, but drawn a few rows at a time, in Caffe's blob shapes."""
        result: dict[str, Rows] = {}
        for node in self.graph(phase, state).layers:
            for p in node.parameters:
                name, shape = node.tensor_name(p), p.blob_shape or p.shape
                if name in result:  # of layers that share it, the first has the filler
                    continue
                given = self.weights.get("/".join(name.rsplit(".", 1)), self.weights.get(f"{node.name}/{p.name}"))
                what = f"{node.place}: layer {node.name}: its {p.name}"
                result[name] = fill(p.filler, shape, seed, name) if given is None else _own(given, shape, what)
        return result


def _own(values: np.ndarray, shape: Shape, what: str) -> Rows:
    """The rows of a blob that the net begins with. Raises InvalidFile unless they fit this shape."""
    if values.size != prod(shape):
        raise InvalidFile([f"{what} has shape {shape}, but the net comes with one of {values.shape}"])
    return of(np.asarray(values, np.float32).reshape(shape))


def _file(parameter: NetParameter) -> dict[str, Any]:
    """The plain values of this net's file: the layers come last, always as a list."""
    data = plain(parameter)
    return {**{k: v for k, v in data.items() if k != "layer"}, "layer": [plain(layer) for layer in parameter.layer]}


def _with_batch(parameter: NetParameter, batch: int) -> NetParameter:
    if isinstance(batch, bool) or not isinstance(batch, int | np.integer) or not 1 <= batch <= LARGEST:
        raise InvalidFile([f"net {parameter.name}: batch: expected at least 1 and at most {LARGEST}, got {batch!r}"])
    batch = int(batch)
    return parameter.model_copy(
        update={"layer": tuple(LAYERS[layer.type].with_batch(layer, batch) for layer in parameter.layer)}
    )


def _with_images(parameter: NetParameter, side: int) -> NetParameter:
    layers = tuple(LAYERS[layer.type].with_images(layer, side, _shapes) for layer in parameter.layer)
    if all(new is old for new, old in zip(layers, parameter.layer, strict=True)):
        raise InvalidFile([f"net {parameter.name}: no Data or Input layer gives images, (N, C, H, W)"])
    return parameter.model_copy(update={"layer": layers})


def _with_tokens(parameter: NetParameter, length: int) -> NetParameter:
    layers = tuple(LAYERS[layer.type].with_tokens(layer, length) for layer in parameter.layer)
    return parameter.model_copy(update={"layer": layers})


def _source_of(layer: LayerParameter) -> str:
    return layer.data_param.source if layer.type == "Data" and layer.data_param is not None else ""


def _shapes(data_param: Any, transform_param: Any, phase: str) -> tuple[Shape, Shape]:
    from minidnn.data import shapes

    return shapes(data_param, transform_param, phase)
