"""Attention and RotaryEmbedding: their operators came with version 23. Before it they go as what these are made of."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from minidnn.layers.attention import Attention, AttentionAttrs
from minidnn.layers.relative_position_bias import RelativePositionBias, apart, hidden
from minidnn.layers.rotary import RotaryAttrs, RotaryEmbedding
from minidnn.nets.graph import Node
from minidnn.onnx.writing.writer import Export, Writer, ints

SINCE = 23  # the version that brought the operators


def attention(w: Writer, node: Node) -> None:
    assert isinstance(node.layer, Attention)
    (y,), a, bottoms = w.tops(node), node.layer.attrs([b.tensor.shape for b in node.bottoms]), w.bottoms(node)
    given, bias = bottoms[: a.inputs], bottoms[a.inputs :]
    if a.packed:
        widths = ints(w, node, "widths", [n * a.depth for n in (a.heads, a.kv_heads, a.kv_heads)])
        parts = [f"{y}.{part}" for part in "qkv"]
        w.add("Split", node, [*given, widths], parts, axis=2)
        given = parts
    if w.opset < SINCE:
        _products(w, node, given, bias, y, a)
        return
    plain = a.window is None and (not a.causal or a.queries == a.keys)
    how = {"q_num_heads": a.heads, "kv_num_heads": a.kv_heads, "scale": a.scale, "is_causal": int(plain and a.causal)}
    added = [_bias(w, node, x, y, a, [a.bias[1]]) for x in bias if a.bias]
    if not plain and added:
        w.add("Add", node, [*added, _hidden(w, node, a)], [f"{y}.mask"])
        added = [f"{y}.mask"]
    elif not plain:
        added = [_seen(w, node, a)]
    w.add("Attention", node, [*given, *added], [y], **how)


def _bias(w: Writer, node: Node, x: str, y: str, a: AttentionAttrs, heads: Sequence[int]) -> str:
    """The bias for each sample, or for all: (1 or N, *heads, T, S), where `heads` are its heads as they are grouped."""
    assert a.bias is not None
    samples, count = a.bias[0], node.bottoms[0].tensor.shape[0]
    shape = ints(w, node, "bias", [samples, *heads, a.queries, a.keys])
    w.add("Reshape", node, [x, shape], [f"{y}.bias"])
    if samples in (1, count):
        return f"{y}.bias"
    w.add("Tile", node, [f"{y}.bias", _repeats(w, node, y, a, len(heads) + 3)], [f"{y}.biases"])
    return f"{y}.biases"


def _repeats(w: Writer, node: Node, y: str, a: AttentionAttrs, axes: int) -> str:
    """How often the samples that have a bias of their own come in the batch, which is free: (axes,)."""
    assert a.bias is not None
    q = w.names[node.bottoms[0]]
    w.add("Shape", node, [q], [f"{y}.batch"], start=0, end=1)
    own = w.shared(f"samples.{a.bias[0]}", np.array([a.bias[0]]))
    w.add("Div", node, [f"{y}.batch", own], [f"{y}.often"])
    ones = w.shared(f"ones.{axes - 1}", np.ones(axes - 1, np.int64))
    w.add("Concat", node, [f"{y}.often", ones], [f"{y}.repeats"], axis=0)
    return f"{y}.repeats"


def _products(w: Writer, node: Node, given: Sequence[str], bias: Sequence[str], y: str, a: AttentionAttrs) -> None:
    """By products and a Softmax. Heads are (N, groups, heads of a group, T, d), so that ONNX's own broadcasting gives
    each group its keys and values."""
    turned, rows, columns = [], [0, 2, 3, 1, 4], [0, 2, 3, 4, 1]
    group = a.heads // a.kv_heads
    for part, x, heads, order in zip("qkv", given, (group, 1, 1), (rows, columns, rows), strict=True):
        w.add("Reshape", node, [x, ints(w, node, part, [0, 0, a.kv_heads, heads, a.depth])], [f"{y}.{part}.heads"])
        w.add("Transpose", node, [f"{y}.{part}.heads"], [f"{y}.{part}.apart"], perm=order)
        turned.append(f"{y}.{part}.apart")
    q, k, v = turned
    w.add("MatMul", node, [q, k], [f"{y}.products"])
    scores = f"{y}.scores"
    w.add("Mul", node, [f"{y}.products", w.initializer(node, "scale", np.float32(a.scale))], [scores])
    for x in bias:
        own = [1, 1] if a.bias and a.bias[1] == 1 else [a.kv_heads, group]
        w.add("Add", node, [scores, _bias(w, node, x, y, a, own)], [f"{y}.raised"])
        scores = f"{y}.raised"
    if a.causal or a.window is not None:
        w.add("Add", node, [scores, _hidden(w, node, a)], [f"{y}.seen"])
        scores = f"{y}.seen"
    w.add("Softmax", node, [scores], [f"{y}.weights"], axis=-1)
    w.add("MatMul", node, [f"{y}.weights", v], [f"{y}.values"])
    w.add("Transpose", node, [f"{y}.values"], [f"{y}.back"], perm=[0, 3, 1, 2, 4])
    w.add("Reshape", node, [f"{y}.back", ints(w, node, "whole", [0, 0, a.heads * a.depth])], [y])


def _seen(w: Writer, node: Node, a: AttentionAttrs) -> str:
    """Whether queries see keys, bool (queries, keys). It is computed from their places, so the file has no byte for a
    pair, and layers that hide the same keys share it."""
    name = f"seen.{a.queries}.{a.keys}{'.causal' if a.causal else ''}{'' if a.window is None else f'.{a.window}'}"

    def made() -> None:
        first, end, one, zero = (
            w.shared(f"{name}.{what}", np.int64(n))
            for what, n in (("first", a.keys - a.queries), ("keys", a.keys), ("one", 1), ("zero", 0))
        )
        w.add("Range", node, [first, end, one], [f"{name}.rows"])
        w.add("Unsqueeze", node, [f"{name}.rows", w.shared(f"{name}.axis", np.array([1]))], [f"{name}.queries"])
        w.add("Range", node, [zero, end, one], [f"{name}.columns"])
        w.add("Sub", node, [f"{name}.queries", f"{name}.columns"], [f"{name}.away"])
        near = name if not a.causal else f"{name}.near"
        behind = name if a.window is None else f"{name}.behind"
        if a.causal:
            w.add("GreaterOrEqual", node, [f"{name}.away", zero], [behind])
        if a.window is not None:
            w.add("Abs", node, [f"{name}.away"], [f"{name}.distance"])
            w.add("Less", node, [f"{name}.distance", w.shared(f"{name}.window", np.int64(a.window))], [near])
        if a.causal and a.window is not None:
            w.add("And", node, [behind, near], [name])

    return w.once(name, made)


def _hidden(w: Writer, node: Node, a: AttentionAttrs) -> str:
    """What is added to the scores (queries, keys): -inf where a query does not see a key."""
    seen = _seen(w, node, a)
    name = f"{seen}.hidden"
    zero, least = w.shared("seen", np.float32(0)), w.shared("hidden", -np.float32(np.inf))
    return w.once(name, lambda: w.add("Where", node, [seen, zero, least], [name]))


def relative(w: Writer, node: Node) -> None:
    """Rows of the weights by an index, which layers with equal windows share, as their masks."""
    assert isinstance(node.layer, RelativePositionBias)
    (y,), a = w.tops(node), node.layer.attrs()
    places, windows = a.side**2, a.down * a.across
    index = w.shared(f"apart.{a.side}", apart(a).reshape(-1))
    w.add("Gather", node, [w.initializer(node, "w"), index], [f"{y}.rows"], axis=0)
    w.add("Transpose", node, [f"{y}.rows"], [f"{y}.heads"], perm=[1, 0])
    whole = ints(w, node, "heads", [a.heads, places, places])
    w.add("Reshape", node, [f"{y}.heads", whole], [f"{y}.each" if a.shift else y])
    if a.shift:
        mask = np.where(hidden(a), np.float32(a.hidden), np.float32(0)).reshape(windows, 1, places, places)
        name = w.shared(f"mask.{a.side}.{a.down}.{a.across}.{a.shift}", mask)
        w.add("Add", node, [f"{y}.each", name], [f"{y}.windows"])
        w.add("Reshape", node, [f"{y}.windows", ints(w, node, "all", [-1, places, places])], [y])


def rotary(w: Writer, node: Node) -> None:
    assert isinstance(node.layer, RotaryEmbedding)
    (y,), a, (x,) = w.tops(node), node.layer.attrs(node.bottoms[0].tensor.shape), w.bottoms(node)
    rotated = a.heads * a.depth
    rest = [f"{y}.rest"] if rotated < a.width else []
    if rest:
        w.add("Split", node, [x, ints(w, node, "widths", [rotated, a.width - rotated])], [f"{y}.own", *rest], axis=2)
        x = f"{y}.own"
    own = f"{y}.joined" if rest else y
    if w.opset < SINCE:
        _pairs(w, node, x, own, a)
    else:
        given = [x, *_tables(w, a, (a.tokens, a.depth // 2)), _places(w, node, x, a)]
        w.add("RotaryEmbedding", node, given, [own], num_heads=a.heads, interleaved=int(a.interleaved))
    if rest:
        w.add("Concat", node, [own, *rest], [y], axis=2)


def _pairs(w: Writer, node: Node, x: str, own: str, a: RotaryAttrs) -> None:
    """By products and sums of pairs: of the two halves of each head, or of neighbours."""
    half, axis = a.depth // 2, 4 if a.interleaved else 3
    whole = [0, 0, a.heads, *((half, 2) if a.interleaved else (2, half))]
    w.add("Reshape", node, [x, ints(w, node, "pairs", whole)], [f"{own}.pairs"])
    w.add("Split", node, [f"{own}.pairs", ints(w, node, "ones", [1, 1])], [f"{own}.u", f"{own}.v"], axis=axis)
    tables = _tables(w, a, (a.tokens, 1, half, 1) if a.interleaved else (a.tokens, 1, 1, half))
    for what, table in zip(("cos", "sin"), tables, strict=True):
        for part in "uv":
            w.add("Mul", node, [f"{own}.{part}", table], [f"{own}.{part}.{what}"])
    w.add("Sub", node, [f"{own}.u.cos", f"{own}.v.sin"], [f"{own}.first"])
    w.add("Add", node, [f"{own}.v.cos", f"{own}.u.sin"], [f"{own}.second"])
    w.add("Concat", node, [f"{own}.first", f"{own}.second"], [f"{own}.turned"], axis=axis)
    w.add("Reshape", node, [f"{own}.turned", ints(w, node, "own", [0, 0, a.heads * a.depth])], [own])


def _tables(w: Writer, a: RotaryAttrs, shape: tuple[int, ...]) -> list[str]:
    """Cosines and sines of the angles (tokens, depth / 2), in this shape. Layers that turn alike share them."""
    half = a.depth // 2
    angles = np.arange(a.tokens)[:, None] * a.base ** (-2 * np.arange(half) / a.depth)
    name = f"{a.base:g}.{'x'.join(map(str, shape))}"
    return [
        w.shared(f"{what}.{name}", f(angles).astype(np.float32).reshape(shape))
        for what, f in (("cos", np.cos), ("sin", np.sin))
    ]


def _places(w: Writer, node: Node, x: str, a: RotaryAttrs) -> str:
    """The place of each token (N, tokens): the operator wants them for each sample."""
    name = f"places.{a.tokens}"

    def made() -> None:
        line = w.shared(f"{name}.of_one", np.arange(a.tokens))
        w.add("Shape", node, [x], [f"{name}.shape"], start=0, end=2)
        w.add("Expand", node, [line, f"{name}.shape"], [name])

    return w.once(name, made)


EXPORTED: dict[str, Export] = {
    "Attention": attention, "RotaryEmbedding": rotary, "RelativePositionBias": relative,
}  # fmt: skip
