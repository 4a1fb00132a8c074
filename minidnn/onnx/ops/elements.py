"""Sums and products of two values, softmax."""

from __future__ import annotations

from typing import Any

import numpy as np

from minidnn.onnx.node import Node, Reader, Refused
from minidnn.onnx.ops.activations import clipped
from minidnn.onnx.ops.common import axis_of, number, span
from minidnn.onnx.ops.moves import expanded


def identity(r: Reader, node: Node) -> None:
    """Dropout too, at inference: as Caffe's Dropout, which is the identity in TEST."""
    if node.type == "Dropout":
        if len(node.outputs) > 1 and node.outputs[1]:
            raise Refused("its mask is no top of minidnn's Dropout")
        ratio = r.known(node.input(1)) if node.input(1) else np.float32(node.get("ratio", 0.5))
        mode = r.known(node.input(2)) if node.input(2) else None
        if ratio is None or (mode is not None and bool(mode)):
            raise Refused("it is in training mode; export the model for inference: minidnn trains it all the same")
        message = {"dropout_ratio": float(ratio)}
        r.gives(node, r.layer("Dropout", [r.blob(node.inputs[0])], name=node.name, dropout_param=message))
        return
    r.gives(node, [r.blob(node.inputs[0])])


def scaled(r: Reader, x: str, factor: float, name: str, shift: float = 0.0) -> str:
    """factor x + shift."""
    message = ({"scale": factor} if factor != 1 else {}) | ({"shift": shift} if shift else {})
    return r.layer("Power", [x], name=f"{name}_scaled", power_param=message)[0]


def total(r: Reader, a: str, b: str, name: str, coeff: tuple[float, float] = (1.0, 1.0)) -> list[str]:
    """The sum of two blobs, of which one may have fewer axes."""
    return _combined(r, a, b, name, "SUM", coeff)


def binary(r: Reader, node: Node) -> None:
    """Add, Sub, Mul, Div of two values. Before version 7 their axes are aligned at the last one if no axis is named."""
    a, b = node.inputs
    node.get("broadcast")
    known = r.known(b) if not r.is_blob(b) or r.values else None
    first = None if r.is_blob(a) else r.known(a)
    if first is not None:
        _with_constant(r, node, b, first, first_is_constant=True)
    elif known is not None and not r.is_blob(b):
        _with_constant(r, node, a, known, first_is_constant=False)
    else:
        one, other = r.blob(a), r.blob(b)
        if node.type == "Div":
            other = r.layer("Power", [other], name=f"{node.name}_inverse", power_param={"power": -1.0})[0]
        if node.type in ("Mul", "Div"):
            r.gives(node, _combined(r, one, other, node.name, "PROD", (1.0, 1.0)))
        else:
            r.gives(node, total(r, one, other, node.name, (1.0, -1.0 if node.type == "Sub" else 1.0)))


def _with_constant(r: Reader, node: Node, x: str, value: np.ndarray, first_is_constant: bool) -> None:
    blob, sign = r.blob(x), -1.0 if node.type == "Sub" else 1.0
    if node.type == "Div" and first_is_constant:
        blob = r.layer("Power", [blob], name=f"{node.name}_inverse", power_param={"power": -1.0})[0]
    elif node.type == "Div":
        value = 1 / value.astype(np.float32)
    product = node.type in ("Mul", "Div")
    if value.size == 1:
        number = float(value.reshape(()))
        if product:
            message = {"scale": number}
        elif first_is_constant:
            message = {"shift": number} | ({"scale": -1.0} if sign < 0 else {})
        else:
            message = {"shift": sign * number}
        r.gives(node, r.layer("Power", [blob], name=node.name, power_param=message))
        return
    blob = expanded(r, blob, value.shape, node.name)
    place = span(value.shape, r.shapes[blob])
    if place is None:
        raise Refused(f"its constant has shape {value.shape}, which spans no axes of {r.shapes[blob]}")
    axis, count = place
    where = {"axis": axis, "num_axes": count}
    flat = value.reshape(r.shapes[blob][axis : axis + count])
    if product:
        r.gives(node, r.layer("Scale", [blob], [flat], name=node.name, scale_param=where))
        return
    if first_is_constant and sign < 0:
        blob = scaled(r, blob, -1.0, node.name)
    else:
        flat = sign * flat
    r.gives(node, r.layer("Bias", [blob], [flat], name=node.name, bias_param=where))


