"""What a trace of a module holds for: while the key is the same, one serves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from minidnn.torch.arguments import Arguments
from minidnn.torch.installed import torch_module
from minidnn.torch.modes import modes
from minidnn.torch.parameters import Parameters

if TYPE_CHECKING:
    import torch


def key_of(arguments: Arguments, parameters: Parameters, training: bool, state: int) -> tuple[Any, ...]:
    """The key of a step.

    state: the number of what its Python may read (Fingerprint)"""
    torch = torch_module()
    shapes = tuple((*_geometry(t), parameters.aliases(t)) for t in arguments.tensors)
    plain = tuple(None if isinstance(x, torch.Tensor) else _hashed(x) for x in arguments.leaves)
    own = tuple(map(_geometry, parameters.own))
    return repr(arguments.tree), plain, shapes, training, state, own, modes()


def _geometry(t: torch.Tensor) -> tuple[Any, ...]:
    return tuple(t.shape), t.stride(), t.dtype, t.device, t.requires_grad


def _hashed(value: Any) -> Any:
    try:
        hash(value)
    except TypeError:
        return repr(value)
    return value
