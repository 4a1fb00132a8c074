"""The layers that ONNX's operators become: OPS has a function for each operator, by its name.

A function reads a Node and adds layers to a Reader. It raises Refused where no layer computes what the node says. It
need not check what ONNX says of the operator: `add_layers` refuses a node that is otherwise.
"""

from __future__ import annotations

from minidnn.onnx.node import UNFIT, Handler, Node, Reader, Refused
from minidnn.onnx.ops import (
    activations,
    attention,
    choices,
    elements,
    moves,
    normalizations,
    products,
    recurrent,
    reductions,
    resize,
    windows,
)

OPS: dict[str, Handler] = {
    **products.OPS,
    **attention.OPS,
    **windows.OPS,
    **normalizations.OPS,
    **activations.OPS,
    **choices.OPS,
    **elements.OPS,
    **moves.OPS,
    **recurrent.OPS,
    **reductions.OPS,
    **resize.OPS,
}


def add_layers(reader: Reader, node: Node) -> None:
    """Add the layers of a node whose operator is in OPS. Raises Refused."""
    try:
        OPS[node.type](reader, node)
    except UNFIT as error:
        raise Refused(f"its inputs and attributes do not fit together ({type(error).__name__}: {error})") from error
