"""Sums, products and extremes over axes; products of matrices."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from minidnn.onnx.constants.call import Call, Function
from minidnn.onnx.node import Refused

Reduction = Callable[..., np.ndarray]  # of an array, `axis` and `keepdims`


def reduced(function: Reduction) -> Function:
    """A function of some axes of an array."""

    def run(c: Call) -> np.ndarray:
        x, axes = c.x(), c.integers(1, "axes")
        if not axes and c.attribute("noop_with_empty_axes", 0):
            return x
        c.spend(x.shape, x.dtype, 2)
        over = tuple(c.axis(a) for a in axes) if axes else None
        return np.asarray(function(x, axis=over, keepdims=bool(c.attribute("keepdims", 1)))).astype(x.dtype)

    return run


def _mean(x: np.ndarray, axis: Any, keepdims: bool) -> np.ndarray:
    if x.dtype.kind not in "iu":
        return np.mean(x, axis=axis, keepdims=keepdims)
    total = np.sum(x, axis=axis, keepdims=keepdims)
    count = x.size // max(total.size, 1)
    if not count:
        raise Refused("it takes the mean of no whole numbers")
    return np.trunc(total / count)


def extreme(function: Callable[..., np.ndarray]) -> Function:
    """ArgMax and ArgMin."""

    def run(c: Call) -> np.ndarray:
        x, axis = c.x(), c.axis(c.attribute("axis", 0))
        c.spend(x.shape, np.int64)
        if not c.attribute("select_last_index", 0):
            return function(x, axis=axis, keepdims=bool(c.attribute("keepdims", 1))).astype(np.int64)
        last = x.shape[axis] - 1 - function(np.flip(x, axis), axis=axis, keepdims=bool(c.attribute("keepdims", 1)))
        return last.astype(np.int64)

    return run


def cumulated(c: Call) -> np.ndarray:
    """A CumSum."""
    x, axis = c.x(), c.axis(int(c.number(1)))
    c.spend(x.shape, x.dtype, 2)
    if c.attribute("reverse", 0):
        x = np.flip(x, axis)
    result = np.cumsum(x, axis, dtype=x.dtype)
    if c.attribute("exclusive", 0):
        result = result - x
    return np.flip(result, axis) if c.attribute("reverse", 0) else result


def product(c: Call) -> np.ndarray:
    """A MatMul. Its multiplications are counted as bytes."""
    a, b = c.x(0), c.x(1)
    if not a.ndim or not b.ndim or a.dtype != b.dtype:
        raise Refused("it multiplies no matrices of one type")
    columns = b.shape[-1] if b.ndim > 1 else 1
    batch = math.prod(np.broadcast_shapes(a.shape[:-2], b.shape[:-2]))
    rows = a.shape[-2] if a.ndim > 1 else 1
    c.budget.spend(batch * rows * columns * (a.shape[-1] + 8), "its product")
    return np.matmul(a, b)


FOLDED: dict[str, Function] = {
    "ReduceSum": reduced(np.sum), "ReduceMean": reduced(_mean), "ReduceMax": reduced(np.max),
    "ReduceMin": reduced(np.min), "ReduceProd": reduced(np.prod),
    "ReduceL1": reduced(lambda x, **k: np.sum(np.abs(x), **k)),
    "ReduceL2": reduced(lambda x, **k: np.sqrt(np.sum(np.square(x), **k))),
    "ReduceSumSquare": reduced(lambda x, **k: np.sum(np.square(x), **k)),
    "ArgMax": extreme(np.argmax), "ArgMin": extreme(np.argmin), "CumSum": cumulated, "MatMul": product,
}  # fmt: skip
