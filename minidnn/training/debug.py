"""Caffe's debug_info: mean absolute values of one step's tops, gradients and parameters, by layer.

They are taken as each op ends, before other tensors get the bytes. A tensor that no op stores has none: a top
within a fused op, or a gradient that is another tensor itself, as below a sum.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from minidnn.nets.graph import Node
from minidnn.program import Tensor
from minidnn.training.session import Session


class Watch:
    """Watches one step of TRAIN: hand it to `Session.step` as `observe`, then ask for its `values`."""

    def __init__(self, session: Session) -> None:
        self._layers = session.graphs["TRAIN"].layers
        self._seen: dict[str, float] = {}  # by tensor name
        self._before = {t.name: _mean(rows.pieces()) for t, rows in session.parameter_rows().items()}

    def __call__(self, tensor: Tensor, values: np.ndarray) -> None:
        self._seen[tensor.name] = _mean([values])

    def values(self) -> dict[str, float]:
        """The values by Caffe's words: "[Forward] Layer conv1, top blob conv1 data", in Caffe's order."""
        result: dict[str, float | None] = {}
        for node in self._layers:
            where = f"[Forward] Layer {node.name}"
            for blob in node.tops:
                result[f"{where}, top blob {blob.name} data"] = self._seen.get(blob.tensor.name)
            for i, name in enumerate(_parameters(node)):
                result[f"{where}, param blob {i} data"] = self._before.get(name)
        for node in reversed(self._layers):
            where = f"[Backward] Layer {node.name}"
            for i, blob in enumerate(node.bottoms):
                whole = f"{blob.tensor.name}.grad"
                result[f"{where}, bottom blob {blob.name} diff"] = self._first(
                    f"{whole}.{node.name}", f"{whole}.{node.name}.{i}", whole
                )
            for i, name in enumerate(_parameters(node)):
                result[f"{where}, param blob {i} diff"] = self._first(f"{name}.grad.part.{node.name}", f"{name}.grad")
        for node in self._layers:
            for i, name in enumerate(_parameters(node)):
                result[f"[Update] Layer {node.name}, param blob {i} data"] = self._seen.get(name)
        return {what: value for what, value in result.items() if value is not None}

    def _first(self, *names: str) -> float | None:
        """The value of the first of these tensors that was written."""
        return next((self._seen[name] for name in names if name in self._seen), None)


def _parameters(node: Node) -> list[str]:
    return [node.tensor_name(p) for p in node.parameters]


def _mean(pieces: Iterable[np.ndarray]) -> float:
    """The mean absolute value of all elements."""
    total, count = 0.0, 0
    for piece in pieces:
        total, count = total + float(np.abs(piece).sum(dtype=np.float64)), count + piece.size
    return total / max(count, 1)
