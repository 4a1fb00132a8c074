"""What our own products need to know of tensor cores: which formats a card's multiply, and how the kernels lie.

Kernels of products have two sources, one of which uses tensor cores (kernels/mma.cuh) and is listed first where the
card has them for the op's format. Float32 counts as TF32, and only if that is allowed, as for convolutions. The orders
of the two's sums differ, so that they are two algorithms; each leaves the same bits on every run.
"""

from __future__ import annotations

import math

from minidnn.program import TENSOR_CORES as NAME
from minidnn.program import Op

__all__ = ["FROM", "NAME", "UNIT", "multiplies", "unit"]

FROM = {"float16": (7, 5), "bfloat16": (8, 0), "float32": (8, 0)}  # format -> the first compute capability
UNIT = 16  # bytes that move at once at most


def multiplies(op: Op, capability: tuple[int, int], tf32: bool) -> bool:
    """Whether a card of that compute capability has tensor cores for the op's operands."""
    format = op.reads[0].dtype
    return capability >= FROM[format] and (tf32 or format != "float32")


def unit(nbytes: int) -> int:
    """The bytes that may move at once, if rows of so many follow each other."""
    return math.gcd(nbytes, UNIT)
