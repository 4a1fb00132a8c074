"""Choices between elements by constant masks, and the one comparison that PyTorch's Softplus needs."""

from __future__ import annotations

import numpy as np

from minidnn.onnx.node import Node, Reader, Refused
from minidnn.onnx.ops.common import bounded, masked, number
from minidnn.onnx.ops.moves import expanded


def where(r: Reader, node: Node) -> None:
    """x where a constant mask is true, else constants, or the reverse: a product and a sum with constants, which no
    training changes."""
    mask = r.known(node.inputs[0])
    if mask is None and (y := _softplus(r, node)):
        r.gives(node, [y])
        return
    if mask is None:
        raise Refused(f"its condition, {node.inputs[0]!r}, is computed as the net runs; it must be a constant")
    kept, name = (node.inputs[1], node.inputs[2]) if r.is_blob(node.inputs[1]) else (node.inputs[2], node.inputs[1])
    other = r.known(name) if not r.is_blob(name) else None
    if other is None:
        raise Refused("it takes elements of two values that are computed as the net runs; one must be a constant")
    x = r.blob(kept)
    holds = mask.astype(bool) if kept == node.inputs[1] else ~mask.astype(bool)
    try:
        shape = np.broadcast_shapes(holds.shape, np.shape(other), r.shapes[x])
    except ValueError:
        raise Refused(f"shapes {mask.shape}, {r.shapes[x]} and {other.shape} cannot be broadcast to one") from None
    x = expanded(r, x, shape, node.name)
    r.gives(node, masked(r, x, holds, np.asarray(other, np.float32), node.name))


LINEAR = 17  # from here on log(1 + e^x) is x in float32


def greater(r: Reader, node: Node) -> None:
    """No layer: a Where may read it, if it chooses between x and Softplus."""
    r.compared[node.outputs[0]] = r.blob(node.inputs[0]), number(r, node.inputs[1], "bound")


def _softplus(r: Reader, node: Node) -> str | None:
    """The Softplus of x, if the node is PyTorch's: x where x is large, else the Softplus."""
    x, bound = r.compared.get(node.inputs[0], ("", 0.0))
    names = [r.blobs.get(name) for name in node.inputs[1:]]
    if not x or names[0] != x or bound < LINEAR:
        return None
    soft = [layer for layer in r.layers if layer["type"] == "BNLL" and layer["top"] == [names[1]]]
    return names[1] if soft and soft[0]["bottom"] == [x] else None


def trilu(r: Reader, node: Node) -> None:
    """The upper or the lower triangle of matrices; zeros elsewhere."""
    x = r.blob(node.inputs[0])
    rows, columns = r.shapes[x][-2:]
    k = int(r.constant(node.input(1), "k").reshape(())) if node.input(1) else 0
    bounded(rows * columns)
    away = np.arange(columns) - np.arange(rows)[:, None]
    r.gives(node, masked(r, x, away >= k if node.get("upper", 1) else away <= k, 0.0, node.name))


OPS = {"Where": where, "Trilu": trilu, "Greater": greater}
