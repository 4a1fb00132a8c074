"""What a module returns: its structure, the loss in it, and what a step gives in its place."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from minidnn.errors import InvalidInput
from minidnn.torch.arguments import is_plain
from minidnn.torch.experimental import trees
from minidnn.torch.installed import torch_module

if TYPE_CHECKING:
    import torch

TENSOR = object()  # stands for a tensor in the structure of a result


@dataclass(frozen=True)
class NotReturned:
    """Stands in a module's result for an object that may hold tensors, such as a cache of keys and values."""

    kind: str

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise InvalidInput(
            f"a planned step does not return the module's {self.kind}, which may hold tensors: it returns tensors and "
            "plain values, in tuples, lists and dicts; call the module itself for it"
        )


def returned(value: Any) -> Any:
    """A leaf of a module's result, as it is kept with the graph."""
    if isinstance(value, torch_module().Tensor):
        return TENSOR
    return value if is_plain(value) else NotReturned(type(value).__name__)


def rebuilt(structure: Any, tensors: Sequence[torch.Tensor]) -> Any:
    """What a module returned, with these tensors in it."""
    rest = iter(tensors)
    leaves, spec = structure
    return trees().tree_unflatten([next(rest) if x is TENSOR else x for x in leaves], spec)


def scalar(value: Any, module: torch.nn.Module) -> tuple[torch.Tensor, Any]:
    """The loss in what a module or a loss function returns, and how to give it back: None as it is, else a function
    of the loss."""
    torch, name = torch_module(), type(module).__name__
    wrap = None
    if isinstance(value, Mapping) and "loss" in value:  # as `transformers` returns it
        others = frozenset(key for key in value if key != "loss" and value[key] is not None)
        wrap, value = partial(_with_loss, type(value), _partly(type(value), others)), value["loss"]

    if not isinstance(value, torch.Tensor) or value.dim():
        got = f"a tensor of shape {tuple(value.shape)}" if isinstance(value, torch.Tensor) else type(value).__name__
        raise InvalidInput(
            f"{name} gives {got}, where one number is to be minimized: name loss=..., or return the loss from the "
            "module, alone or as result['loss']; add several losses up"
        )
    if not value.requires_grad:
        raise InvalidInput(f"the loss of {name} depends on no parameter that has requires_grad")
    return value, wrap


def _with_loss(kind: Any, partly: Any, loss: torch.Tensor) -> Any:
    """A result of this kind with the loss alone, which tells so where the rest is asked for."""
    if kind is dict:
        return partly(loss=loss)
    result = kind(loss=loss)
    with contextlib.suppress(TypeError):  # a class that cannot be another
        result.__class__ = partly
    return result


def _partly(kind: Any, others: frozenset[str]) -> Any:
    """A class of results that have the loss alone."""

    def missing(key: str) -> InvalidInput:
        return InvalidInput(
            f"a planned step returns the loss alone, and {key!r} is freed as soon as it is not needed: call the module "
            "itself under torch.no_grad() for it, or add what is to be minimized to the loss"
        )

    class Partly(kind):  # type: ignore[misc]
        def __getitem__(self, key: Any) -> Any:
            if key in others:
                raise missing(key)
            return super().__getitem__(key)

        def __getattribute__(self, name: str) -> Any:
            if name in others:
                raise missing(name)
            return super().__getattribute__(name)

        def get(self, key: Any, default: Any = None) -> Any:
            return self[key] if key in others or key in self else default

        def __repr__(self) -> str:
            return f"{kind.__name__}(loss={self['loss']})"

    return Partly
