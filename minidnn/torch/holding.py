"""The parameters and buffers of a module where it holds them, and others in their place for a while."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from minidnn.errors import InvalidInput
from minidnn.torch.experimental import dicts_of

if TYPE_CHECKING:
    import torch


class Held(NamedTuple):
    """A parameter or a buffer where a module holds it."""

    name: str
    held: dict[str, Any]
    key: str
    real: Any


def held_by(module: torch.nn.Module) -> list[Held]:
    """All that it holds, each as often as it does."""
    return [
        Held(f"{name}.{key}" if name else key, held, key, t)
        for name, m in module.named_modules() for held in dicts_of(m)[:2] for key, t in held.items()
    ]  # fmt: skip


@contextlib.contextmanager
def replaced(held: Sequence[Held], own: Mapping[int, Any]) -> Iterator[None]:
    """Other tensors in place of the module's own, wherever it holds them. own: the others, by its own ones' identity"""
    for x in held:
        if x.real is not None:
            x.held[x.key] = own[id(x.real)]
    try:
        yield
    finally:
        for x in held:
            x.held[x.key] = x.real


def keep_assigned(held: Sequence[Held], own: Mapping[int, Any], name: str) -> None:
    """Write what was assigned to a buffer into it. Raises InvalidInput where it does not fit."""
    for x in held:
        now, was = x.held.get(x.key), own.get(id(x.real))
        if now is was:
            continue
        if was is None or now is None or was.requires_grad or (now.shape, now.dtype) != (was.shape, was.dtype):
            raise InvalidInput(
                f"{name} replaces {x.name} in forward by what has another shape or type, or is another parameter: let "
                "it have its shape from the beginning, and change it in place"
            )
        was.detach().copy_(now.detach())
