"""Convolution in four ways: Winograd's (winograd.py), implicit GEMM (implicit_gemm.py), one product (gemm.py) and
depthwise (depthwise.py). For one filter per channel the last replaces the others. Each of the others is offered before
oneDNN's if it pays, else after.
"""

from __future__ import annotations

from minidnn.backends.cpu.native import depthwise, gemm, implicit_gemm, winograd
from minidnn.backends.cpu.native.binding import Native
from minidnn.backends.cpu.recipe import Recipe
from minidnn.program import Op

WAYS = (winograd, gemm, implicit_gemm)


def first(native: Native, op: Op) -> list[Recipe]:
    """The recipes to offer before oneDNN's."""
    if depthwise.pays(op):
        return depthwise.recipes(native, op)
    return [r for way in WAYS if way.pays(op) for r in way.recipes(native, op)]


def more(native: Native, op: Op) -> list[Recipe]:
    """The recipes to offer after oneDNN's."""
    if depthwise.pays(op):
        return []
    return [r for way in WAYS[::-1] if not way.pays(op) for r in way.recipes(native, op)]


KINDS = (
    "convolution.forward",
    "convolution.forward_relu",
    "convolution.backward_data",
    "convolution.backward_filter",
)
FIRST = dict.fromkeys(KINDS, first)
MORE = dict.fromkeys(KINDS, more)
