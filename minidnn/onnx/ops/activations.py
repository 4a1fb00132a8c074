"""Functions of single elements."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from minidnn.onnx.node import Node, Reader, Refused
from minidnn.onnx.ops.common import FROZEN, bounded, number, span
from minidnn.onnx.package import onnx

UNARY: dict[str, tuple[str, Callable[[Node], dict[str, Any]]]] = {  # operator -> layer type, its fields
    "Relu": ("ReLU", lambda n: {}),
    "LeakyRelu": ("ReLU", lambda n: {"relu_param": {"negative_slope": float(n.get("alpha", 0.01))}}),
    "Sigmoid": ("Sigmoid", lambda n: {}),
    "Tanh": ("TanH", lambda n: {}),
    "Elu": ("ELU", lambda n: {"elu_param": {"alpha": float(n.get("alpha", 1.0))}}),
    "Abs": ("AbsVal", lambda n: {}),
    "Exp": ("Exp", lambda n: {}),
    "Log": ("Log", lambda n: {}),
    "Erf": ("Erf", lambda n: {}),
    "Softplus": ("BNLL", lambda n: {}),
    "Gelu": ("GELU", lambda n: {"gelu_param": {"approximate": n.get("approximate", "none").upper()}}),
    "Swish": ("Swish", lambda n: {"swish_param": {"beta": float(n.get("alpha", 1.0))}}),
    "Mish": ("Mish", lambda n: {}),
    "HardSigmoid": ("HardSigmoid", lambda n: {"hard_sigmoid_param": _line(n)}),
    "HardSwish": ("HardSwish", lambda n: {}),
    "Neg": ("Power", lambda n: {"power_param": {"scale": -1.0}}),
    "Sqrt": ("Power", lambda n: {"power_param": {"power": 0.5}}),
    "Reciprocal": ("Power", lambda n: {"power_param": {"power": -1.0}}),
}


def _line(node: Node) -> dict[str, float]:
    return {"alpha": float(node.get("alpha", 0.2)), "beta": float(node.get("beta", 0.5))}


def unary(r: Reader, node: Node) -> None:
    kind, fields = UNARY[node.type]
    r.gives(node, r.layer(kind, [r.blob(node.inputs[0])], name=node.name, **fields(node)))


def selu(r: Reader, node: Node) -> None:
    """gamma times an ELU."""
    alpha, gamma = (
        float(node.get("alpha", 1.67326319217681884765625)),
        float(node.get("gamma", 1.05070102214813232421875)),
    )
    (y,) = r.layer("ELU", [r.blob(node.inputs[0])], name=f"{node.name}_elu", elu_param={"alpha": alpha})
    r.gives(node, r.layer("Power", [y], name=node.name, power_param={"scale": gamma}))


def celu(r: Reader, node: Node) -> None:
    """alpha times the ELU of x / alpha."""
    alpha, x = float(node.get("alpha", 1.0)), r.blob(node.inputs[0])
    if alpha <= 0:
        raise Refused(f"its alpha is {alpha:g}; a positive one is needed")
    if alpha == 1:
        r.gives(node, r.layer("ELU", [x], name=node.name))
        return
    (x,) = r.layer("Power", [x], name=f"{node.name}_scaled", power_param={"scale": 1 / alpha})
    (y,) = r.layer("ELU", [x], name=f"{node.name}_elu")
    r.gives(node, r.layer("Power", [y], name=node.name, power_param={"scale": alpha}))


def softsign(r: Reader, node: Node) -> None:
    """x / (1 + |x|)"""
    x = r.blob(node.inputs[0])
    (size,) = r.layer("AbsVal", [x], name=f"{node.name}_size")
    message = {"shift": 1.0, "power": -1.0}
    (inverse,) = r.layer("Power", [size], name=f"{node.name}_inverse", power_param=message)
    r.gives(node, r.layer("Eltwise", [x, inverse], name=node.name, eltwise_param={"operation": "PROD"}))


def thresholded(r: Reader, node: Node) -> None:
    """x times 1 where x > alpha, else times 0."""
    x, alpha = r.blob(node.inputs[0]), float(node.get("alpha", 1.0))
    (gate,) = r.layer("Threshold", [x], name=f"{node.name}_gate", threshold_param={"threshold": alpha})
    r.gives(node, r.layer("Eltwise", [x, gate], name=node.name, eltwise_param={"operation": "PROD"}))


def clip(r: Reader, node: Node) -> None:
    bounds = []
    for i, field in ((1, "min"), (2, "max")):
        given = node.get(field)
        if given is None and node.input(i):
            given = number(r, node.input(i), field)
        bounds.append(given)
    r.gives(node, clipped(r, r.blob(node.inputs[0]), bounds[0], bounds[1], node.name))


def clipped(r: Reader, x: str, least: float | None, most: float | None, name: str) -> list[str]:
    """x, but at least `least` and at most `most`, unless these are None."""
    if least == 0 and most is None:
        return r.layer("ReLU", [x], name=name)
    if least is None and most is None:
        return [x]
    largest = float(np.finfo(np.float32).max)
    message = {"min": -largest if least is None else float(least), "max": largest if most is None else float(most)}
    return r.layer("Clip", [x], name=name, clip_param=message)


def prelu(r: Reader, node: Node) -> None:
    x = r.blob(node.inputs[0])
    slope, shape = r.constant(node.inputs[1], "slope"), r.shapes[x]
    if slope.size == 1:
        message: dict[str, Any] = {"channel_shared": True}
    elif len(shape) >= 2 and span(slope.shape, shape) == (1, 1):
        message = {}
    else:
        raise Refused(f"its slope has shape {slope.shape}; one number, or one per channel is needed")
    r.gives(node, r.layer("PReLU", [x], [slope.reshape(-1)], name=node.name, prelu_param=message))


def pow_(r: Reader, node: Node) -> None:
    exponent = r.constant(node.inputs[1], "exponent")
    if exponent.size != 1:
        raise Refused(f"its exponents have shape {exponent.shape}; one number is needed")
    message = {"power": float(exponent.reshape(()))}
    r.gives(node, r.layer("Power", [r.blob(node.inputs[0])], name=node.name, power_param=message))


def cast(r: Reader, node: Node) -> None:
    """Of float32 to float32, in which minidnn computes."""
    types, to = onnx().TensorProto, node.get("to")  # a word before version 6
    if to not in (types.FLOAT, "FLOAT"):
        to = to if isinstance(to, str) else types.DataType.Name(to)
        raise Refused(f"it casts to {to.lower()}, and minidnn computes in float32")
    r.gives(node, [r.blob(node.inputs[0])])


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
    from minidnn.onnx.ops.moves import expanded  # which pads by masks

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


def masked(r: Reader, x: str, holds: np.ndarray, other: np.ndarray | float, name: str) -> list[str]:
    """x where `holds`, else `other`; both are broadcast over x."""
    shape = r.shapes[x]
    bounded(holds.size)
    factor = np.where(holds, np.float32(1), np.float32(0))
    constant = np.where(holds, np.float32(0), np.asarray(other, np.float32))
    top = frozen(r, "Scale", x, factor, f"{name}_kept" if constant.any() else name)
    if constant.any():
        top = frozen(r, "Bias", top[0], constant, name)
    assert r.shapes[top[0]] == shape
    return top


def frozen(r: Reader, kind: str, x: str, value: np.ndarray, name: str) -> list[str]:
    """A frozen Scale or Bias of the axes from the first to the last along which the value differs."""
    shape = r.shapes[x]
    full = value.reshape((1,) * (len(shape) - value.ndim) + value.shape)
    axes = [i for i in range(full.ndim) if full.shape[i] != 1] or [len(shape) - 1]
    first, last = axes[0], axes[-1] + 1
    spanned = [length if first <= i < last else 1 for i, length in enumerate(shape)]
    bounded(math.prod(spanned))
    blob = np.broadcast_to(full, spanned).reshape(shape[first:last])
    fields: dict[str, Any] = {f"{kind.lower()}_param": {"axis": first, "num_axes": last - first}, **FROZEN}
    return r.layer(kind, [x], [blob], name=name, **fields)


def trilu(r: Reader, node: Node) -> None:
    """The upper or the lower triangle of matrices; zeros elsewhere."""
    x = r.blob(node.inputs[0])
    rows, columns = r.shapes[x][-2:]
    k = int(r.constant(node.input(1), "k").reshape(())) if node.input(1) else 0
    bounded(rows * columns)
    away = np.arange(columns) - np.arange(rows)[:, None]
    r.gives(node, masked(r, x, away >= k if node.get("upper", 1) else away <= k, 0.0, node.name))


OPS = {
    **dict.fromkeys(UNARY, unary),
    "Selu": selu, "Celu": celu, "Softsign": softsign, "ThresholdedRelu": thresholded, "Clip": clip, "PRelu": prelu,
    "Pow": pow_, "Greater": greater, "Cast": cast, "Where": where, "Trilu": trilu,
}  # fmt: skip
