"""Normalizations."""

from __future__ import annotations

import math

import numpy as np

from minidnn.onnx.node import Node, Reader, Refused
from minidnn.onnx.ops.common import axis_of, image
from minidnn.onnx.ops.moves import reshaped


def batch_norm(r: Reader, node: Node) -> None:
    """A BatchNorm, and a Scale for gamma and beta."""
    if node.get("training_mode", 0) or (node.version < 7 and not node.get("is_test", 0)) or any(node.outputs[1:]):
        raise Refused("it is in training mode; export the model for inference: minidnn trains it all the same")
    x = r.blob(node.inputs[0])
    gamma, beta, mean, variance = (r.constant(n, "statistics") for n in node.inputs[1:5])
    message = {"eps": float(node.get("epsilon", 1e-5)), "moving_average_fraction": float(node.get("momentum", 0.9))}
    (y,) = r.layer("BatchNorm", [x], [mean, variance, np.ones(1)], name=node.name, batch_norm_param=message)
    scale = {"bias_term": True}
    r.gives(node, r.layer("Scale", [y], [gamma, beta], name=f"{node.name}_scale", scale_param=scale))


def instance_norm(r: Reader, node: Node) -> None:
    x = r.blob(node.inputs[0])
    gamma, beta = (r.constant(name, what) for name, what in zip(node.inputs[1:], ("scale", "bias"), strict=True))
    r.gives(node, group_norm(r, x, r.shapes[x][1], float(node.get("epsilon", 1e-5)), gamma, beta, node.name))


def group_norm(r: Reader, x: str, groups: int, eps: float, gamma: np.ndarray, beta: np.ndarray, name: str) -> list[str]:
    """A GroupNorm, and a Scale for gamma and beta if they change anything."""
    plain = bool((gamma == 1).all() and (beta == 0).all())
    message = {"num_groups": groups} | ({"eps": eps} if eps != 1e-5 else {})
    top = r.layer("GroupNorm", [x], name=name if plain else f"{name}_norm", group_norm_param=message)
    return top if plain else r.layer("Scale", top, [gamma, beta], name=name, scale_param={"bias_term": True})


def group_normalization(r: Reader, node: Node) -> None:
    """Before version 21 gamma and beta have a number for each group, else one for each channel."""
    x, groups, eps = r.blob(node.inputs[0]), int(node.get("num_groups")), float(node.get("epsilon", 1e-5))
    _in_float32(node)
    gamma, beta = (r.constant(name, what) for name, what in zip(node.inputs[1:], ("scale", "bias"), strict=True))
    shape = r.shapes[x]
    if node.version >= 21 or groups == shape[1]:
        r.gives(node, group_norm(r, x, groups, eps, gamma, beta, node.name))
        return
    x = reshaped(r, x, [shape[0], groups, math.prod(shape[1:]) // groups], f"{node.name}_groups")
    (y,) = group_norm(r, x, groups, eps, gamma, beta, node.name)
    r.gives(node, [reshaped(r, y, shape, f"{node.name}_whole")])


def rms_norm(r: Reader, node: Node) -> None:
    """An RMSNorm, and a Scale."""
    x = r.blob(node.inputs[0])
    shape = r.shapes[x]
    axis, eps = axis_of(node.get("axis", -1), shape), float(node.get("epsilon", 1e-5))
    _in_float32(node)
    gamma = np.broadcast_to(r.constant(node.inputs[1], "scale"), shape[axis:])
    top = r.layer("RMSNorm", [x], name=f"{node.name}_norm", rms_norm_param={"axis": axis, "eps": eps})
    r.gives(node, r.layer("Scale", top, [gamma], name=node.name, scale_param={"axis": axis, "num_axes": -1}))


def _in_float32(node: Node) -> None:
    if node.get("stash_type", 1) != 1:
        raise Refused(f"its stash_type is {node.get('stash_type')}; minidnn computes in float32 (1)")


def layer_norm(r: Reader, node: Node) -> None:
    x = r.blob(node.inputs[0])
    shape = r.shapes[x]
    axis = axis_of(node.get("axis", -1), shape)
    _in_float32(node)
    if any(node.outputs[1:]):
        raise Refused("its second and third outputs, mean and deviation, are no tops of minidnn's LayerNorm")
    gamma = np.broadcast_to(r.constant(node.inputs[1], "scale"), shape[axis:])
    beta = np.broadcast_to(r.constant(node.input(2), "bias"), shape[axis:]) if node.input(2) else np.zeros(shape[axis:])
    message = {"axis": axis, "eps": float(node.get("epsilon", 1e-5))}
    r.gives(node, r.layer("LayerNorm", [x], [gamma, beta], name=node.name, layer_norm_param=message))


def lrn(r: Reader, node: Node) -> None:
    x = r.blob(node.inputs[0])
    image(r.shapes[x])
    message = {
        "local_size": int(node.get("size")), "alpha": float(node.get("alpha", 1e-4)),
        "beta": float(node.get("beta", 0.75)), "k": float(node.get("bias", 1.0)),
    }  # fmt: skip
    r.gives(node, r.layer("LRN", [x], name=node.name, lrn_param=message))


OPS = {
    "BatchNormalization": batch_norm, "InstanceNormalization": instance_norm, "LayerNormalization": layer_norm,
    "GroupNormalization": group_normalization, "RMSNormalization": rms_norm, "LRN": lrn,
}  # fmt: skip
