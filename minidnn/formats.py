"""Number formats: what a network's activations, their gradients and the weights that layers read are stored as.

float32 is NumPy's own, and so is float16. bfloat16 is that of the package ml_dtypes, which is needed only where values
are touched: planning gets by without. Whatever the format, arithmetic is float32, and so are the weights that are
updated, their momenta, statistics, losses and what is computed of them.
"""

from __future__ import annotations

import numpy as np

from minidnn.errors import BadInput, near

FORMATS = ("float32", "bfloat16", "float16")
HALF = ("bfloat16", "float16")  # of 16 bits


class InvalidFormat(BadInput, ValueError):
    """A number format that there is not, or that this machine, or this device, cannot do."""


def named(name: str) -> str:
    """The format of that name. Raises InvalidFormat."""
    if name not in FORMATS:
        raise InvalidFormat(f"there is no number format {name!r}{near(name, FORMATS)}; there are {', '.join(FORMATS)}")
    return name


def usable(name: str) -> str:
    """The format of that name, which NumPy knows from now on. Raises InvalidFormat."""
    if named(name) == "bfloat16":
        try:
            import ml_dtypes  # noqa: F401  (it tells NumPy)
        except ImportError:
            raise InvalidFormat(
                "bfloat16 needs the package ml_dtypes: pip install 'minidnn[bfloat16]'; or use float16 or float32"
            ) from None
    return name


def itemsize(dtype: str) -> int:
    """Bytes of one value."""
    return 2 if dtype in HALF else np.dtype(dtype).itemsize


def floating(dtype: str) -> bool:
    """Whether values of this type are no whole numbers."""
    return dtype in FORMATS or dtype == "float64"


def widened(array: np.ndarray) -> np.ndarray:
    """The same numbers as float32, where they are of 16 bits."""
    return array.astype(np.float32) if str(array.dtype) in HALF else array
