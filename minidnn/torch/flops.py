"""The floating-point operations of a call of PyTorch, a multiply-add as two.

PyTorch counts its products itself (torch.utils.flop_counter). This file has those that it leaves out: attention on the
CPU, and recurrent layers. Of any other op, one operation counts for each element that it makes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from minidnn.torch.experimental import flop_formulas


def flops(target: Any, args: Sequence[Any], kwargs: Mapping[str, Any], value: Any) -> int:
    """The operations of a call. args, kwargs, value: with tensors, of which the shapes count"""
    registry, packet = flop_formulas(), getattr(target, "overloadpacket", None)
    if packet in registry:
        return int(registry[packet](*args, **kwargs, out_val=value))
    name = getattr(packet, "__name__", "")
    if name in _OTHERS:
        return _OTHERS[name](args)
    return sum(_elements(v) for v in (value if isinstance(value, list | tuple) else [value]))


def _elements(x: Any) -> int:
    return int(x.numel()) if hasattr(x, "numel") else 0


def _attention(args: Sequence[Any]) -> int:
    """Queries by keys, and the weights by values."""
    q, k, v = (tuple(x.shape) for x in args[:3])
    batch, heads, queries, width = q
    return 2 * batch * heads * queries * k[2] * (width + v[3])


def _attention_backward(args: Sequence[Any]) -> int:
    """The forward products again, and two gradients of each, of which the weights' own is kept: 5 products for 2."""
    return 5 * _attention(args[1:]) // 2


def _recurrent(args: Sequence[Any], weights: Sequence[Any]) -> int:
    """Each weight by the rows of each step."""
    steps = _elements(args[0]) // max(1, int(args[0].shape[-1]))
    return 2 * steps * sum(_elements(w) for w in weights if w is not None and len(w.shape) > 1)


_OTHERS: dict[str, Callable[[Sequence[Any]], int]] = {
    "_scaled_dot_product_flash_attention_for_cpu": _attention,
    "_scaled_dot_product_flash_attention_for_cpu_backward": _attention_backward,
    "mkldnn_rnn_layer": lambda args: _recurrent(args, args[1:3]),
    "mkldnn_rnn_layer_backward": lambda args: 2 * _recurrent(args, args[1:3]),
    "_cudnn_rnn": lambda args: _recurrent(args, args[1]),
    "_cudnn_rnn_backward": lambda args: 2 * _recurrent(args, args[1]),
}
