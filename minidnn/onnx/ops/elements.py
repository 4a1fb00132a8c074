"""Sums and products of two values, softmax."""

from __future__ import annotations

from typing import Any

import numpy as np

from minidnn.onnx.node import Node, Reader, Refused
from minidnn.onnx.ops.activations import clipped
from minidnn.onnx.ops.common import axis_of, number, span
from minidnn.onnx.ops.moves import expanded, viewed
from minidnn.onnx.package import onnx
from minidnn.onnx.weight import Weight, constant


def identity(r: Reader, node: Node) -> None:
    """The value itself; where PyTorch detached it, a Power of 1 that lets no gradient through."""
    x = node.inputs[0]
    if "aten.detach" in node.note("fx_node") and x not in r.constants and x not in r.whole:
        r.gives(node, r.layer("Power", [r.blob(x)], name=node.name, propagate_down=[False]))
        return
    viewed(r, node, x, lambda w: w)


def cast(r: Reader, node: Node) -> None:
    """To the numbers that the value has in minidnn anyway: float32, or the whole numbers of an input."""
    x, types, to = node.inputs[0], onnx().TensorProto, node.get("to")
    to = types.FLOAT if to is None else types.DataType.Value(to) if isinstance(to, str) else to
    if x in r.whole and to in (types.INT32, types.INT64):
        r.whole.add(node.outputs[0])
        r.gives(node, [r.blob(x, whole=True)])
        return
    if to != types.FLOAT:
        raise Refused(f"it casts to {types.DataType.Name(to).lower()}, and minidnn computes in float32")
    if x in r.constants:  # CastLike: the other input is a blob
        r.constants[node.outputs[0]] = r.constants[x].astype(np.float32)
        return
    viewed(r, node, x, lambda w: w)


def dropout(r: Reader, node: Node) -> None:
    """Dropout: the identity in TEST, whatever the mode of the file."""
    if any(node.outputs[1:]):
        raise Refused("minidnn's Dropout has no top for its mask")
    mode = r.known(node.input(2)) if node.input(2) else None
    if mode is not None and bool(mode):
        r.refuse_training()
    ratio = r.constant(node.input(1), "ratio") if node.input(1) else np.float32(node.get("ratio", 0.5))
    if float(ratio) == 0:
        r.blobs[node.outputs[0]] = r.blob(node.inputs[0])
        return
    message = {"dropout_ratio": float(ratio)}
    top = r.layer("Dropout", [r.blob(node.inputs[0])], name=node.name, dropout_param=message)
    r.blobs[node.outputs[0]] = top[0]


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
    first, second = (None if r.is_blob(name) else r.weight(name) for name in (a, b))
    if first is not None and second is not None:  # one of them is a parameter
        first, second = (first, None) if _fits_into(first, second) else (None, second)
    if first is not None and _with_weight(r, node, b, first, is_first=True):
        return
    if second is not None and _with_weight(r, node, a, second, is_first=False):
        return
    one, other = r.blob(a), r.blob(b)
    if node.type == "Div":
        other = r.layer("Power", [other], name=f"{node.name}_inverse", power_param={"power": -1.0})[0]
    if node.type in ("Mul", "Div"):
        r.gives(node, _combined(r, one, other, node.name, "PROD", (1.0, 1.0)))
    else:
        r.gives(node, total(r, one, other, node.name, (1.0, -1.0 if node.type == "Sub" else 1.0)))


def _fits_into(first: Weight, second: Weight) -> bool:
    """Whether a layer has the first of two known values, and reads the second from a blob."""
    return (first.size, first.trained) <= (second.size, second.trained)


def _with_weight(r: Reader, node: Node, x: str, weight: Weight, is_first: bool) -> bool:
    """Add the layer that has the weight, or False if no layer has it."""
    blob, product = r.blob(x), node.type in ("Mul", "Div")
    changed = node.type == "Div" or (node.type == "Sub" and not is_first)  # the layer would have -w or 1 / w
    if weight.trained and changed and not (node.type == "Div" and is_first):
        return False
    if changed and not is_first:
        numbers = weight.numbers.astype(np.float32)
        if weight.size > 1:
            r.frozen[weight.name] = weight.shape
        weight = constant(1 / numbers if product else -numbers)
    if weight.size == 1 and not weight.trained and len(weight.shape) <= len(r.shapes[blob]):
        _by_number(r, node, blob, float(weight.numbers.reshape(())), is_first)
        return True
    blob = expanded(r, blob, weight.shape, node.name)
    place = (0, 0) if weight.size == 1 else span(weight.shape, r.shapes[blob])
    if place is None:
        return False
    axis, count = place
    where = {"axis": axis, "num_axes": count}
    flat = weight.reshaped(r.shapes[blob][axis : axis + count] if count else (1,))
    if is_first and node.type == "Div":
        blob = r.layer("Power", [blob], name=f"{node.name}_inverse", power_param={"power": -1.0})[0]
    elif is_first and node.type == "Sub":
        blob = scaled(r, blob, -1.0, node.name)
    if product:
        r.gives(node, r.layer("Scale", [blob], [flat], name=node.name, scale_param=where))
    else:
        r.gives(node, r.layer("Bias", [blob], [flat], name=node.name, bias_param=where))
    return True


def _by_number(r: Reader, node: Node, blob: str, number: float, is_first: bool) -> None:
    if node.type in ("Mul", "Div"):
        if node.type == "Div" and is_first:
            blob = r.layer("Power", [blob], name=f"{node.name}_inverse", power_param={"power": -1.0})[0]
        message = {"scale": number}
    else:
        message = {"shift": number} | ({"scale": -1.0} if node.type == "Sub" and is_first else {})
    r.gives(node, r.layer("Power", [blob], name=node.name, power_param=message))


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
    "Identity": identity, **dict.fromkeys(("Cast", "CastLike"), cast), "Dropout": dropout,
    **dict.fromkeys(("Add", "Sub", "Mul", "Div"), binary),
    **dict.fromkeys(("Max", "Min", "Sum", "Mean"), several),
    **dict.fromkeys(("Softmax", "LogSoftmax"), softmax),
}  # fmt: skip
