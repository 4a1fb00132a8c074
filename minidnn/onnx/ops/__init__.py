"""The layers that ONNX's operators become: OPS has a function for each operator, by its name.

A function reads a Node and adds layers to a Reader. It raises Refused where no layer computes what the node says.
"""

from __future__ import annotations

from minidnn.onnx.node import Handler
from minidnn.onnx.ops import (
    activations,
    choices,
    elements,
    moves,
    normalizations,
    products,
    reductions,
    resize,
    windows,
)

OPS: dict[str, Handler] = {
    **products.OPS,
    **windows.OPS,
    **normalizations.OPS,
    **activations.OPS,
    **choices.OPS,
    **elements.OPS,
    **moves.OPS,
    **reductions.OPS,
    **resize.OPS,
}
