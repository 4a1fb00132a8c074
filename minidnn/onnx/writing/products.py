"""Products, and what is made of them."""

from __future__ import annotations

import math

import numpy as np

from minidnn.nets.graph import Node
from minidnn.onnx.writing.writer import Export, Writer, ints


def convolution(w: Writer, node: Node) -> None:
    p = node.layer.param
    kind = "Conv" if node.layer.type == "Convolution" else "ConvTranspose"
    pad = p.pair("pad")
    inputs = [*w.bottoms(node), *(w.initializer(node, q.name) for q in node.parameters)]
    w.add(
        kind, node, inputs, w.tops(node), kernel_shape=p.pair("kernel"), strides=p.pair("stride"),
        dilations=p.pair("dilation"), group=p.group, pads=[*pad, *pad],
    )  # fmt: skip


def inner_product(w: Writer, node: Node) -> None:
    p, (x,), (y,) = node.layer.param, w.bottoms(node), w.tops(node)
    weight = w.of(node, "w")
    if getattr(p, "transpose", False):
        weight = weight.T
    axis = p.axis % len(node.bottoms[0].tensor.shape)
    bias = [w.initializer(node, "b")] if p.bias_term else []
    if axis == 1:
        flat = f"{y}.flat"
        w.add("Flatten", node, [x], [flat], axis=1)
        w.add("Gemm", node, [flat, w.initializer(node, "w", weight), *bias], [y], transB=1)
        return
    shape = node.bottoms[0].tensor.shape
    if axis != len(shape) - 1:
        flat = f"{y}.flat"
        w.add("Reshape", node, [x, ints(w, node, "flat", [0, *shape[1:axis], math.prod(shape[axis:])])], [flat])
        x = flat
    product = f"{y}.product" if bias else y
    w.add("MatMul", node, [x, w.initializer(node, "w", np.ascontiguousarray(weight.T))], [product])
    if bias:
        w.add("Add", node, [product, *bias], [y])


def matmul(w: Writer, node: Node) -> None:
    (a, b), (y,), p = w.bottoms(node), w.tops(node), node.layer.param
    rank = len(node.bottoms[0].tensor.shape)
    order = [*range(rank - 2), rank - 1, rank - 2]
    if p.transpose_a:
        w.add("Transpose", node, [a], [f"{y}.a"], perm=order)
        a = f"{y}.a"
    if p.transpose_b:
        w.add("Transpose", node, [b], [f"{y}.b"], perm=order)
        b = f"{y}.b"
    product = y if p.scale == 1 else f"{y}.product"
    w.add("MatMul", node, [a, b], [product])
    if p.scale != 1:
        w.add("Mul", node, [product, w.initializer(node, "scale", np.float32(p.scale))], [y])


def embed(w: Writer, node: Node) -> None:
    (x,), (y,), p = w.bottoms(node), w.tops(node), node.layer.param
    out = f"{y}.rows" if p.bias_term else y
    w.add("Cast", node, [x], [f"{y}.indices"], to=7)
    w.add("Gather", node, [w.initializer(node, "w"), f"{y}.indices"], [out])
    if p.bias_term:
        w.add("Add", node, [out, w.initializer(node, "b")], [y])


def class_token(w: Writer, node: Node) -> None:
    """The token once for each sample, of which there may be any number."""
    (x,), (y,) = w.bottoms(node), w.tops(node)
    w.add("Shape", node, [x], [f"{y}.lengths"])
    w.add("Gather", node, [f"{y}.lengths", ints(w, node, "first", [0])], [f"{y}.samples"])
    w.add("Concat", node, [f"{y}.samples", ints(w, node, "ones", [1, 1])], [f"{y}.times"], axis=0)
    w.add("Expand", node, [w.initializer(node, "token"), f"{y}.times"], [f"{y}.tokens"])
    w.add("Concat", node, [f"{y}.tokens", x], [y], axis=1)


EXPORTED: dict[str, Export] = {
    "Convolution": convolution, "Deconvolution": convolution, "InnerProduct": inner_product, "MatMul": matmul,
    "Embed": embed, "ClassToken": class_token,
}  # fmt: skip
