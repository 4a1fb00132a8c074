"""What moves elements: shapes, slices, other orders, windows; and sums of rows."""

from __future__ import annotations

import numpy as np

from minidnn.layers.pad import around
from minidnn.nets.graph import Node
from minidnn.onnx.writing.writer import Export, NotExported, Writer, ints, reduce


def pooling(w: Writer, node: Node) -> None:
    p, (x,), (y,) = node.layer.param, w.bottoms(node), w.tops(node)
    if p.global_pooling:
        w.add("GlobalAveragePool" if p.pool == "AVE" else "GlobalMaxPool", node, [x], [y])
        return
    kernel, stride, pad = p.pair("kernel"), p.pair("stride"), p.pair("pad")
    size, out = node.bottoms[0].tensor.shape[2:], node.tops[0].tensor.shape[2:]
    over = [(o - 1) * s + k - n - 2 * q for n, o, k, s, q in zip(size, out, kernel, stride, pad, strict=True)]
    more = {"count_include_pad": 1} if p.pool == "AVE" else {}
    w.add(
        "AveragePool" if p.pool == "AVE" else "MaxPool", node, [x], [y], kernel_shape=kernel, strides=stride,
        pads=[*pad, *pad], ceil_mode=int(any(v > 0 for v in over)), **more,
    )  # fmt: skip


def pad(w: Writer, node: Node) -> None:
    before, after = around(node.layer.param, node.bottoms[0].tensor.shape)
    w.add("Pad", node, [*w.bottoms(node), ints(w, node, "pads", [*before, *after])], w.tops(node))


def concat(w: Writer, node: Node) -> None:
    w.add("Concat", node, w.bottoms(node), w.tops(node), axis=node.layer.param.axis)


def to_shape(w: Writer, node: Node) -> None:
    """Flatten and Reshape: the first axis stays free if it keeps its length."""
    before, after = node.bottoms[0].tensor.shape, node.tops[0].tensor.shape
    dims = [0, *after[1:]] if before[0] == after[0] else [-1, *after[1:]]
    w.add("Reshape", node, [*w.bottoms(node), ints(w, node, "new", dims)], w.tops(node))


def slice_(w: Writer, node: Node) -> None:
    axis = node.layer.param.axis % len(node.bottoms[0].tensor.shape)
    sizes = [b.tensor.shape[axis] for b in node.tops]
    w.add("Split", node, [*w.bottoms(node), ints(w, node, "parts", sizes)], w.tops(node), axis=axis)


def permute(w: Writer, node: Node) -> None:
    given, rank = node.layer.param.order, len(node.bottoms[0].tensor.shape)
    order = [*given, *(i for i in range(rank) if i not in given)]
    w.add("Transpose", node, w.bottoms(node), w.tops(node), perm=order)


def tile(w: Writer, node: Node) -> None:
    p, rank = node.layer.param, len(node.bottoms[0].tensor.shape)
    times = [1] * rank
    times[p.axis % rank] = p.tiles
    w.add("Tile", node, [*w.bottoms(node), ints(w, node, "times", times)], w.tops(node))


def roll(w: Writer, node: Node) -> None:
    """The end of the axis, then what is before it."""
    (x,), (y,), p, shape = w.bottoms(node), w.tops(node), node.layer.param, node.bottoms[0].tensor.shape
    axis = p.axis % len(shape)
    if axis == 0:
        raise NotExported(f"{node.place}: layer {node.name!r}: a Roll over the batch has no free batch")
    end = p.shift % shape[axis]
    if not end:
        w.add("Identity", node, [x], [y])
        return
    sizes = ints(w, node, "parts", [shape[axis] - end, end])
    w.add("Split", node, [x, sizes], [f"{y}.first", f"{y}.last"], axis=axis)
    w.add("Concat", node, [f"{y}.last", f"{y}.first"], [y], axis=axis)


def parameter(w: Writer, node: Node) -> None:
    """The top is an initializer."""
    w.names[node.tops[0]] = w.initializer(node, "blob")


def split(w: Writer, node: Node) -> None:
    for top in w.tops(node):
        w.add("Identity", node, w.bottoms(node), [top])


def reduction(w: Writer, node: Node) -> None:
    (x,), (y,), p = w.bottoms(node), w.tops(node), node.layer.param
    axes = list(range(p.axis % len(node.bottoms[0].tensor.shape), len(node.bottoms[0].tensor.shape)))
    if axes[0] == 0:
        raise NotExported(f"{node.place}: layer {node.name!r}: a Reduction over the batch has no free batch")
    kind = {"SUM": "ReduceSum", "MEAN": "ReduceMean", "ASUM": "ReduceL1", "SUMSQ": "ReduceSumSquare"}[p.operation]
    out = y if p.coeff == 1 else f"{y}.plain"
    reduce(w, node, kind, x, out, axes)
    if p.coeff != 1:
        w.add("Mul", node, [out, w.initializer(node, "coeff", np.float32(p.coeff))], [y])


def upsample(w: Writer, node: Node) -> None:
    s = float(node.layer.param.scale)
    scales = w.initializer(node, "scales", np.array([1, 1, s, s], np.float32))
    how = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    w.add("Resize", node, [*w.bottoms(node), "", scales], w.tops(node), **how)


EXPORTED: dict[str, Export] = {
    "Pooling": pooling, "Pad": pad, "Concat": concat, "Flatten": to_shape, "Reshape": to_shape, "Slice": slice_,
    "Parameter": parameter, "Permute": permute, "Roll": roll, "Tile": tile, "Split": split, "Reduction": reduction,
    "Upsample": upsample,
}  # fmt: skip
