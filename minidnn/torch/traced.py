"""The graph of a step, and where two of them differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from minidnn.torch.constants import Asked
from minidnn.torch.installed import torch_module
from minidnn.torch.places import Place

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, eq=False)
class Traced:
    """The graph of a step, as torch.fx has it.

    Its placeholders are the parameters, the buffers, the tensors among the arguments, and in training the gradient of
    the loss. Its outputs are the loss and the gradients, or without training the tensors that the module returns.

    places:     where each node comes from, by its name
    backward:   the names of the nodes of the backward pass
    parameters: their names, in order; buffers: likewise
    trained:    the parameters that get a gradient: None stands for one that the loss does not depend on
    result:     the structure of what the module returns
    asked:      the values by which it chose what to run
    """

    graph: torch.fx.GraphModule
    places: Mapping[str, Place]
    backward: frozenset[str]
    parameters: tuple[str, ...]
    buffers: tuple[str, ...]
    inputs: int
    trained: tuple[str, ...]
    training: bool
    result: Any = None
    asked: tuple[Asked, ...] = ()

    def holds(self, inputs: Sequence[torch.Tensor]) -> bool:
        """Whether the module would run the same ops for these tensors of the arguments."""
        return all(value.holds(inputs) for value in self.asked)


def difference(first: Traced, second: Traced) -> Place | None:
    """Where two graphs begin to differ; None if they do not."""
    numbers: tuple[dict[Any, int], dict[Any, int]] = {}, {}
    pairs = zip_longest(first.graph.graph.nodes, second.graph.graph.nodes)
    for i, (one, other) in enumerate(pairs):
        if one is None or other is None or _text(first, one, numbers[0]) != _text(second, other, numbers[1]):
            return first.places.get(one.name, Place()) if one is not None else second.places.get(other.name, Place())
        numbers[0][one], numbers[1][other] = i, i
    return None


def _text(traced: Traced, node: torch.fx.Node, numbers: Mapping[Any, int]) -> Any:
    torch = torch_module()
    if node.op == "get_attr":
        value = getattr(traced.graph, str(node.target))
        if not isinstance(value, torch.Tensor) or value.requires_grad or value.numel() > 1 << 16:
            return id(value)
        return str(value.dtype), tuple(value.shape), value.cpu().numpy().tobytes() if value.numel() else b""
    given = torch.fx.node.map_arg((node.args, node.kwargs), lambda n: f"%{numbers[n]}")
    return node.op, str(node.target), repr(given)
