"""A net whose tokens come a few at a time, each at its place behind those before it.

Its layers are those of a net of whole windows, of two sorts. Most are functions of each token alone, such as an
InnerProduct of axis 2. Those that depend on the places of tokens have a field `places` for that: Attention keeps keys
and values from step to step, and all of them read the places of a step's tokens from an input. A net that mixes tokens
in another way, such as by a Convolution along them, must see its whole window.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from minidnn.errors import InvalidInput
from minidnn.layers import LAYERS
from minidnn.layers.base import positive_axis
from minidnn.layers.unary import Unary
from minidnn.nets.graph import Graph, Node
from minidnn.nets.net import Net
from minidnn.schema import LayerParameter

TOKENS = 1  # the axis of tokens


class Mixing(InvalidInput):
    """A layer mixes tokens, or has none, so that they cannot come a few at a time; the message names it."""


def _each(node: Node) -> bool:
    """Of functions of single elements."""
    return True


def _behind(node: Node) -> bool:
    """Of layers that work along axes behind that of the tokens, or along one."""
    first = node.bottoms[0].tensor.shape
    return len(node.bottoms) == 1 and positive_axis(node.layer.param.axis, first) > TOKENS


def _along(node: Node) -> bool:
    """The same where there may be several bottoms."""
    return positive_axis(node.layer.param.axis, node.bottoms[0].tensor.shape) > TOKENS


def _placed(node: Node) -> bool:
    """Of a Bias that is a row for each place of a token."""
    p, shape = node.layer.param, node.bottoms[0].tensor.shape
    return len(node.bottoms) == 1 and p.num_axes != 0 and positive_axis(p.axis, shape) == TOKENS


ALONE: dict[str, Callable[[Node], bool]] = {  # layers whose tops at a token may be functions of the bottoms there
    **{name: _each for name, kind in LAYERS.items() if issubclass(kind, Unary)},
    **dict.fromkeys(("ReLU", "Dropout", "Eltwise", "Split"), _each),
    **dict.fromkeys(("InnerProduct", "LayerNorm", "RMSNorm", "Softmax", "Scale", "Bias"), _behind),
    **dict.fromkeys(("Slice", "Concat"), _along),
}
PLACED: dict[str, Callable[[Node], bool]] = {  # layers with a field `places`
    "Attention": lambda node: bool(node.layer.param.causal) and len(node.bottoms) in (1, 3),  # without a bias
    "RotaryEmbedding": _each,
    "Bias": _placed,
}


def placed(net: Net, data: str, count: int, head: bool = True) -> Net:
    """The net of `count` tokens, at any places of a window.

    net:  of one window of tokens (1, T), which an Input with the top `data` gives
    head: whether it has all layers; else those alone that what is kept depends on, from which no Attention follows
          being left out

    Raises Mixing if the net has to see its whole window."""
    graph = net.graph("TEST")
    needed = set(graph.layers) if head else _leading(graph)
    window = next(b for b in graph.blobs if b.name == data).tensor.shape[TOKENS]
    layers: list[LayerParameter] = []
    for node in graph.layers:
        if node in needed:
            layers += _layers(node, data, window, count)
    return net.with_layers(layers)


def fed(name: str, top: str, count: int) -> LayerParameter:
    """An Input of so many tokens of one sample."""
    shape = {"shape": [{"dim": [1, count]}]}
    return LayerParameter.model_validate({"name": name, "type": "Input", "top": [top], "input_param": shape})


def keeps(net: Net) -> bool:
    """Whether a layer of the net keeps keys and values."""
    return any(node.layer.type == "Attention" for node in net.graph("TEST").layers)


def _leading(graph: Graph) -> set[Node]:
    """The layers that some Attention depends on, itself included."""
    result: set[Node] = set()
    for node in reversed(graph.layers):
        if node.layer.type == "Attention" or any(node in result for b in node.tops for node in b.consumers):
            result.add(node)
    return result


def _layers(node: Node, data: str, window: int, count: int) -> Sequence[LayerParameter]:
    """The layers in the place of one."""
    spec, kind = node.layer.spec, node.layer.type
    if node.tops[0].name == data and node.layer.inputs:
        return [fed(spec.name, data, count)]
    if any(b.tensor.shape[:2] != (1, window) for b in (*node.bottoms, *node.tops)):
        raise Mixing(f"{_named(node)}: its bottoms and tops are not (N, T, ...) of tokens")
    if kind == "Embed":
        return [spec] if count > 1 else _one_row(spec)
    if kind in PLACED and PLACED[kind](node):
        param = node.layer.param.model_copy(update={"places": window})
        return [spec.model_copy(update={str(node.layer.field_name): param})]
    if kind in ALONE and ALONE[kind](node):
        return [spec]
    raise Mixing(f"{_named(node)}: it mixes tokens, or does not treat all of them alike")


def _one_row(embed: LayerParameter) -> Sequence[LayerParameter]:
    """An Embed of a single index, with its top of (1, 1, ...): the graph has one index of one sample as (1,)."""
    (top,), row = embed.top, f"{embed.name}/row"
    shape = {"axis": 1, "num_axes": 0, "shape": {"dim": [1]}}
    made = {"name": row, "type": "Reshape", "bottom": [row], "top": [top], "reshape_param": shape}
    return [embed.model_copy(update={"top": (row,)}), LayerParameter.model_validate(made)]


def _named(node: Node) -> str:
    return f"{node.place}: layer {node.name} ({node.layer.type})"
