"""From a Net and its weights to an ONNX model of its phase TEST.

The model has the net's inputs with the batch left free, its weights as initializers "<layer>.weight" and
"<layer>.bias", and its scores as outputs. Losses, accuracies and labels are left out. A BatchNorm and the Scale behind
it become one BatchNormalization.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from minidnn.errors import BadInput
from minidnn.files.replace import replacing
from minidnn.layers.attention import Attention
from minidnn.layers.pad import around
from minidnn.layers.rotary import RotaryEmbedding
from minidnn.nets.graph import Blob, Graph, Node
from minidnn.nets.net import Net
from minidnn.nets.scores import with_scores
from minidnn.onnx.package import onnx
from minidnn.program import Role

OPSET = 17  # of September 2022; ONNX Runtime reads it since version 1.12
IR = 8
BATCH = "batch"
NAMED = {"w": "weight", "b": "bias"}  # blobs whose initializers have PyTorch's names


class NotExported(BadInput, ValueError):
    """A net with layers that no operator of ONNX computes; the message names all of them."""

    several = True


class Writer:
    """The nodes and initializers of a model that is being written."""

    def __init__(self, weights: Mapping[str, np.ndarray]) -> None:
        self.weights = weights
        self.nodes: list[Any] = []
        self.initializers: dict[str, np.ndarray] = {}
        self.names: dict[Blob, str] = {}  # the value that holds a blob
        self.scaled: dict[str, Node] = {}  # BatchNorm -> the Scale that its node does, too

    def of(self, node: Node, blob: str) -> np.ndarray:
        return np.asarray(self.weights[f"{node.name}/{blob}"], np.float32)

    def initializer(self, node: Node, blob: str, value: np.ndarray | None = None) -> str:
        """The name of an initializer with a parameter's values, or with these."""
        name = f"{node.name}.{NAMED.get(blob, blob)}"
        self.initializers[name] = self.of(node, blob) if value is None else value
        return name

    def add(self, kind: str, node: Node, inputs: Sequence[str], outputs: Sequence[str], **attributes: Any) -> None:
        name = f"{node.name}_{len(self.nodes)}"
        self.nodes.append(onnx().helper.make_node(kind, list(inputs), list(outputs), name=name, **attributes))

    def bottoms(self, node: Node) -> list[str]:
        return [self.names[b] for b in node.bottoms]

    def tops(self, node: Node) -> list[str]:
        return [self.names[b] for b in node.tops]


def write(net: Net, weights: Mapping[str, np.ndarray], path: str | Path) -> None:
    """Write the net of phase TEST with these weights, "<layer>/<blob>" -> values in Caffe's shapes.

    Raises NotExported if ONNX has no operator for a layer, and KeyError if weights are missing."""
    content = model(net, weights).SerializeToString()
    with replacing(Path(path), "wb") as file:
        file.write(content)


def model(net: Net, weights: Mapping[str, np.ndarray]) -> Any:
    """The model in memory. Raises as `write`."""
    o, graph = onnx(), with_scores(net).graph("TEST")
    used = _used(graph)
    writer = Writer(weights)
    problems = []
    for node in used:
        for blob in node.tops:
            writer.names[blob] = blob.tensor.name
        if len(node.bottoms) and node.layer.type not in EXPORTED:
            problems.append(f"{node.place}: layer {node.name!r}: ONNX has no operator for {node.layer.type}")
    for node in used:
        follower = _scale_behind(node)
        if follower is not None:
            writer.scaled[node.name] = follower
    if problems:
        raise NotExported("\n".join(problems))
    done = {follower.name for follower in writer.scaled.values()}
    for node in used:
        if node.bottoms and node.name not in done:
            EXPORTED[node.layer.type](writer, node)
    inside = {id(node) for node in used}
    sources = [b for node in used if not node.bottoms for b in node.tops]
    inputs = [b for b in sources if b.tensor.role is not Role.LABEL or any(id(c) in inside for c in b.consumers)]
    ends = [b for n in used if n.bottoms for b in n.tops if not any(id(c) in inside for c in b.consumers)]
    info = o.helper.make_tensor_value_info
    made = o.helper.make_graph(
        writer.nodes,
        net.name or "net",
        [info(writer.names[b], o.TensorProto.FLOAT, [BATCH, *b.tensor.shape[1:]]) for b in inputs],
        [info(writer.names[b], o.TensorProto.FLOAT, [BATCH, *b.tensor.shape[1:]]) for b in ends],
        [o.numpy_helper.from_array(np.ascontiguousarray(v), n) for n, v in writer.initializers.items()],
    )
    result = o.helper.make_model(made, opset_imports=[o.helper.make_opsetid("", OPSET)], producer_name="minidnn")
    result.ir_version = IR
    o.checker.check_model(result)
    return result


