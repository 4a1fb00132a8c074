"""Normalizations."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from minidnn.layers.base import Shape
from minidnn.onnx.node import Node, Reader, Refused
from minidnn.onnx.ops.common import axis_of, image
from minidnn.onnx.ops.moves import reshaped
from minidnn.onnx.weight import Weight, constant


def batch_norm(r: Reader, node: Node) -> None:
    """A BatchNorm, and a Scale for gamma and beta. Its sums are such that a step moves the running statistics as ONNX
    and PyTorch move them: with a factor of 1 / (1 - momentum), which is the limit of Caffe's."""
    if any(node.outputs[1:]):
        raise Refused("minidnn's BatchNorm has no tops for its running statistics")
    if in_training(node):
        r.refuse_training()
    x = r.blob(node.inputs[0])
    kept = float(node.get("momentum", 0.9))
    if not 0 <= kept < 1:
        raise Refused(f"its momentum is {kept}: the running statistics would not move; it must be from 0 to below 1")
    mean, variance = (r.constant(n, "statistics") for n in node.inputs[3:5])
    factor = np.float64(1 / (1 - kept))
    message = {"eps": float(node.get("epsilon", 1e-5)), "moving_average_fraction": kept}
    if r.training and not in_training(node):
        message["use_global_stats"] = True
    sums = [factor * mean.astype(np.float64), factor * variance.astype(np.float64), np.full(1, factor)]
    (y,) = r.layer("BatchNorm", [x], sums, name=node.name, batch_norm_param=message)
    layer = r.layers[-1]["name"]
    if not message.get("use_global_stats"):
        r.statistics |= {node.inputs[3]: (layer, "mean_sum"), node.inputs[4]: (layer, "variance_sum")}
    r.blobs[node.outputs[0]] = affine(r, y, node.inputs[1], node.inputs[2], 1, f"{node.name}_scale")[0]


def in_training(node: Node) -> bool:
    """Whether a BatchNormalization normalizes by its batch, as far as the file tells: PyTorch's newer exporter says it
    in a note alone."""
    old = node.version < 7 and not node.get("is_test", 0)
    return old or bool(node.get("training_mode", 0)) or "_native_batch_norm_legit_functional" in node.note("fx_node")


def affine(r: Reader, x: str, gamma: str, beta: str, axis: int, name: str) -> list[str]:
    """x gamma + beta along the axes from `axis` on that gamma has; beta may be left out."""
    factor, addend = r.weight(gamma), r.weight(beta) if beta else None
    count = len(r.shape(gamma))
    if _says_nothing(factor, 1) and (not beta or _says_nothing(addend, 0)):
        return [x]
    if factor is not None and addend is not None:
        message = {"axis": axis, "num_axes": count} if (axis, count) != (1, 1) else {}
        return r.layer("Scale", [x], [factor, addend], name=name, scale_param=message | {"bias_term": True})
    for kind, field, value, weight in (("Scale", "scale_param", gamma, factor), ("Bias", "bias_param", beta, addend)):
        fields: dict[str, Any] = {field: {"axis": axis} | ({"num_axes": count} if weight else {})}
        if value:
            bottoms = [x] if weight else [x, r.blob(value)]
            (x,) = r.layer(kind, bottoms, [weight] if weight else [], name=name, **fields)
    return [x]


def _says_nothing(weight: Weight | None, number: float) -> bool:
    return weight is not None and not weight.trained and bool((weight.numbers == number).all())


def instance_norm(r: Reader, node: Node) -> None:
    x = r.blob(node.inputs[0])
    r.gives(node, by_group(r, node, x, r.shapes[x][1]))


