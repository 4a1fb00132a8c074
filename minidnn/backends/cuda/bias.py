"""Bias gradients: sums of dy by channel, alone or fused with a ReLU's backward before them (reduction.py)."""

from __future__ import annotations

from minidnn.backends.cuda.recipe import Read, Recipe, Write
from minidnn.backends.cuda.reduction import sums_by_channel
from minidnn.program import Op


def backward_bias(op: Op) -> list[Recipe]:
    """One recipe for dy (N, C, ...) -> db (C,)."""
    return sums_by_channel(op, "sum", [Read(0)])


def relu_backward_bias(op: Op) -> list[Recipe]:
    """One recipe for y dy (N, C, ...) -> dx (N, C, ...), db (C,). dx may have the bytes of dy. The sums are taken in
    the same order as in `backward_bias`."""
    return sums_by_channel(op, "rectified_sum", [Read(0), Read(1), Write(0)])


KINDS = {
    "convolution.backward_bias": backward_bias,
    "inner_product.backward_bias": backward_bias,
    "scale.backward_bias": backward_bias,
    "relu.backward_bias": relu_backward_bias,
}
