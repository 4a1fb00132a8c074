"""Values that a module asks for while it is traced, and that need neither parameters nor what it computes from them.

`transformers`, for instance, asks whether positions that it has counted itself begin anew, and whether a mask that is
an argument masks anything. Eager mode computes these values, too, so a trace takes the path that they tell. Where
arguments decide, the trace holds for arguments that tell the same: each step asks them again (`Asked.holds`).
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from minidnn.torch.experimental import schema_of, trees, without_modes
from minidnn.torch.installed import torch_module

if TYPE_CHECKING:
    import torch

MOST = 200  # ops that are computed for one value, at most


class _Result(NamedTuple):
    """In place of a tensor among the arguments of a call: the result of an earlier one."""

    number: int


class _Input(NamedTuple):
    """In place of a tensor: one of those among the step's arguments."""

    place: int


@dataclass(frozen=True, eq=False)
class Asked:
    """A truth or a whole number that the module has asked for: the calls that compute it, and what they gave.

    of_inputs: whether arguments of the step decide"""

    calls: tuple[tuple[Any, Any, Any], ...]
    of_inputs: bool
    value: Any = None

    def compute(self, inputs: Sequence[torch.Tensor]) -> Any:
        """The value for these tensors of the arguments."""
        results: list[Any] = []

        def given(x: Any) -> Any:
            if isinstance(x, _Result):
                return results[x.number]
            return inputs[x.place] if isinstance(x, _Input) else x

        leaf = lambda x: isinstance(x, _Result | _Input)  # noqa: E731
        with without_modes(), torch_module().no_grad():
            for target, args, kwargs in self.calls:
                args, kwargs = trees().tree_map(given, (args, kwargs), is_leaf=leaf)
                results.append(target(*args, **kwargs))
            return results[-1].item()

    def holds(self, inputs: Sequence[torch.Tensor]) -> bool:
        """Whether these arguments give the same value."""
        return not self.of_inputs or bool(self.compute(inputs) == self.value)


def asked(node: torch.fx.Node | None, inputs: Mapping[torch.fx.Node, tuple[int, torch.Tensor]]) -> Asked | None:
    """The value of one element that a node gives. None where it depends on parameters, on random numbers, or on what
    changes in place; and where arguments decide a number with a fraction, which differs from step to step.

    inputs: the placeholders of the arguments, with their places among these and their values"""
    if node is None or (behind := _behind(node, inputs)) is None:
        return None
    torch = torch_module()
    calls = {n: k for k, n in enumerate(n for n in behind if n not in inputs)}

    def stand_in(n: Any) -> Any:
        return _Input(inputs[n][0]) if n in inputs else _Result(calls[n])

    result = Asked(
        tuple((n.target, *torch.fx.node.map_arg((n.args, n.kwargs), stand_in)) for n in calls), len(calls) < len(behind)
    )
    given = {index: t for index, t in inputs.values()}
    value = result.compute([given.get(i) for i in range(max(given, default=-1) + 1)])  # type: ignore[misc]
    if result.of_inputs and not isinstance(value, bool | int):
        return None
    return Asked(result.calls, result.of_inputs, value)


def _behind(node: torch.fx.Node, inputs: Mapping[torch.fx.Node, Any]) -> list[torch.fx.Node] | None:
    """The nodes that a node depends on, and itself, in an order that can be computed; None: not by themselves."""
    found: dict[torch.fx.Node, None] = {}
    left = [node]
    while left:
        n = left.pop()
        if n in found:
            continue
        if n not in inputs:
            tags = getattr(n.target, "tags", ())
            if n.op != "call_function" or torch_module().Tag.nondeterministic_seeded in tags or len(found) == MOST:
                return None
            left += n.all_input_nodes
        if _changes(n) or any(_changes(user) for user in n.users):
            return None
        found[n] = None
    order = {n: i for i, n in enumerate(node.graph.nodes)}
    return sorted(found, key=order.__getitem__)


def _changes(node: torch.fx.Node) -> bool:
    schema = schema_of(node.target)
    return schema is not None and bool(schema.is_mutable)


@contextlib.contextmanager
def eager_paths() -> Iterator[None]:
    """Let libraries that look for tensors without values take the paths that they take in eager mode: `transformers`
    would make a mask that eager mode leaves to the kernel, whose bits are others."""
    utils = sys.modules.get("transformers.utils.import_utils")
    asked = getattr(utils, "is_fake_tensor", None)
    if asked is not None:
        utils.is_fake_tensor = lambda x: False  # type: ignore[union-attr]
    try:
        yield
    finally:
        if asked is not None:
            utils.is_fake_tensor = asked  # type: ignore[union-attr]
