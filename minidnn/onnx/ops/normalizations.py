"""Normalizations."""

from __future__ import annotations

import numpy as np

from minidnn.onnx.node import Node, Reader, Refused
from minidnn.onnx.ops.common import axis_of, image


def batch_norm(r: Reader, node: Node) -> None:
    """A BatchNorm, and a Scale for gamma and beta."""
    if node.get("training_mode", 0):
        raise Refused("it is in training mode; export the model for inference: minidnn trains it all the same")
    x = r.blob(node.inputs[0])
    gamma, beta, mean, variance = (r.constant(n, "statistics") for n in node.inputs[1:5])
    message = {"eps": float(node.get("epsilon", 1e-5)), "moving_average_fraction": float(node.get("momentum", 0.9))}
    (y,) = r.layer("BatchNorm", [x], [mean, variance, np.ones(1)], name=node.name, batch_norm_param=message)
    scale = {"bias_term": True}
    r.gives(node, r.layer("Scale", [y], [gamma, beta], name=f"{node.name}_scale", scale_param=scale))


def instance_norm(r: Reader, node: Node) -> None:
    raise Refused("it adds epsilon within the root; Caffe's MVN, which normalizes so, adds it to the root")


def layer_norm(r: Reader, node: Node) -> None:
    x = r.blob(node.inputs[0])
    shape = r.shapes[x]
    axis = axis_of(node.get("axis", -1), shape)
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
    "LRN": lrn,
}  # fmt: skip
