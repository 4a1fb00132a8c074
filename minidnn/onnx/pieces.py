"""Parameters that nodes cut into rows and put together again, for an LSTM or a GRU.

PyTorch's exporters bring a module's gates into ONNX's order that way. The nodes are computed with the numbers of the
parameters' elements in place of the elements: so it is known which parameter a weight is, and where its rows come from.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from minidnn.onnx.constants import Budget, fold
from minidnn.onnx.node import Node, Reader, Refused
from minidnn.onnx.weight import Rows, Weight

CELLS = ("LSTM", "GRU")
MOVES = ("Identity", "Slice", "Concat", "Squeeze", "Unsqueeze", "Reshape")


def of_cells(nodes: Iterable[Node]) -> set[str]:
    """The values that are weights of an LSTM or a GRU, and those that these come from by moves."""
    result = set[str]()
    for node in reversed(list(nodes)):
        if node.type in CELLS:
            result.update(node.inputs[1:4])
        elif node.type in MOVES and result.intersection(node.outputs):
            result.update(node.inputs)
    return result - {""}


def follow(r: Reader, node: Node, budget: Budget) -> bool:
    """Whether the node moves elements of parameters alone; then it is known which its output has. Raises Refused if it
    cannot be computed."""
    moved = len(node.inputs) if node.type == "Concat" else 1  # the inputs behind these say how
    elements = [_elements(r, name) for name in node.inputs[:moved]]
    how = [r.known(name) if name else None for name in node.inputs[moved:]]
    if any(e is None for e in elements) or any(h is None and n for h, n in zip(how, node.inputs[moved:], strict=True)):
        return False
    (r.pieces[node.outputs[0]],) = fold(node, [*elements, *how], budget)
    return True


def _elements(r: Reader, name: str) -> np.ndarray | None:
    """The numbers of a value's elements; None if they are not those of parameters alone."""
    if name in r.pieces:
        return r.pieces[name]
    weight = r.parameters.get(name)
    if weight is None or weight.turns or weight.name in r.apart:
        return None
    first, _ = r.elements.setdefault(weight.name, (sum(w.size for _, w in r.elements.values()), weight))
    return first + np.arange(weight.size).reshape(weight.shape)


def weight_of(r: Reader, numbers: np.ndarray, what: str) -> Weight:
    """The parameter whose rows, in another order, are the elements of these numbers (rows, columns). Raises Refused if
    there is none."""
    rows, columns = numbers.shape
    for first, weight in r.elements.values():
        places = (numbers[:, 0] - first) // columns
        if weight.size == numbers.size and np.array_equal(np.sort(places), np.arange(rows)):
            if not np.array_equal(numbers, first + places[:, None] * columns + np.arange(columns)):
                break
            turn = (rows, columns), Rows(tuple(int(p) for p in places))
            lying = weight.numbers.reshape(rows, columns)[places]
            return replace(weight, numbers=lying, turns=(*weight.turns, turn))
    raise Refused(f"its {what} is put together of several parameters, and minidnn's layer has one there")
