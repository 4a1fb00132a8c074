"""Products, and what is made of them."""

from __future__ import annotations

import math

import numpy as np

from minidnn.layers.attention import Attention
from minidnn.layers.rotary import RotaryEmbedding
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


def attention(w: Writer, node: Node) -> None:
    """By products and a Softmax, since the operator Attention came with version 23. Heads are (N, groups, heads of a
    group, T, d), so that ONNX's own broadcasting gives each group its keys and values."""
    assert isinstance(node.layer, Attention)
    (y,), a, given = w.tops(node), node.layer.attrs([b.tensor.shape for b in node.bottoms]), w.bottoms(node)
    counts, group = (a.heads, a.kv_heads, a.kv_heads), a.heads // a.kv_heads
    if a.packed:
        widths = ints(w, node, "widths", [n * a.depth for n in counts])
        parts = [f"{y}.{part}" for part in "qkv"]
        w.add("Split", node, [*given, widths], parts, axis=2)
        given = parts
    turned, rows, columns = [], [0, 2, 3, 1, 4], [0, 2, 3, 4, 1]
    for part, x, heads, order in zip("qkv", given, (group, 1, 1), (rows, columns, rows), strict=True):
        w.add("Reshape", node, [x, ints(w, node, part, [0, 0, a.kv_heads, heads, a.depth])], [f"{y}.{part}.heads"])
        w.add("Transpose", node, [f"{y}.{part}.heads"], [f"{y}.{part}.apart"], perm=order)
        turned.append(f"{y}.{part}.apart")
    q, k, v = turned
    w.add("MatMul", node, [q, k], [f"{y}.products"])
    scores = f"{y}.scores"
    w.add("Mul", node, [f"{y}.products", w.initializer(node, "scale", np.float32(a.scale))], [scores])
    if a.causal or a.window is not None:
        hidden = np.where(a.seen(np.arange(a.queries)[:, None], np.arange(a.keys)), np.float32(0), -np.float32(np.inf))
        w.add("Add", node, [scores, w.initializer(node, "hidden", hidden)], [f"{y}.seen"])
        scores = f"{y}.seen"
    w.add("Softmax", node, [scores], [f"{y}.weights"], axis=-1)
    w.add("MatMul", node, [f"{y}.weights", v], [f"{y}.values"])
    w.add("Transpose", node, [f"{y}.values"], [f"{y}.back"], perm=[0, 3, 1, 2, 4])
    w.add("Reshape", node, [f"{y}.back", ints(w, node, "whole", [0, 0, a.heads * a.depth])], [y])


def rotary(w: Writer, node: Node) -> None:
    """By tables of cosines and sines, since the operator RotaryEmbedding came with version 23."""
    assert isinstance(node.layer, RotaryEmbedding)
    (y,), a, (x,) = w.tops(node), node.layer.attrs(node.bottoms[0].tensor.shape), w.bottoms(node)
    rotated, half = a.heads * a.depth, a.depth // 2
    rest = [f"{y}.rest"] if rotated < a.width else []
    if rest:
        w.add("Split", node, [x, ints(w, node, "widths", [rotated, a.width - rotated])], [f"{y}.own", *rest], axis=2)
    whole = [0, 0, a.heads, *((half, 2) if a.interleaved else (2, half))]
    w.add("Reshape", node, [f"{y}.own" if rest else x, ints(w, node, "pairs", whole)], [f"{y}.pairs"])
    apart = {"axis": 4 if a.interleaved else 3}
    w.add("Split", node, [f"{y}.pairs", ints(w, node, "ones", [1, 1])], [f"{y}.u", f"{y}.v"], **apart)
    angles = np.arange(a.tokens)[:, None] * a.base ** (-2 * np.arange(half) / a.depth)
    table = (a.tokens, 1, half, 1) if a.interleaved else (a.tokens, 1, 1, half)
    for what, f in (("cos", np.cos), ("sin", np.sin)):
        values = w.initializer(node, what, f(angles).astype(np.float32).reshape(table))
        for part in "uv":
            w.add("Mul", node, [f"{y}.{part}", values], [f"{y}.{part}.{what}"])
    w.add("Sub", node, [f"{y}.u.cos", f"{y}.v.sin"], [f"{y}.first"])
    w.add("Add", node, [f"{y}.v.cos", f"{y}.u.sin"], [f"{y}.second"])
    w.add("Concat", node, [f"{y}.first", f"{y}.second"], [f"{y}.turned"], **apart)
    own = f"{y}.joined" if rest else y
    w.add("Reshape", node, [f"{y}.turned", ints(w, node, "own", [0, 0, rotated])], [own])
    if rest:
        w.add("Concat", node, [own, *rest], [y], axis=2)


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
    "Embed": embed, "Attention": attention, "RotaryEmbedding": rotary, "ClassToken": class_token,
}  # fmt: skip