def _used(graph: Graph) -> list[Node]:
    """The layers that compute scores: none that is a loss or reads labels, and none that only these read."""

    def scores(n: Node) -> bool:
        labelled = n.layer.type != "Embed" and any(b.tensor.role is Role.LABEL for b in n.bottoms)
        return not (n.layer.loss or n.layer.type == "Silence" or labelled)

    kept = [n for n in graph.layers if scores(n)]
    inside = {id(n) for n in kept}

    def read(b: Blob) -> bool:
        return b.tensor.role is not Role.LABEL or any(id(c) in inside for c in b.consumers)

    return [n for n in kept if n.bottoms or any(map(read, n.tops))]


def _scale_behind(node: Node) -> Node | None:
    """The Scale that alone reads a BatchNorm's top."""
    if node.layer.type != "BatchNorm" or len(node.tops[0].consumers) != 1:
        return None
    (after,) = node.tops[0].consumers
    plain = after.layer.type == "Scale" and len(after.bottoms) == 1
    return after if plain and after.layer.param.axis == 1 and after.layer.param.num_axes == 1 else None


# -- one function a layer type


def _same(kind: str, **fixed: Any) -> Callable[[Writer, Node], None]:
    return lambda w, node: w.add(kind, node, w.bottoms(node), w.tops(node), **fixed)


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
        w.add("Reshape", node, [x, _ints(w, node, "flat", [0, *shape[1:axis], math.prod(shape[axis:])])], [flat])
        x = flat
    product = f"{y}.product" if bias else y
    w.add("MatMul", node, [x, w.initializer(node, "w", np.ascontiguousarray(weight.T))], [product])
    if bias:
        w.add("Add", node, [product, *bias], [y])


def _ints(w: Writer, node: Node, what: str, numbers: Sequence[int]) -> str:
    return w.initializer(node, f"{what}_shape", np.array(numbers, np.int64))


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
        w.add("Reshape", node, [second[0], _ints(w, node, "factor", _free([*[1] * axis, *part, *ones], axis))], [view])
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


def pad(w: Writer, node: Node) -> None:
    before, after = around(node.layer.param, node.bottoms[0].tensor.shape)
    w.add("Pad", node, [*w.bottoms(node), _ints(w, node, "pads", [*before, *after])], w.tops(node))


def prelu(w: Writer, node: Node) -> None:
    name = node.parameters[0].name
    slope = w.of(node, name).reshape(-1, *[1] * (len(node.bottoms[0].tensor.shape) - 2))
    w.add("PRelu", node, [*w.bottoms(node), w.initializer(node, name, slope)], w.tops(node))


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


def concat(w: Writer, node: Node) -> None:
    w.add("Concat", node, w.bottoms(node), w.tops(node), axis=node.layer.param.axis)


def to_shape(w: Writer, node: Node) -> None:
    """Flatten and Reshape: the first axis stays free if it keeps its length."""
    before, after = node.bottoms[0].tensor.shape, node.tops[0].tensor.shape
    dims = [0, *after[1:]] if before[0] == after[0] else [-1, *after[1:]]
    w.add("Reshape", node, [*w.bottoms(node), _ints(w, node, "new", dims)], w.tops(node))


def softmax(w: Writer, node: Node) -> None:
    w.add("Softmax", node, w.bottoms(node), w.tops(node), axis=node.layer.param.axis)


