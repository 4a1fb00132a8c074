"""Functions of single elements, and of elements of several arrays that are broadcast."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from minidnn.onnx.constants.call import Call, Function
from minidnn.onnx.node import Refused
from minidnn.onnx.package import onnx


def each(function: Callable[[np.ndarray], np.ndarray], dtype: Any = None, work: int = 1) -> Function:
    """A function of one array. `dtype`: of the result, if it is not the input's"""

    def run(c: Call) -> np.ndarray:
        c.spend(c.x().shape, dtype or c.x().dtype, work)
        return function(c.x()).astype(dtype or c.x().dtype, copy=False)

    return run


def joined(function: Callable[[np.ndarray, np.ndarray], np.ndarray], dtype: Any = None, work: int = 1) -> Function:
    """A function of two arrays or more, one after the other."""

    return lambda c: _joined(c, function, dtype, work)


def _joined(
    c: Call, function: Callable[[np.ndarray, np.ndarray], np.ndarray], dtype: Any = None, work: int = 1
) -> np.ndarray:
    first, *rest = c.given()
    if c.attribute("broadcast"):
        raise Refused("it broadcasts by the rules of before version 7; convert the model to version 13")
    result = first
    for x in rest:
        if x.dtype != first.dtype and c.node.type not in ("Pow", "BitShift"):
            raise Refused(f"its inputs have the types {first.dtype} and {x.dtype}; they must be alike")
        c.spend(np.broadcast_shapes(result.shape, x.shape), dtype or first.dtype, work)
        result = np.asarray(function(result, x)).astype(dtype or first.dtype, copy=False)
    return result


