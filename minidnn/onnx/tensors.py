"""The tensors of an ONNX file as arrays, their data checked against their shapes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from minidnn.layers.base import text
from minidnn.onnx.node import Refused
from minidnn.onnx.package import onnx

AXES = 32  # of a tensor: NumPy 1's number


def array(tensor: Any) -> np.ndarray:
    """The numbers of a tensor that lie in the file itself. Raises Refused if they do not fit its shape and type."""
    shape, dtype = kind_of(tensor)
    count = math.prod(shape)
    try:
        result: np.ndarray = onnx().numpy_helper.to_array(tensor)
    except (ValueError, TypeError, KeyError, IndexError, OverflowError) as error:
        raise Refused(f"its data are not {count} numbers of {dtype}, as its shape {text(shape)} says") from error
    if result.shape != shape:
        raise Refused(f"its data have the shape {text(result.shape)}, and it says {text(shape)}")
    return result


def kind_of(tensor: Any) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """The shape and NumPy's type of a tensor. Raises Refused if there are no such arrays of numbers."""
    shape = tuple(tensor.dims)
    if min(shape, default=0) < 0 or len(shape) > AXES:
        raise Refused(f"it has the shape {text(shape)}")
    if tensor.data_type == onnx().TensorProto.STRING:
        raise Refused("it holds texts, and minidnn's layers read numbers")
    try:
        dtype = np.dtype(onnx().helper.tensor_dtype_to_np_dtype(tensor.data_type))
    except (KeyError, TypeError, ValueError) as error:
        raise Refused(f"there is no type of number {tensor.data_type}") from error
    if dtype.kind == "c":
        raise Refused("it holds complex numbers, and minidnn's layers read real ones")
    return shape, dtype