def by_group(r: Reader, node: Node, x: str, groups: int) -> list[str]:
    """An InstanceNorm or a GroupNorm, with gamma and beta if both are the node's own; else behind it."""
    gamma, beta = node.inputs[1:3]
    factor, addend, eps = r.weight(gamma), r.weight(beta), float(node.get("epsilon", 1e-5))
    own = [] if factor is None or addend is None else [factor, addend]
    if own and _says_nothing(factor, 1) and _says_nothing(addend, 0):
        own = []
    message: dict[str, Any] = ({"eps": eps} if eps != 1e-5 else {}) | ({} if own else {"affine": False})
    fields: dict[str, Any]
    kind, fields = "InstanceNorm", {"instance_norm_param": message}
    if groups != r.shapes[x][1]:
        kind, fields = "GroupNorm", {"group_norm_param": {"num_groups": groups} | message}
    if own:
        return r.layer(kind, [x], own, name=node.name, **fields)
    (top,) = r.layer(kind, [x], name=f"{node.name}_norm", **fields)
    return affine(r, top, gamma, beta, 1, node.name)


def group_normalization(r: Reader, node: Node) -> None:
    """Before version 21 gamma and beta have a number for each group, else one for each channel."""
    x, groups = r.blob(node.inputs[0]), int(node.get("num_groups"))
    _in_float32(node)
    shape = r.shapes[x]
    by_channel = node.version >= 21 or groups == shape[1]
    if not by_channel:
        x = reshaped(r, x, [shape[0], groups, math.prod(shape[1:]) // groups], f"{node.name}_groups")
    top = by_group(r, node, x, groups)
    r.gives(node, top if by_channel else [reshaped(r, top[0], shape, f"{node.name}_whole")])


def rms_norm(r: Reader, node: Node) -> None:
    """An RMSNorm, and a Scale."""
    x = r.blob(node.inputs[0])
    shape = r.shapes[x]
    axis, eps = axis_of(node.get("axis", -1), shape), float(node.get("epsilon", 1e-5))
    _in_float32(node)
    (y,) = r.layer("RMSNorm", [x], name=f"{node.name}_norm", rms_norm_param={"axis": axis, "eps": eps})
    gamma = r.weight(node.inputs[1])
    if gamma is None:
        r.gives(node, affine(r, y, node.inputs[1], "", axis, node.name))
        return
    where = {"axis": axis, "num_axes": -1}
    r.gives(node, r.layer("Scale", [y], [_whole(gamma, shape[axis:])], name=node.name, scale_param=where))


def _in_float32(node: Node) -> None:
    if node.get("stash_type", 1) != 1:
        raise Refused(f"its stash_type is {node.get('stash_type')}; minidnn computes in float32 (1)")


def layer_norm(r: Reader, node: Node) -> None:
    x = r.blob(node.inputs[0])
    shape = r.shapes[x]
    axis = axis_of(node.get("axis", -1), shape)
    _in_float32(node)
    if any(node.outputs[1:]):
        raise Refused("minidnn's LayerNorm has no tops for its second and third outputs, mean and deviation")
    gamma, beta = r.weight(node.inputs[1]), r.weight(node.input(2)) if node.input(2) else None
    message: dict[str, Any] = {"axis": axis, "eps": float(node.get("epsilon", 1e-5))}
    if gamma is None or (beta is None and node.input(2)):  # one is a blob
        (x,) = r.layer("LayerNorm", [x], name=node.name, layer_norm_param=message | {"affine": False})
        r.gives(node, affine(r, x, node.inputs[1], node.input(2), axis, f"{node.name}_scale"))
        return
    if _says_nothing(gamma, 1) and (beta is None or _says_nothing(beta, 0)):
        r.gives(node, r.layer("LayerNorm", [x], name=node.name, layer_norm_param=message | {"affine": False}))
        return
    own = [_whole(gamma, shape[axis:]), _whole(beta or constant(np.zeros(shape[axis:])), shape[axis:])]
    r.gives(node, r.layer("LayerNorm", [x], own, name=node.name, layer_norm_param=message))


def _whole(weight: Weight, shape: Shape) -> Weight:
    """A weight of this shape: a constant may be broadcast to it."""
    return weight if weight.trained else constant(np.broadcast_to(weight.numbers, shape), weight.name)


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
