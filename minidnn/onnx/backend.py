"""minidnn as a backend of ONNX's own tests, which run models by `run_model` and single nodes by `run_node`.

A model is read anew for each call, with the values of its inputs known. So a test can run that gives a filter as an
input, where a net has a parameter."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from minidnn.nets.net import Net
from minidnn.onnx.ends import Given
from minidnn.onnx.node import Reader
from minidnn.onnx.package import onnx
from minidnn.onnx.reading import walk
from minidnn.schema import Document
from minidnn.training.session import Session


class Model:
    """A model, ready to run: what `Backend.prepare` of onnx returns."""

    def __init__(self, model: Any, device: str) -> None:
        self.model, self.device = model, device

    def run(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The outputs, in the graph's order. Raises InvalidModel if minidnn has no layers for a node."""
        graph = self.model.graph
        known = {t.name for t in graph.initializer}
        names = [v.name for v in graph.input if v.name not in known]
        values = dict(zip(names, map(np.asarray, inputs), strict=False))
        reader, _ = walk(self.model, "model", Given(values=values, trained=()))
        wanted = [o.name for o in graph.output]
        blobs = {name: reader.blobs[name] for name in wanted if name in reader.blobs}
        result: dict[str, np.ndarray] = {}
        if blobs:
            net = Net.from_document(Document({"name": "model", "layer": reader.finished()}, what="model"))
            given = {reader.blobs[n]: v for n, v in values.items() if n in reader.blobs}
            result = {**given, **self._outputs(net, reader, given, blobs.values())}
        return [result[blobs[name]] if name in blobs else reader.constants[name] for name in wanted]

    def _outputs(
        self, net: Net, reader: Reader, inputs: Mapping[str, np.ndarray], blobs: Iterable[str]
    ) -> dict[str, np.ndarray]:
        """The values of those blobs that layers compute."""
        kept = _unread(net, blobs)
        if not kept:
            return {}
        with Session(net, device=self.device, keep=kept) as session:
            for name, value in reader.weights.items():
                layer, blob = name.rsplit("/", 1)
                session.params[layer][blob] = value
            for tensor in session.programs["TEST"].inputs:
                session.machine.write(tensor, inputs[tensor.name].astype(tensor.dtype), "TEST")
            session.step("TEST")
            return {b.name: session.machine.read(b.tensor, "TEST") for b in session.outputs("TEST")}


def _unread(net: Net, blobs: Any) -> list[str]:
    made = {top for layer in net.layers if layer.type != "Input" for top in layer.top}
    return [b for b in dict.fromkeys(blobs) if b in made]


def prepare(model: Any, device: str = "cpu", **_: Any) -> Model:
    """A model, ready to run on "cpu", "reference" or "cuda"."""
    onnx().checker.check_model(model)
    return Model(model, device.lower())


def supports_device(device: str) -> bool:
    """Whether minidnn has that device."""
    return device.lower() in ("cpu", "reference", "cuda")