def divided(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The quotient; of whole numbers, the one towards 0."""
    if a.dtype.kind not in "iu":
        return a / b
    _not_zero(b)
    whole, rest = np.divmod(a, b)
    return whole + ((rest != 0) & ((a < 0) != (b < 0)))


def remainder(c: Call) -> np.ndarray:
    a, b = c.x(0), c.x(1)
    if a.dtype.kind in "iu":
        _not_zero(b)
    return _joined(c, np.fmod if c.attribute("fmod", 0) else np.mod)


def _not_zero(divisor: np.ndarray) -> None:
    if not divisor.all():
        raise Refused("it divides whole numbers by 0")


def power(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """A power in the type of the base."""
    if a.dtype.kind in "iu" and b.dtype.kind in "iu":
        if (b < 0).any():
            raise Refused("it raises whole numbers to negative powers")
        return np.power(a, b.astype(a.dtype))
    wide = np.result_type(a.dtype, b.dtype)
    return cast(np.power(a.astype(wide), b.astype(wide)), a.dtype)


def shifted(c: Call) -> np.ndarray:
    right = c.attribute("direction") == "RIGHT"
    if c.x(0).dtype.kind != "u":
        raise Refused(f"it shifts {c.x(0).dtype}; unsigned numbers are needed")
    return _joined(c, np.right_shift if right else np.left_shift)


def cast(x: np.ndarray, dtype: Any) -> np.ndarray:
    """The numbers in another type. Raises Refused where a whole number would have to hold one that it cannot."""
    dtype = np.dtype(dtype)
    if dtype.kind in "iu" and x.dtype.kind not in "iub" and x.size:
        limits, wide = np.iinfo(dtype), x.astype(np.float64)
        if not (np.isfinite(wide).all() and wide.min() >= limits.min and wide.max() < float(limits.max) + 1):
            raise Refused(f"it turns {wide.min():g} to {wide.max():g} into {dtype}, which cannot hold them")
    return x.astype(dtype, copy=False)


def casted(c: Call) -> np.ndarray:
    dtype = _usual(c.x(1).dtype) if c.node.type == "CastLike" else _dtype(c.attribute("to"))
    c.spend(c.x().shape, dtype, 1 + (dtype.kind in "iu"))
    return cast(c.x(), dtype)


def _dtype(number: Any) -> np.dtype[Any]:
    """NumPy's type of ONNX's number. Raises Refused for texts, and for types that NumPy lacks."""
    try:
        return _usual(np.dtype(onnx().helper.tensor_dtype_to_np_dtype(number)))
    except (KeyError, TypeError, ValueError) as error:
        raise Refused(f"there is no type of number {number!r}") from error


def _usual(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The type itself. Raises Refused if numbers become of it by rules of their own: those of few bits saturate."""
    if dtype.name != "bfloat16" and (dtype.kind not in "fiub" or dtype.isbuiltin != 1):
        raise Refused(f"it asks for the type {dtype}, with which minidnn computes no constants")
    return dtype


def dtype_of(c: Call, name: str, default: Any) -> np.dtype[Any]:
    """The type that an attribute says."""
    number = c.attribute(name)
    return np.dtype(default) if number is None else _dtype(number)


def where(c: Call) -> np.ndarray:
    condition, a, b = c.x(0), c.x(1), c.x(2)
    if condition.dtype != np.bool_ or a.dtype != b.dtype:
        raise Refused(f"its inputs have the types {condition.dtype}, {a.dtype} and {b.dtype}")
    c.spend(np.broadcast_shapes(condition.shape, a.shape, b.shape), a.dtype)
    return np.where(condition, a, b)


def clipped(c: Call) -> np.ndarray:
    result = c.x()
    c.spend(result.shape, result.dtype)
    for i, name, bound in ((1, "min", np.maximum), (2, "max", np.minimum)):
        limit = c.number(i) if c.has(i) else c.attribute(name)
        if limit is not None:
            result = bound(result, np.asarray(limit).astype(result.dtype))
    return result


def infinite(c: Call) -> np.ndarray:
    c.spend(c.x().shape, np.bool_)
    x, result = c.x(), np.zeros(c.x().shape, np.bool_)
    if c.attribute("detect_negative", 1):
        result |= np.isinf(x) & (x < 0)
    if c.attribute("detect_positive", 1):
        result |= np.isinf(x) & (x > 0)
    return result


def mean(c: Call) -> np.ndarray:
    return _joined(c, np.add) / np.asarray(len(c.given()), c.x().dtype)


def dequantized(c: Call) -> np.ndarray:
    """(x - zero point) scale, of which both may be numbers along one axis."""
    x, scale, axis = c.x(), c.x(1), c.attribute("axis", 1)
    if c.attribute("block_size", 0) or scale.ndim > 1:
        raise Refused("it has a scale for each block; minidnn reads one in all, or one along an axis")
    shape = [1] * x.ndim
    if scale.ndim and x.ndim:
        shape[c.axis(axis)] = scale.size
    scale = scale.reshape(shape)
    c.spend(np.broadcast_shapes(x.shape, scale.shape), scale.dtype, 2)
    zero = c.x(2).astype(scale.dtype).reshape(shape) if c.has(2) else np.zeros((), scale.dtype)
    return (x.astype(scale.dtype) - zero) * scale


FUNCTIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "Abs": np.abs, "Neg": np.negative, "Sign": np.sign, "Floor": np.floor, "Ceil": np.ceil, "Round": np.rint,
    "Sqrt": np.sqrt, "Exp": np.exp, "Log": np.log, "Reciprocal": lambda x: 1 / x, "Sin": np.sin, "Cos": np.cos,
    "Tan": np.tan, "Asin": np.arcsin, "Acos": np.arccos, "Atan": np.arctan, "Sinh": np.sinh, "Cosh": np.cosh,
    "Tanh": np.tanh, "Sigmoid": lambda x: 1 / (1 + np.exp(-x)), "Relu": lambda x: np.maximum(x, 0),
    "BitwiseNot": np.invert, "Not": np.logical_not,
}  # fmt: skip
LOGIC = {
    "Equal": np.equal, "Less": np.less, "LessOrEqual": np.less_equal, "Greater": np.greater,
    "GreaterOrEqual": np.greater_equal, "And": np.logical_and, "Or": np.logical_or, "Xor": np.logical_xor,
}  # fmt: skip
ARITHMETIC = {
    "Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Sum": np.add, "Min": np.minimum, "Max": np.maximum,
    "BitwiseAnd": np.bitwise_and, "BitwiseOr": np.bitwise_or, "BitwiseXor": np.bitwise_xor,
}  # fmt: skip

FOLDED: dict[str, Function] = {
    **{name: each(function) for name, function in FUNCTIONS.items()},
    **{name: joined(function, np.bool_) for name, function in LOGIC.items()},
    **{name: joined(function) for name, function in ARITHMETIC.items()},
    "Div": joined(divided, work=2), "Mod": remainder, "Pow": joined(power, work=4), "BitShift": shifted, "Mean": mean,
    "IsNaN": each(np.isnan, np.bool_), "IsInf": infinite, "Where": where, "Clip": clipped,
    "Cast": casted, "CastLike": casted, "DequantizeLinear": dequantized,
}  # fmt: skip
