"""Functions of single elements, and sums and products of several maps."""

from __future__ import annotations

import math

import numpy as np

from minidnn.nets.graph import Node
from minidnn.onnx.writing.writer import Export, Writer, same


def relu(w: Writer, node: Node) -> None:
    slope = node.layer.param.negative_slope
    w.add("LeakyRelu" if slope else "Relu", node, w.bottoms(node), w.tops(node), **({"alpha": slope} if slope else {}))


def power(w: Writer, node: Node) -> None:
    (x,), (y,), p = w.bottoms(node), w.tops(node), node.layer.param
    steps = [("Mul", "scale", p.scale, 1.0), ("Add", "shift", p.shift, 0.0), ("Pow", "power", p.power, 1.0)]
    steps = [s for s in steps if s[2] != s[3]] or [steps[0]]
    for i, (kind, what, number, _) in enumerate(steps):
        out = y if i == len(steps) - 1 else f"{y}.{what}"
        w.add(kind, node, [x, w.initializer(node, what, np.float32(number))], [out])
        x = out


def exponential(w: Writer, node: Node) -> None:
    """base^(shift + scale x)"""
    (x,), (y,), p = w.bottoms(node), w.tops(node), node.layer.param
    rate = 1.0 if p.base == -1 else math.log(p.base)
    inner = f"{y}.inner"
    w.add("Mul", node, [x, w.initializer(node, "scale", np.float32(rate * p.scale))], [f"{inner}.scaled"])
    w.add("Add", node, [f"{inner}.scaled", w.initializer(node, "shift", np.float32(rate * p.shift))], [inner])
    w.add("Exp", node, [inner], [y])


def logarithm(w: Writer, node: Node) -> None:
    """log_base(shift + scale x)"""
    (x,), (y,), p = w.bottoms(node), w.tops(node), node.layer.param
    rate = 1.0 if p.base == -1 else 1 / math.log(p.base)
    inner = f"{y}.inner"
    w.add("Mul", node, [x, w.initializer(node, "scale", np.float32(p.scale))], [f"{inner}.scaled"])
    w.add("Add", node, [f"{inner}.scaled", w.initializer(node, "shift", np.float32(p.shift))], [inner])
    w.add("Log", node, [inner], [f"{inner}.log"])
    w.add("Mul", node, [f"{inner}.log", w.initializer(node, "rate", np.float32(rate))], [y])


def gelu(w: Writer, node: Node) -> None:
    """By erf or tanh, since the operator Gelu came with version 20."""
    (x,), (y,) = w.bottoms(node), w.tops(node)
    number = lambda what, value: w.initializer(node, what, np.float32(value))  # noqa: E731
    if node.layer.param.approximate == "NONE":
        w.add("Mul", node, [x, number("rate", math.sqrt(0.5))], [f"{y}.a"])
        w.add("Erf", node, [f"{y}.a"], [f"{y}.b"])
    else:
        w.add("Mul", node, [x, x], [f"{y}.square"])
        w.add("Mul", node, [f"{y}.square", x], [f"{y}.cube"])
        w.add("Mul", node, [f"{y}.cube", number("third", 0.044715)], [f"{y}.part"])
        w.add("Add", node, [f"{y}.part", x], [f"{y}.whole"])
        w.add("Mul", node, [f"{y}.whole", number("rate", math.sqrt(2 / math.pi))], [f"{y}.a"])
        w.add("Tanh", node, [f"{y}.a"], [f"{y}.b"])
    w.add("Add", node, [f"{y}.b", number("one", 1.0)], [f"{y}.c"])
    w.add("Mul", node, [f"{y}.c", x], [f"{y}.d"])
    w.add("Mul", node, [f"{y}.d", number("half", 0.5)], [y])


def mish(w: Writer, node: Node) -> None:
    (x,), (y,) = w.bottoms(node), w.tops(node)
    w.add("Softplus", node, [x], [f"{y}.soft"])
    w.add("Tanh", node, [f"{y}.soft"], [f"{y}.gate"])
    w.add("Mul", node, [x, f"{y}.gate"], [y])


def swish(w: Writer, node: Node) -> None:
    (x,), (y,) = w.bottoms(node), w.tops(node)
    w.add("Mul", node, [x, w.initializer(node, "beta", np.float32(node.layer.param.beta))], [f"{y}.scaled"])
    w.add("Sigmoid", node, [f"{y}.scaled"], [f"{y}.gate"])
    w.add("Mul", node, [x, f"{y}.gate"], [y])


def elu(w: Writer, node: Node) -> None:
    w.add("Elu", node, w.bottoms(node), w.tops(node), alpha=node.layer.param.alpha)


def clip(w: Writer, node: Node) -> None:
    p = node.layer.param
    bounds = [w.initializer(node, "min", np.float32(p.min)), w.initializer(node, "max", np.float32(p.max))]
    w.add("Clip", node, [*w.bottoms(node), *bounds], w.tops(node))


def hard_sigmoid(w: Writer, node: Node) -> None:
    p = node.layer.param
    w.add("HardSigmoid", node, w.bottoms(node), w.tops(node), alpha=p.alpha, beta=p.beta)


def prelu(w: Writer, node: Node) -> None:
    name = node.parameters[0].name
    slope = w.of(node, name).reshape(-1, *[1] * (len(node.bottoms[0].tensor.shape) - 2))
    w.add("PRelu", node, [*w.bottoms(node), w.initializer(node, name, slope)], w.tops(node))


def eltwise(w: Writer, node: Node) -> None:
    xs, (y,), p = w.bottoms(node), w.tops(node), node.layer.param
    if p.operation == "SUM":
        for i, c in enumerate(p.coeff):
            if c != 1:
                w.add("Mul", node, [xs[i], w.initializer(node, f"coeff{i}", np.float32(c))], [f"{y}.part{i}"])
                xs[i] = f"{y}.part{i}"
    if p.operation == "PROD":
        for i, x in enumerate(xs[1:]):
            out = y if i == len(xs) - 2 else f"{y}.part{i}"
            w.add("Mul", node, [xs[0], x], [out])
            xs[0] = out
        return
    w.add("Add" if p.operation == "SUM" and len(xs) == 2 else "Sum" if p.operation == "SUM" else "Max", node, xs, [y])


def softmax(w: Writer, node: Node) -> None:
    w.add("Softmax", node, w.bottoms(node), w.tops(node), axis=node.layer.param.axis)


EXPORTED: dict[str, Export] = {
    "ReLU": relu, "PReLU": prelu, "ELU": elu, "Sigmoid": same("Sigmoid"), "TanH": same("Tanh"), "AbsVal": same("Abs"),
    "BNLL": same("Softplus"), "Power": power, "Exp": exponential, "Log": logarithm, "Clip": clip, "GELU": gelu,
    "Erf": same("Erf"), "HardSigmoid": hard_sigmoid, "HardSwish": same("HardSwish"), "Swish": swish, "Mish": mish,
    "Dropout": same("Identity"), "StochasticDepth": same("Identity"), "Eltwise": eltwise, "Softmax": softmax,
}  # fmt: skip
