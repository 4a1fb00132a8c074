"""Kernels of our own in C, on the same bytes as oneDNN's: activations NHWC, filters OHWI.

A family is a C file and the module of its name; a convolution has a choice of ways, each with files of its own. A
family's module says what it computes (kind -> (native, op) -> recipes, none where a geometry is not for it) in one or
both of
    FIRST   better than what oneDNN or NumPy have: offered before those, so the default; one named NAME in their stead
    MORE    another way to do it, with another workspace: offered behind those, for a plan to choose
"""

from minidnn.backends.cpu.native import (
    activation,
    bias,
    convolution,
    dropout,
    inner_product,
    join,
    loss,
    lrn,
    normalization,
    pooling,
    update,
)
from minidnn.backends.cpu.native.binding import NAME, Native, Recipes

FIRST = {
    **convolution.FIRST,
    **bias.FIRST,
    **pooling.FIRST,
    **activation.FIRST,
    **normalization.FIRST,
    **lrn.FIRST,
    **dropout.FIRST,
    **join.FIRST,
    **loss.FIRST,
    **update.FIRST,
}
MORE = {**convolution.MORE, **inner_product.MORE}

__all__ = ["FIRST", "MORE", "NAME", "Native", "Recipes"]