def _combined(r: Reader, a: str, b: str, name: str, operation: str, coeff: tuple[float, float]) -> list[str]:
    """An Eltwise of two blobs of one shape, or a Scale or Bias by the smaller of them."""
    if r.shapes[a] == r.shapes[b]:
        message: dict[str, Any] = {"operation": operation} if operation != "SUM" else {}
        message |= {"coeff": list(coeff)} if coeff != (1.0, 1.0) else {}
        return r.layer("Eltwise", [a, b], name=name, eltwise_param=message)
    if coeff[1] != 1:
        b = scaled(r, b, coeff[1], name)
    if _count(r, a) < _count(r, b):
        a, b = b, a
    place = span(r.shapes[b], r.shapes[a])
    if place is None:
        a, b = (expanded(r, x, r.shapes[other], name) for x, other in ((a, b), (b, a)))
        return _combined(r, a, b, name, operation, (1.0, 1.0))
    axis, count = place
    part = r.shapes[a][axis : axis + count]
    if r.shapes[b] != part:
        dims = {"shape": {"dim": list(part)}}
        (b,) = r.layer("Reshape", [b], name=f"{name}_reshaped", reshape_param=dims)
    if operation == "PROD":
        return r.layer("Scale", [a, b], name=name, scale_param={"axis": axis})
    return r.layer("Bias", [a, b], name=name, bias_param={"axis": axis})


def _count(r: Reader, blob: str) -> int:
    return int(np.prod(r.shapes[blob], dtype=np.int64))


def several(r: Reader, node: Node) -> None:
    """Max, Min, Sum and Mean of any number of values; of two, one of them may be a number for Max and Min."""
    numbers = [n for n in node.inputs if not r.is_blob(n)]
    if node.type in ("Max", "Min") and len(node.inputs) == 2 and len(numbers) == 1:
        bound, (x,) = number(r, numbers[0], "bound"), (n for n in node.inputs if n not in numbers)
        least, most = (bound, None) if node.type == "Max" else (None, bound)
        shape = np.broadcast_shapes(r.shapes[r.blob(x)], r.constant(numbers[0], "bound").shape)
        r.gives(node, clipped(r, expanded(r, r.blob(x), shape, node.name), least, most, node.name))
        return
    blobs = [r.blob(n) for n in node.inputs]
    if len(blobs) == 1:
        r.gives(node, blobs)
        return
    whole = np.broadcast_shapes(*(r.shapes[b] for b in blobs))
    blobs = [expanded(r, b, whole, node.name) for b in blobs]
    if node.type == "Min":
        blobs = [scaled(r, b, -1.0, node.name) for b in blobs]
    message: dict[str, Any] = {"operation": "MAX"} if node.type in ("Max", "Min") else {}
    message |= {"coeff": [1 / len(blobs)] * len(blobs)} if node.type == "Mean" else {}
    top = r.layer("Eltwise", blobs, name=node.name, eltwise_param=message)
    r.gives(node, top if node.type != "Min" else [scaled(r, top[0], -1.0, node.name)])


def softmax(r: Reader, node: Node) -> None:
    x = r.blob(node.inputs[0])
    shape = r.shapes[x]
    axis = axis_of(node.get("axis", -1 if node.version >= 13 else 1), shape)
    if node.version < 13 and axis != len(shape) - 1:
        raise Refused(f"before version 13 it joins all axes from {axis} on; convert the model to version 13")
    (top,) = r.layer("Softmax", [x], name=node.name, softmax_param={"axis": axis} if axis != 1 else {})
    if node.type == "LogSoftmax":
        (top,) = r.layer("Log", [top], name=f"{node.name}_log")
    r.gives(node, [top])


OPS = {
    **dict.fromkeys(("Identity", "Dropout"), identity),
    **dict.fromkeys(("Add", "Sub", "Mul", "Div"), binary),
    **dict.fromkeys(("Max", "Min", "Sum", "Mean"), several),
    **dict.fromkeys(("Softmax", "LogSoftmax"), softmax),
}  # fmt: skip
