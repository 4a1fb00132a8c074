"""Where a real op's results differ in bytes from those of tensors without values."""

from __future__ import annotations

import functools
from typing import Any

from minidnn.torch.experimental import without_modes
from minidnn.torch.scratch.table import LARGER, REDUCING

PAGE = 4096
LINE = 16  # float32 in a cache line

# What autograd's own formulas do in place to tensors of their own, but out of place to tensors without values.
IN_PLACE = frozenset({"scatter", "scatter_add", "index_put", "index_add"})
IN_PLACE_OF = {"BinaryCrossEntropyWithLogitsBackward0": frozenset({"sub", "mul", "div"})}


def nbytes(name: str, args: tuple[Any, ...], at: int, result: Any) -> int:
    """The bytes of the storage of result number `at` of an op, once it is real."""
    import torch

    shown: int = result.untyped_storage().nbytes()
    own = name.removeprefix("aten.")
    if own in LARGER and (own not in REDUCING or not result.dim()):
        return max(shown, args[0].numel() * args[0].element_size())
    if name == "aten.mkldnn_rnn_layer" and at == 3 and args[-1] and torch.is_grad_enabled():  # the last: for training
        return _lstm(args[0], args[2].shape[1])
    return shown


def in_place(node: str, name: str) -> bool:
    """Whether an op of autograd's node writes its result over its first argument, if the node made that."""
    short = name.split(".")[1]
    return node.endswith(("Backward0", "Backward1")) and short in IN_PLACE | IN_PLACE_OF.get(node, frozenset())


def _lstm(x: Any, hidden: int) -> int:
    """What oneDNN's LSTM keeps for backward, float32: gates, some states of each step as wide as inputs and outputs,
    two as wide as outputs, and the cells. Each begins on a page."""
    steps, batch, inputs = x.shape
    states = 2 * (steps + 1) * batch
    parts = (
        steps * batch * _width(4 * hidden),
        *_wide_states() * (states * _width(max(inputs, hidden)),),
        *2 * (states * hidden,),
        steps * batch * _width(hidden),
    )
    return sum(-(-4 * count // PAGE) * PAGE for count in parts)


@functools.cache
def _wide_states() -> int:
    """How many states as wide as inputs and outputs oneDNN keeps, which depends on its version: of a tiny LSTM, which
    is computed here, each of the parts is a page."""
    import torch

    with without_modes(), torch.enable_grad():
        x, h, weight, bias = (torch.zeros(shape) for shape in ((1, 1, 16), (1, 16), (64, 16), (64,)))
        weights = (weight, weight, bias, bias)
        result = torch.ops.aten.mkldnn_rnn_layer(x, *weights, h, h, False, [], 2, 16, 1, True, False, False, True)
    return int(result[3].numel()) // PAGE - 4


def _width(count: int) -> int:
    """The elements that oneDNN takes for a row: whole cache lines, and no multiple of 1 KiB."""
    whole = -(-count // LINE) * LINE
    return whole + LINE if whole % 256 == 0 else whole
