"""Kernels of our own in C, on the same bytes as oneDNN's: activations NHWC, filters OHWI.

A family is a C file and the module of its name, which says what it computes (kind -> (native, op) -> recipes, none
where a geometry is not for it) in one or both of
    FIRST   better than what oneDNN or NumPy have: offered before those, so the default; one named NAME in their stead
    MORE    another way to do it, with another workspace: offered behind those, for a plan to choose
"""

from minidnn.backends.cpu.native import (
    batch_norm,
    bias,
    dropout,
    implicit_gemm,
    inner_product,
    join,
    loss,
    lrn,
    pooling,
    relu,
    update,
    winograd,
)
from minidnn.backends.cpu.native.native import NAME, Native, Recipes

FIRST = (
    winograd.FIRST,
    implicit_gemm.FIRST,
    inner_product.FIRST,
    pooling.FIRST,
    lrn.FIRST,
    relu.FIRST,
    dropout.FIRST,
    bias.FIRST,
    batch_norm.FIRST,
    loss.FIRST,
    join.FIRST,
    update.FIRST,
)
MORE = (inner_product.MORE, implicit_gemm.MORE, winograd.MORE)

__all__ = ["FIRST", "MORE", "NAME", "Native", "Recipes"]