def slice_(w: Writer, node: Node) -> None:
    axis = node.layer.param.axis % len(node.bottoms[0].tensor.shape)
    sizes = [b.tensor.shape[axis] for b in node.tops]
    w.add("Split", node, [*w.bottoms(node), _ints(w, node, "parts", sizes)], w.tops(node), axis=axis)


def permute(w: Writer, node: Node) -> None:
    given, rank = node.layer.param.order, len(node.bottoms[0].tensor.shape)
    order = [*given, *(i for i in range(rank) if i not in given)]
    w.add("Transpose", node, w.bottoms(node), w.tops(node), perm=order)


def tile(w: Writer, node: Node) -> None:
    p, rank = node.layer.param, len(node.bottoms[0].tensor.shape)
    times = [1] * rank
    times[p.axis % rank] = p.tiles
    w.add("Tile", node, [*w.bottoms(node), _ints(w, node, "times", times)], w.tops(node))


def split(w: Writer, node: Node) -> None:
    for top in w.tops(node):
        w.add("Identity", node, w.bottoms(node), [top])


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
        widths = _ints(w, node, "widths", [n * a.depth for n in counts])
        parts = [f"{y}.{part}" for part in "qkv"]
        w.add("Split", node, [*given, widths], parts, axis=2)
        given = parts
    turned, rows, columns = [], [0, 2, 3, 1, 4], [0, 2, 3, 4, 1]
    for part, x, heads, order in zip("qkv", given, (group, 1, 1), (rows, columns, rows), strict=True):
        w.add("Reshape", node, [x, _ints(w, node, part, [0, 0, a.kv_heads, heads, a.depth])], [f"{y}.{part}.heads"])
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
    w.add("Reshape", node, [f"{y}.back", _ints(w, node, "whole", [0, 0, a.heads * a.depth])], [y])


def rotary(w: Writer, node: Node) -> None:
    """By tables of cosines and sines, since the operator RotaryEmbedding came with version 23."""
    assert isinstance(node.layer, RotaryEmbedding)
    (y,), a, (x,) = w.tops(node), node.layer.attrs(node.bottoms[0].tensor.shape), w.bottoms(node)
    rotated, half = a.heads * a.depth, a.depth // 2
    rest = [f"{y}.rest"] if rotated < a.width else []
    if rest:
        w.add("Split", node, [x, _ints(w, node, "widths", [rotated, a.width - rotated])], [f"{y}.own", *rest], axis=2)
    whole = [0, 0, a.heads, *((half, 2) if a.interleaved else (2, half))]
    w.add("Reshape", node, [f"{y}.own" if rest else x, _ints(w, node, "pairs", whole)], [f"{y}.pairs"])
    apart = {"axis": 4 if a.interleaved else 3}
    w.add("Split", node, [f"{y}.pairs", _ints(w, node, "ones", [1, 1])], [f"{y}.u", f"{y}.v"], **apart)
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
    w.add("Reshape", node, [f"{y}.turned", _ints(w, node, "own", [0, 0, rotated])], [own])
    if rest:
        w.add("Concat", node, [own, *rest], [y], axis=2)


def layer_norm(w: Writer, node: Node) -> None:
    p, shape = node.layer.param, node.bottoms[0].tensor.shape
    axis = p.axis % len(shape)
    names = [q.name for q in node.parameters]
    gamma = w.initializer(node, names[0]) if names else w.initializer(node, "gamma", np.ones(shape[axis:], np.float32))
    beta = [w.initializer(node, names[1])] if names else []
    w.add("LayerNormalization", node, [*w.bottoms(node), gamma, *beta], w.tops(node), axis=axis, epsilon=p.eps)


def group_norm(w: Writer, node: Node) -> None:
    """By instances of rows, since the operator GroupNormalization came with version 18."""
    (x,), (y,), p, shape = w.bottoms(node), w.tops(node), node.layer.param, node.bottoms[0].tensor.shape
    plain = [w.initializer(node, what, np.full(p.num_groups, v, np.float32)) for what, v in (("ones", 1), ("zeros", 0))]
    w.add("Reshape", node, [x, _ints(w, node, "rows", [0, p.num_groups, -1])], [f"{y}.rows"])
    w.add("InstanceNormalization", node, [f"{y}.rows", *plain], [f"{y}.normal"], epsilon=p.eps)
    w.add("Reshape", node, [f"{y}.normal", _ints(w, node, "whole", [0, *shape[1:]])], [y])


