"""Normalizations, scales and shifts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from minidnn.layers.group_norm import GroupNorm
from minidnn.layers.row_norm import LayerNorm
from minidnn.nets.graph import Node
from minidnn.onnx.writing.writer import Export, Writer, ints, reduce


def batch_norm(w: Writer, node: Node) -> None:
    factor = float(w.of(node, "factor").reshape(-1)[0])
    factor = 1 / factor if factor else 0.0
    after = w.scaled.get(node.name)
    c = node.parameters[0].shape[0]
    own = (np.ones(c, np.float32), np.zeros(c, np.float32))
    gamma = w.initializer(after, "gamma") if after else w.initializer(node, "gamma", own[0])
    beta = after and any(p.name == "beta" for p in after.parameters)
    shift = w.initializer(after, "beta") if after and beta else w.initializer(node, "beta", own[1])
    mean = w.initializer(node, "mean", np.float32(factor) * w.of(node, "mean_sum"))
    variance = w.initializer(node, "variance", np.float32(factor) * w.of(node, "variance_sum"))
    outputs = w.tops(after) if after else w.tops(node)
    p = node.layer.param
    w.add(
        "BatchNormalization", node, [*w.bottoms(node), gamma, shift, mean, variance], outputs,
        epsilon=p.eps, momentum=p.moving_average_fraction,
    )  # fmt: skip


def scale(w: Writer, node: Node) -> None:
    (x, *second), (y,), p = w.bottoms(node), w.tops(node), node.layer.param
    shape = node.bottoms[0].tensor.shape
    axis = p.axis % len(shape)
    multiply = node.layer.type == "Scale"
    if second:
        part = node.bottoms[1].tensor.shape
        view = f"{y}.factor"
        ones = [1] * (len(shape) - axis - len(part))
        w.add("Reshape", node, [second[0], ints(w, node, "factor", _free([*[1] * axis, *part, *ones], axis))], [view])
        factor = view
    else:
        factor = w.initializer(node, node.parameters[0].name, _across(w.of(node, node.parameters[0].name), axis, shape))
    bias = "beta" if multiply and any(q.name == "beta" for q in node.parameters) else ""
    product = f"{y}.product" if bias else y
    w.add("Mul" if multiply else "Add", node, [x, factor], [product])
    if bias:
        w.add("Add", node, [product, w.initializer(node, bias, _across(w.of(node, bias), axis, shape))], [y])


def _free(dims: list[int], axis: int) -> list[int]:
    """The dims with the batch left free if they have it."""
    return [0, *dims[1:]] if axis == 0 else dims


def _across(value: np.ndarray, axis: int, shape: Sequence[int]) -> np.ndarray:
    return value.reshape(*value.shape, *[1] * (len(shape) - axis - value.ndim))


def lrn(w: Writer, node: Node) -> None:
    p = node.layer.param
    if p.norm_region == "ACROSS_CHANNELS":
        more = {"size": p.local_size, "alpha": p.alpha, "beta": p.beta, "bias": p.k}
        w.add("LRN", node, w.bottoms(node), w.tops(node), **more)
        return
    (x,), (y,) = w.bottoms(node), w.tops(node)
    pad = p.local_size // 2
    w.add("Mul", node, [x, x], [f"{y}.square"])
    w.add(
        "AveragePool", node, [f"{y}.square"], [f"{y}.mean"], kernel_shape=[p.local_size] * 2, strides=[1, 1],
        pads=[pad] * 4, count_include_pad=1,
    )  # fmt: skip
    w.add("Mul", node, [f"{y}.mean", w.initializer(node, "alpha", np.float32(p.alpha))], [f"{y}.scaled"])
    w.add("Add", node, [f"{y}.scaled", w.initializer(node, "one", np.float32(1))], [f"{y}.sum"])
    w.add("Pow", node, [f"{y}.sum", w.initializer(node, "beta", np.float32(-p.beta))], [f"{y}.factor"])
    w.add("Mul", node, [x, f"{y}.factor"], [y])


def layer_norm(w: Writer, node: Node) -> None:
    """The operator's rows have all last axes: others are moved behind them, and back."""
    assert isinstance(node.layer, LayerNorm)
    (x,), (y,), shape = w.bottoms(node), w.tops(node), node.bottoms[0].tensor.shape
    a, rank, names = node.layer.attrs(shape), len(shape), [q.name for q in node.parameters]
    ones = np.ones(shape[a.first : a.last], np.float32)
    gamma = w.initializer(node, names[0]) if names else w.initializer(node, "gamma", ones)
    beta = [w.initializer(node, names[1])] if names else []
    order = [*range(a.first), *range(a.last, rank), *range(a.first, a.last)]
    moved = order != [*range(rank)]
    if moved:
        w.add("Transpose", node, [x], [f"{y}.rows"], perm=order)
    given, out = (f"{y}.rows", f"{y}.normal") if moved else (x, y)
    axis = rank - (a.last - a.first)
    w.add("LayerNormalization", node, [given, gamma, *beta], [out], axis=axis, epsilon=a.eps)
    if moved:
        w.add("Transpose", node, [out], [y], perm=[order.index(i) for i in range(rank)])


def group_norm(w: Writer, node: Node) -> None:
    """By instances, or by instances of rows, since the operator GroupNormalization came with version 18."""
    assert isinstance(node.layer, GroupNorm)
    (x,), (y,), shape = w.bottoms(node), w.tops(node), node.bottoms[0].tensor.shape
    a, own = node.layer.attrs(shape), [q.name for q in node.parameters]
    alone = a.groups == shape[1] and len(shape) > 2
    fills = [("ones", np.ones(a.groups, np.float32)), ("zeros", np.zeros(a.groups, np.float32))]
    scale = [w.initializer(node, q) for q in own] if alone and own else [w.initializer(node, *fill) for fill in fills]
    if alone:
        w.add("InstanceNormalization", node, [x, *scale], [y], epsilon=a.eps)
        return
    w.add("Reshape", node, [x, ints(w, node, "rows", [0, a.groups, -1])], [f"{y}.rows"])
    w.add("InstanceNormalization", node, [f"{y}.rows", *scale], [f"{y}.normal"], epsilon=a.eps)
    whole = f"{y}.whole" if own else y
    w.add("Reshape", node, [f"{y}.normal", ints(w, node, "whole", [0, *shape[1:]])], [whole])
    if own:
        gamma, beta = (w.initializer(node, q, _across(w.of(node, q), 1, shape)) for q in own)
        w.add("Mul", node, [whole, gamma], [f"{y}.product"])
        w.add("Add", node, [f"{y}.product", beta], [y])


def rms_norm(w: Writer, node: Node) -> None:
    (x,), (y,), p, rank = w.bottoms(node), w.tops(node), node.layer.param, len(node.bottoms[0].tensor.shape)
    w.add("Mul", node, [x, x], [f"{y}.squares"])
    reduce(w, node, "ReduceMean", f"{y}.squares", f"{y}.mean", list(range(p.axis % rank, rank)), keepdims=1)
    w.add("Add", node, [f"{y}.mean", w.initializer(node, "eps", np.float32(p.eps))], [f"{y}.sum"])
    w.add("Sqrt", node, [f"{y}.sum"], [f"{y}.root"])
    w.add("Div", node, [x, f"{y}.root"], [y])


EXPORTED: dict[str, Export] = {
    "BatchNorm": batch_norm, "Scale": scale, "Bias": scale, "LRN": lrn, "LayerNorm": layer_norm,
    "GroupNorm": group_norm, "InstanceNorm": group_norm, "RMSNorm": rms_norm,
}  # fmt: skip
