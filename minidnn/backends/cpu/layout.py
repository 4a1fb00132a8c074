"""Arrays over tensors that lie as minidnn/backends/layout.py says, seen as memory has them."""

from __future__ import annotations

import numpy as np


def physical(array: np.ndarray) -> np.ndarray:
    """The same elements with axes in the order of memory: C-contiguous, never a copy."""
    return array.transpose(0, 2, 3, 1) if array.ndim == 4 else array


def flat(array: np.ndarray) -> np.ndarray:
    """The same elements as one run of memory, never a copy."""
    lying = physical(array)
    if not lying.flags.c_contiguous:
        raise ValueError(f"an array of shape {array.shape} and strides {array.strides} is not one run of memory")
    return lying.reshape(-1)


def address(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]
