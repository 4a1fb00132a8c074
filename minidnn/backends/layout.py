"""The memory layout of tensors on the fast backends: 4-D tensors as N, H, W, C (weights as O, H, W, I), all others
C-contiguous.

The layout is a function of the shape alone. So a weight, its gradient and its momentum have the same layout, and an
element-wise kernel may run over their bytes without knowing the axes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from minidnn.program import Op, Tensor


def contiguous(shape: Sequence[int]) -> tuple[int, ...]:
    """The strides, in elements, of a C-contiguous array of this shape."""
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))


def order(axes: int) -> tuple[int, ...]:
    """The logical axes of a tensor with so many of them, in the order of memory, the innermost last."""
    return (0, 2, 3, 1) if axes == 4 else tuple(range(axes))


def strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The strides, in elements, of the logical axes: for 4-D, those of N, C, H and W."""
    if len(shape) != 4:
        return contiguous(shape)
    _, c, h, w = shape
    return (h * w * c, 1, w * c, c)


def view(buffer: np.ndarray, tensor: Tensor) -> np.ndarray:
    """The tensor's elements in logical order, (N, C, H, W) if 4-D: a view of the first `tensor.nbytes` of `buffer`."""
    elements = buffer[: tensor.nbytes].view(tensor.dtype)
    if len(tensor.shape) != 4:
        return elements.reshape(tensor.shape)
    n, c, h, w = tensor.shape
    return elements.reshape(n, h, w, c).transpose(0, 3, 1, 2)


def channels_last(shape: tuple[int, ...]) -> bool:
    """Whether axis 1, the channels, is innermost in memory: true of 4-D and 2-D tensors."""
    return len(shape) in (2, 4)


def channels_of_sum(op: Op) -> tuple[int, ...]:
    """The shape of the tensor that a bias gradient sums, with the channels on axis 1. An inner product's channels are
    the innermost in memory: but for images its last axis, and all others count its rows."""
    shape = (op.reads if len(op.writes) == 1 else op.writes)[0].shape
    rows = op.kind == "inner_product.backward_bias" and len(shape) != 4
    return (math.prod(shape[:-1]), shape[-1]) if rows else shape


def four(shape: tuple[int, ...]) -> tuple[int, int, int, int]:
    """The shape as four axes, such as (N, C) as (N, C, 1, 1), for libraries that want images."""
    n, c, h, w = (*shape, 1, 1)[:4]
    return n, c, h, w
