"""Views of arrays that have the layout of backends/layout.py, with the axes in the order of memory."""

from __future__ import annotations

import numpy as np

from minidnn.program import Tensor


def physical(array: np.ndarray) -> np.ndarray:
    """The same elements with the axes in the order of memory, N, H, W, C if 4-D; never a copy."""
    return array.transpose(0, 2, 3, 1) if array.ndim == 4 else array


def flat(array: np.ndarray) -> np.ndarray:
    """The same elements as one run of memory, 1-D; never a copy. Raises ValueError if they are not one run."""
    lying = physical(array)
    if not lying.flags.c_contiguous:
        raise ValueError(f"an array of shape {array.shape} and strides {array.strides} is not one run of memory")
    return lying.reshape(-1)


def address(array: np.ndarray) -> int:
    """The address of the array's first element."""
    return array.__array_interface__["data"][0]


def product_sizes(x: Tensor, w: Tensor) -> tuple[int, int, int] | None:
    """(rows, outputs, inputs) of an inner product; None if the elements of x's and w's rows lie in different orders."""
    if (len(x.shape) == 4) != (len(w.shape) == 4):
        return None
    outputs = w.shape[0]
    inputs = w.size // outputs
    return x.size // inputs, outputs, inputs
