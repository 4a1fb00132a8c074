"""The arguments of a step, and the values among them that hold no tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from minidnn.torch.experimental import trees
from minidnn.torch.installed import torch_module

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, eq=False)
class Arguments:
    """The arguments of a step: their structure, the tensors among them, and all else, which a plan is made for."""

    tree: Any
    leaves: tuple[Any, ...]

    @classmethod
    def of(cls, args: Sequence[Any], kwargs: Mapping[str, Any] | None = None) -> Arguments:
        leaves, tree = trees().tree_flatten((tuple(args), dict(kwargs or {})))
        return cls(tree, tuple(leaves))

    @property
    def tensors(self) -> tuple[torch.Tensor, ...]:
        torch = torch_module()
        return tuple(x for x in self.leaves if isinstance(x, torch.Tensor))

    def with_tensors(self, tensors: Sequence[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The positional arguments and those by keyword, with these tensors in place of the own ones."""
        torch, given = torch_module(), iter(tensors)
        leaves = [next(given) if isinstance(x, torch.Tensor) else x for x in self.leaves]
        args, kwargs = trees().tree_unflatten(leaves, self.tree)
        return args, kwargs


def is_plain(value: Any) -> bool:
    """Whether a value holds no tensors."""
    torch = torch_module()
    of_torch = (torch.dtype, torch.device, torch.layout, torch.memory_format)
    return isinstance(value, (type(None), bool, int, float, complex, str, bytes, Enum, type, *of_torch))