def rms_norm(w: Writer, node: Node) -> None:
    (x,), (y,), p, rank = w.bottoms(node), w.tops(node), node.layer.param, len(node.bottoms[0].tensor.shape)
    w.add("Mul", node, [x, x], [f"{y}.squares"])
    w.add("ReduceMean", node, [f"{y}.squares"], [f"{y}.mean"], keepdims=1, axes=list(range(p.axis % rank, rank)))
    w.add("Add", node, [f"{y}.mean", w.initializer(node, "eps", np.float32(p.eps))], [f"{y}.sum"])
    w.add("Sqrt", node, [f"{y}.sum"], [f"{y}.root"])
    w.add("Div", node, [x, f"{y}.root"], [y])


def reduction(w: Writer, node: Node) -> None:
    (x,), (y,), p = w.bottoms(node), w.tops(node), node.layer.param
    axes = list(range(p.axis % len(node.bottoms[0].tensor.shape), len(node.bottoms[0].tensor.shape)))
    if axes[0] == 0:
        raise NotExported(f"{node.place}: layer {node.name!r}: a Reduction over the batch has no free batch")
    kind = {"SUM": "ReduceSum", "MEAN": "ReduceMean", "ASUM": "ReduceL1", "SUMSQ": "ReduceSumSquare"}[p.operation]
    out = y if p.coeff == 1 else f"{y}.plain"
    if kind == "ReduceSum":
        w.add(kind, node, [x, _ints(w, node, "axes", axes)], [out], keepdims=0)
    else:
        w.add(kind, node, [x], [out], keepdims=0, axes=axes)
    if p.coeff != 1:
        w.add("Mul", node, [out, w.initializer(node, "coeff", np.float32(p.coeff))], [y])


def embed(w: Writer, node: Node) -> None:
    (x,), (y,), p = w.bottoms(node), w.tops(node), node.layer.param
    out = f"{y}.rows" if p.bias_term else y
    w.add("Cast", node, [x], [f"{y}.indices"], to=7)
    w.add("Gather", node, [w.initializer(node, "w"), f"{y}.indices"], [out])
    if p.bias_term:
        w.add("Add", node, [out, w.initializer(node, "b")], [y])


def upsample(w: Writer, node: Node) -> None:
    s = float(node.layer.param.scale)
    scales = w.initializer(node, "scales", np.array([1, 1, s, s], np.float32))
    how = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    w.add("Resize", node, [*w.bottoms(node), "", scales], w.tops(node), **how)


EXPORTED: dict[str, Callable[[Writer, Node], None]] = {
    "Convolution": convolution, "Deconvolution": convolution, "InnerProduct": inner_product,
    "BatchNorm": batch_norm, "Scale": scale, "Bias": scale, "Pooling": pooling, "LRN": lrn, "LayerNorm": layer_norm,
    "ReLU": relu, "PReLU": prelu, "ELU": elu, "Sigmoid": _same("Sigmoid"), "TanH": _same("Tanh"),
    "AbsVal": _same("Abs"), "BNLL": _same("Softplus"), "Power": power, "Exp": exponential, "Log": logarithm,
    "Clip": clip, "GELU": gelu, "Erf": _same("Erf"), "HardSigmoid": hard_sigmoid, "HardSwish": _same("HardSwish"),
    "GroupNorm": group_norm, "RMSNorm": rms_norm, "Pad": pad,
    "Swish": swish, "Mish": mish, "Dropout": _same("Identity"), "Eltwise": eltwise,
    "Concat": concat, "Flatten": to_shape, "Reshape": to_shape, "Softmax": softmax, "Slice": slice_, "Permute": permute,
    "Tile": tile, "Split": split, "MatMul": matmul, "Reduction": reduction, "Embed": embed, "Upsample": upsample,
    "Attention": attention, "RotaryEmbedding": rotary,
}  # fmt: skip
