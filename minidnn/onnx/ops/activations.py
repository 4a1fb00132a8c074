"""Functions of single elements."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from minidnn.onnx.node import Node, Reader, Refused
from minidnn.onnx.ops.common import number, span

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
    slope, shape = r.needed(node.inputs[1], "slope"), r.shapes[x]
    if slope.size == 1:
        message: dict[str, Any] = {"channel_shared": True}
    elif len(shape) >= 2 and span(slope.shape, shape) == (1, 1):
        message = {}
    else:
        raise Refused(f"its slope has shape {slope.shape}; one number, or one per channel is needed")
    r.gives(node, r.layer("PReLU", [x], [slope.reshaped((slope.size,))], name=node.name, prelu_param=message))


def pow_(r: Reader, node: Node) -> None:
    exponent = r.constant(node.inputs[1], "exponent")
    if exponent.size != 1:
        raise Refused(f"its exponents have shape {exponent.shape}; one number is needed")
    message = {"power": float(exponent.reshape(()))}
    r.gives(node, r.layer("Power", [r.blob(node.inputs[0])], name=node.name, power_param=message))


OPS = {
    **dict.fromkeys(UNARY, unary),
    "Selu": selu, "Celu": celu, "Softsign": softsign, "ThresholdedRelu": thresholded, "Clip": clip, "PRelu": prelu,
    "Pow": pow_,
}  # fmt: skip
