"""How results of PyTorch's kernels lie in memory, where its fake kernels say otherwise.

A gradient that comes transposed, or in channels-last, shows it: the kernel gives a contiguous result, and the fake one
gives what it was given. All that reads the result would then be traced for a layout that it never has.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from minidnn.torch.experimental import schema_of
from minidnn.torch.installed import torch_module

Like = Callable[[Sequence[Any], Any], Any]  # (the arguments, the result): a tensor that lies as the result does


def _contiguous(args: Sequence[Any], result: Any) -> Any:
    return result.contiguous()


def _as_images(at: int) -> Like:
    """In channels-last if that argument is, else contiguous."""
    return lambda args, result: result.contiguous(memory_format=_format(args[at]))


def _format(x: Any) -> Any:
    torch = torch_module()
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    wanted = formats.get(x.dim())
    last = wanted is not None and x.is_contiguous(memory_format=wanted) and not x.is_contiguous()
    return wanted if last else torch.contiguous_format


def _as_of(first: int, second: int) -> Like:
    """As an op on two operands gives it, the first of which decides if they lie differently."""
    return lambda args, result: args[first] + args[second]


LIKE: dict[str, Like] = {
    "native_layer_norm_backward": _contiguous,
    "_log_softmax_backward_data": _contiguous,
    "native_batch_norm": _as_images(0),
    "native_batch_norm_backward": _as_images(1),
    "threshold_backward": _as_of(1, 0),
    "hardtanh_backward": _as_of(0, 1),
    "hardsigmoid_backward": _as_of(0, 1),
    "hardswish_backward": _as_of(0, 1),
    "elu_backward": _as_of(0, 5),
}


def corrected(target: Any, args: Sequence[Any], result: Any) -> Any:
    """What a fake kernel has given, the first tensor of which lies as the real kernel's does. To be called where new
    tensors are fake."""
    like = LIKE.get(schema_of(target).name.partition("::")[2])
    if like is None:
        return result
    several = isinstance(result, list | tuple)
    first = result[0] if several else result
    if first is None:
        return result
    wanted = like(args, first)
    if wanted.stride() == first.stride():
        return result
    torch = torch_module()
    first = torch.empty_strided(tuple(first.shape), wanted.stride(), dtype=first.dtype, device=first.device)
    return (first, *result[1:]) if several else first
