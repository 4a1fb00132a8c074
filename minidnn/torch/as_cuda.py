"""The ops that CUDA would have, where PyTorch has none: a module that is traced for a GPU on a machine without.

Two functions take other ops there than on a CPU, with other bytes: a dropout is one op whose mask has a byte an element
(4 on a CPU), and attention is fused where a CPU's is not (with dropout, with a mask). Which fused attention it is
follows PyTorch's own choice: flash attention in 16 bits without a mask, else the memory-efficient one. All other ops
are those of the CPU.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from minidnn.torch.installed import torch_module

WIDEST = 256  # of a head, in flash attention


@contextlib.contextmanager
def as_cuda() -> Iterator[None]:
    """Within it, dropout and attention are those of CUDA, for tensors without values."""
    torch = torch_module()
    functional = torch.nn.functional
    plain = functional.dropout, functional.scaled_dot_product_attention
    known: dict[Any, Callable[..., Any]] = {plain[0]: _dropout(plain[0]), plain[1]: _attention(plain[1])}

    class Mode(torch_module("overrides").TorchFunctionMode):  # type: ignore[misc]  # it is Any without PyTorch
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return known.get(func, func)(*args, **(kwargs or {}))

    functional.dropout, functional.scaled_dot_product_attention = known[plain[0]], known[plain[1]]  # of nested calls
    try:
        with Mode():
            yield
    finally:
        functional.dropout, functional.scaled_dot_product_attention = plain


def _dropout(plain: Callable[..., Any]) -> Callable[..., Any]:
    torch = torch_module()

    def dropout(input: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
        if not training or inplace or not 0 < p < 1:
            return plain(input, p, training, inplace)
        return torch.ops.aten.native_dropout(input, p, True)[0]

    return dropout


def _attention(plain: Callable[..., Any]) -> Callable[..., Any]:
    torch = torch_module()

    def attention(
        query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0, is_causal: bool = False,
        scale: float | None = None, enable_gqa: bool = False,
    ) -> Any:  # fmt: skip
        width = int(query.shape[-1])
        half = query.dtype in (torch.float16, torch.bfloat16)
        alike = query.dim() == 4 and (enable_gqa or key.shape[-3] == query.shape[-3])
        if half and attn_mask is None and width <= WIDEST and alike and value.shape[-1] == width:
            return _flash(torch, query, key, value, dropout_p, is_causal, scale)
        if alike and not enable_gqa and not width % (8 if half else 4):
            bias = None if attn_mask is None else _bias(torch, attn_mask, query, key)
            compute = torch.is_grad_enabled()
            op = torch.ops.aten._scaled_dot_product_efficient_attention
            return op(query, key, value, bias, compute, dropout_p, is_causal, scale=scale)[0]
        return plain(
            query, key, value, attn_mask=attn_mask, dropout_p=dropout_p, is_causal=is_causal, scale=scale,
            enable_gqa=enable_gqa,
        )  # fmt: skip

    return attention


def _flash(torch: Any, query: Any, key: Any, value: Any, dropout_p: float, is_causal: bool, scale: float | None) -> Any:
    """Flash attention, of heads that are padded to a multiple of 8."""
    width = int(query.shape[-1])
    scale = width**-0.5 if scale is None else scale
    more = -width % 8
    if more:
        query, key, value = (torch.nn.functional.pad(x, (0, more)) for x in (query, key, value))
    op = torch.ops.aten._scaled_dot_product_flash_attention
    return op(query, key, value, dropout_p, is_causal, scale=scale)[0][..., :width]


def _bias(torch: Any, mask: Any, query: Any, key: Any) -> Any:
    """A mask as the kernel adds it: of numbers, and as large as the scores."""
    if mask.dtype == torch.bool:
        mask = torch.zeros_like(mask, dtype=query.dtype).masked_fill_(mask.logical_not(), float("-inf"))
    return mask.expand(query.shape[0], query.shape[1], query.shape[2], key.shape[2])
