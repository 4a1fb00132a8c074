"""How tensors lie in the CPU's memory: 4-D ones as N, H, W, C (weights as O, H, W, I), all others C-contiguous.

The layout is a function of the shape alone, so that a weight, its gradient and its momentum agree, and an
element-wise kernel may run over the bytes without knowing what they mean.
"""

from __future__ import annotations

import numpy as np

from minidnn.backends.cpu.dnnl import contiguous
from minidnn.program import Tensor


def strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides in elements of the logical axes."""
    if len(shape) != 4:
        return contiguous(shape)
    _, c, h, w = shape
    return (h * w * c, 1, w * c, c)


def view(buffer: np.ndarray, tensor: Tensor) -> np.ndarray:
    """The tensor's elements in logical order, over its bytes."""
    elements = buffer[: tensor.nbytes].view(tensor.dtype)
    if len(tensor.shape) != 4:
        return elements.reshape(tensor.shape)
    n, c, h, w = tensor.shape
    return elements.reshape(n, h, w, c).transpose(0, 3, 1, 2)


def physical(array: np.ndarray) -> np.ndarray:
    """The same elements with axes in the order of memory: C-contiguous, never a copy."""
    return array.transpose(0, 2, 3, 1) if array.ndim == 4 else array


def flat(array: np.ndarray) -> np.ndarray:
    """The same elements as one run of memory, never a copy."""
    lying = physical(array)
    if not lying.flags.c_contiguous:
        raise ValueError(f"an array of shape {array.shape} and strides {array.strides} is not one run of memory")
    return lying.reshape(-1)


def rows(array: np.ndarray) -> np.ndarray:
    """(N*H*W, C): one row of channels per position, of an array with channels innermost."""
    return flat(array).reshape(-1, array.shape[1])


def address(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]


def channels_last(shape: tuple[int, ...]) -> bool:
    """Whether axis 1 is the innermost in memory, so that `rows` holds."""
    return len(shape) in (2, 4)


def four(shape: tuple[int, ...]) -> tuple[int, int, int, int]:
    """(N, C) as (N, C, 1, 1), for primitives that want images."""
    n, c, h, w = (*shape, 1, 1)[:4]
    return n, c, h, w
