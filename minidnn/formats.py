"""Number formats: the types in which activations, their gradients, and the weights that layers read are stored.

float32 and float16 are NumPy's own. bfloat16 comes from the package ml_dtypes. Only code that touches values needs that
package; planning does not. In every format, arithmetic is float32. So are the weights that are updated, their momenta,
statistics, losses, and the values computed from these.
"""

from __future__ import annotations

import numpy as np

from minidnn.errors import BadInput, near

FORMATS = ("float32", "bfloat16", "float16")
HALF = ("bfloat16", "float16")  # the formats of 16 bits


class InvalidFormat(BadInput, ValueError):
    """The number format does not exist, or this machine or device does not support it."""


def named(name: str) -> str:
    """`name`, if it is a number format. Raises InvalidFormat."""
    if name not in FORMATS:
        raise InvalidFormat(f"there is no number format {name!r}{near(name, FORMATS)}; there are {', '.join(FORMATS)}")
    return name


def usable(name: str) -> str:
    """`name`, once NumPy knows the format. Raises InvalidFormat if it does not exist or ml_dtypes is missing."""
    if named(name) == "bfloat16":
        try:
            import ml_dtypes  # noqa: F401  (the import registers bfloat16 with NumPy)
        except ImportError:
            raise InvalidFormat(
                "bfloat16 needs the package ml_dtypes: pip install 'minidnn[bfloat16]'; or use float16 or float32"
            ) from None
    return name


def itemsize(dtype: str) -> int:
    """Bytes of one value of this type."""
    return 2 if dtype in HALF else np.dtype(dtype).itemsize


def floating(dtype: str) -> bool:
    """Whether the type is a floating-point type."""
    return dtype in FORMATS or dtype == "float64"


def widened(array: np.ndarray) -> np.ndarray:
    """The array as float32 if its values have 16 bits; else the array itself."""
    return array.astype(np.float32) if str(array.dtype) in HALF else array
