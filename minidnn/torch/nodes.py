"""Autograd's nodes: the module and the line to which each belongs, and which of them runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from minidnn.torch.experimental import storage_of, trees

LABEL = "minidnn"  # the entry of a node's metadata that says that it is known


@dataclass(frozen=True)
class Node:
    """A node whose backward runs.

    name:   "MulBackward0"; a Python function's has no number
    module: the path of the module whose forward made it
    line:   FILE:LINE of the user's code that did
    given:  the gradients that it got, by the addresses of their storages
    first:  how many storages there had been when it began
    twice:  whether it gives two gradients for one tensor
    """

    name: str
    module: str
    line: str
    given: frozenset[int]
    first: int
    twice: bool


class Nodes:
    """The nodes of a step. `running` is the last whose backward began; None before.

    count: tells how many storages there have been"""

    def __init__(self, count: Callable[[], int]) -> None:
        self.running: Node | None = None
        self._count = count

    def label(self, nodes: list[Any], module: str, line: str) -> None:
        """These nodes and those behind them, as far as they are new, belong to this module and line."""
        todo = list(nodes)
        while todo:
            node = todo.pop()
            name = node.name()
            if LABEL in node.metadata or name.endswith("AccumulateGrad"):
                continue
            node.metadata[LABEL] = True
            edges = [edge for edge in node.next_functions if edge[0] is not None]
            twice = len(set(edges)) < len(edges)
            node.register_prehook(partial(self._begin, name, module, line, twice))
            todo += (other for other, _ in edges)

    def _begin(self, name: str, module: str, line: str, twice: bool, gradients: tuple[Any, ...]) -> None:
        given = frozenset(storage_of(x) for x in gradients if x is not None)
        self.running = Node(name, module, line, given, self._count(), twice)


def nodes_of(results: Any) -> list[Any]:
    """The nodes that made the tensors among some results."""
    found = (getattr(x, "grad_fn", None) for x in trees().tree_leaves(results))
    return [node for node in found if node is not None]
