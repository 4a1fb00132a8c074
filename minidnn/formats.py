"""Number formats, in which activations, their gradients and the weights that layers read are stored.

float32 and float16 are NumPy's. bfloat16 comes from the package ml_dtypes, which is needed only to handle values, not
to plan. In each format arithmetic is float32. Updated weights, their momenta, statistics and losses are float32, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from minidnn.errors import BadInput, near

if TYPE_CHECKING:  # the command's options list the formats, and need no NumPy
    import numpy as np

FORMATS = ("float32", "bfloat16", "float16")
HALF = ("bfloat16", "float16")  # of 16 bits
# Whether products of float32 may round their operands to 10 bits of mantissa, on tensor cores that take these, unless
# somebody says otherwise: on a device (--no-tf32), and on a profile, which simulates what a device does (NAME:fp32).
TF32 = True


class InvalidFormat(BadInput, ValueError):
    """A number format that does not exist, or that this machine or this device does not support."""


def named(name: str) -> str:
    """The name itself. Raises InvalidFormat unless it is one of FORMATS."""
    if name not in FORMATS:
        raise InvalidFormat(f"there is no number format {name!r}{near(name, FORMATS)}; there are {', '.join(FORMATS)}")
    return name


def usable(name: str) -> str:
    """The name itself; from now on NumPy knows the format. Raises InvalidFormat if that is not possible here."""
    if named(name) == "bfloat16":
        try:
            import ml_dtypes  # noqa: F401  (the import adds bfloat16 to NumPy)
        except ImportError:
            raise InvalidFormat(
                "bfloat16 needs the package ml_dtypes: pip install 'minidnn[bfloat16]'; or use float16 or float32"
            ) from None
    return name


def itemsize(dtype: str) -> int:
    """Bytes of one value."""
    import numpy as np

    return 2 if dtype in HALF else np.dtype(dtype).itemsize


def floating(dtype: str) -> bool:
    """Whether this is a type of floating-point numbers."""
    return dtype in FORMATS or dtype == "float64"


def widened(array: np.ndarray) -> np.ndarray:
    """The array as float32 if its numbers have 16 bits; else the array itself."""
    return array.astype("float32") if str(array.dtype) in HALF else array
