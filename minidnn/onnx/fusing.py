"""Layers of a graph that together are one layer of minidnn's.

Exporters write GELU, Swish, Mish, HardSwish and GroupNorm out as several nodes. The one layer computes the same, keeps
fewer tensors for backward, and has a faster kernel. It takes the place of the last of its parts, and the name of its
top. Parts that another layer reads, or that are outputs of the graph, stay as they are.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from minidnn.onnx.node import Reader

Spec = dict[str, Any]  # a layer, as in a file


def fuse(r: Reader, outputs: Iterable[str]) -> None:
    """Put one layer in the place of several, wherever that is the same; `outputs` are values that must stay."""
    graph = _Graph(r, {r.blobs[name] for name in outputs if name in r.blobs})
    for layer in r.layers:
        if layer["type"] == "Reshape":
            _group_norm(graph, layer)
        elif layer["type"] == "Bias":
            _scaled(graph, layer)
        elif layer["type"] == "Eltwise" and layer.get("eltwise_param") == {"operation": "PROD"}:
            _gated(graph, layer)
    r.layers[:] = [layer for layer in r.layers if id(layer) not in graph.gone]


class _Graph:
    """Which layer makes a blob, and who reads it."""

    def __init__(self, r: Reader, kept: set[str]) -> None:
        self.maker = {top: layer for layer in r.layers for top in _names(layer, "top")}
        self.reads = Counter(b for layer in r.layers for b in _names(layer, "bottom"))
        self.reader = {b: layer for layer in r.layers for b in _names(layer, "bottom")}  # the last of them
        self.shapes, self.kept = r.shapes, kept
        self.gone: set[int] = set()
        self.weights, self.bound = r.weights, r.bound

    def move(self, layer: Spec, blob: str, to: Spec) -> None:
        """A blob of one layer becomes one of another, of the same name."""
        self.weights[f"{to['name']}/{blob}"] = self.weights.pop(f"{layer['name']}/{blob}")
        for name, place in self.bound.items():
            if place.spec is layer and place.blob.name == blob:
                self.bound[name] = replace(place, spec=to)

    def replace(self, last: Spec, parts: Iterable[Spec], kind: str, x: str, **fields: Any) -> bool:
        """The last layer becomes one that reads x; the parts are gone."""
        for part in (*parts, last):
            self.reads.subtract(_names(part, "bottom"))
        self.gone.update(id(part) for part in parts)
        name, top = last["name"], last["top"]
        last.clear()
        last.update({"name": name, "type": kind, "bottom": [x], "top": top, **fields})
        self.reads[x] += 1
        self.reader[x] = last
        return True

    def behind(self, blob: str, kind: str, reads: int = 1) -> Spec | None:
        """The layer of this type that makes a blob which nobody reads but those `reads` that take part."""
        layer = self.maker.get(blob)
        inner = layer is not None and layer["type"] == kind and self.reads[blob] == reads and blob not in self.kept
        return layer if inner else None

    def line(self, blob: str, reads: int = 1) -> tuple[str, float, float, Spec] | None:
        """(x, scale, shift, layer) of a blob that is scale x + shift."""
        layer = self.behind(blob, "Power", reads)
        message = layer.get("power_param", {}) if layer else {}
        if layer is None or message.get("power", 1) != 1:
            return None
        return layer["bottom"][0], message.get("scale", 1.0), message.get("shift", 0.0), layer


def _names(layer: Spec, what: str) -> list[str]:
    value = layer.get(what, [])
    return [value] if isinstance(value, str) else list(value)


def _group_norm(graph: _Graph, last: Spec) -> bool:
    """A Reshape to groups, the norm of each, and a Reshape back."""
    norm = graph.behind(last["bottom"][0], "InstanceNorm")
    first = graph.behind(norm["bottom"][0], "Reshape") if norm else None
    if norm is None or first is None or norm["instance_norm_param"].get("affine", True):
        return False
    (x,), groups = first["bottom"], graph.shapes[first["top"][0]]
    shape = graph.shapes[x]
    if graph.shapes[last["top"][0]] != shape or len(shape) < 3 or groups[0] != shape[0]:
        return False
    if len(groups) != 3 or shape[1] % groups[1]:
        return False
    message = {"num_groups": groups[1]} | norm["instance_norm_param"]
    return graph.replace(last, [first, norm], "GroupNorm", x, group_norm_param=message)


def _scaled(graph: _Graph, last: Spec) -> bool:
    """A norm of groups, a Scale of its channels, and a Bias of these."""
    across = {"axis": 1, "num_axes": 1}
    scale = graph.behind(last["bottom"][0], "Scale") if last.get("bias_param") == across else None
    norm = graph.behind(scale["bottom"][0], "GroupNorm") if scale and scale.get("scale_param") == across else None
    if scale is None or norm is None or norm["group_norm_param"].get("affine", True):
        return False
    message, param = (
        {k: v for k, v in norm["group_norm_param"].items() if k != "affine"},
        scale["param"] + last["param"],
    )
    graph.move(scale, "gamma", last)
    return graph.replace(last, [scale, norm], "GroupNorm", norm["bottom"][0], param=param, group_norm_param=message)


def _gated(graph: _Graph, last: Spec) -> bool:
    """x times a function of x: Swish, Mish, HardSwish, GELU."""
    for gate, factor in (last["bottom"], last["bottom"][::-1]):
        found = _swish(graph, gate, factor) or _mish(graph, gate, factor) or _hard_swish(graph, gate, factor)
        if found:
            kind, parts, fields = found
            return graph.replace(last, parts, kind, factor, **fields)
        if _gelu(graph, last, gate, factor):
            return True
    return False


Found = tuple[str, list[Spec], dict[str, Any]] | None  # the layer's type, the parts that it replaces, its fields


def _swish(graph: _Graph, gate: str, x: str) -> Found:
    sigmoid = graph.behind(gate, "Sigmoid")
    if sigmoid is None:
        return None
    (inner,) = sigmoid["bottom"]
    if inner == x:
        return "Swish", [sigmoid], {}
    line = graph.line(inner)
    if line is None or line[0] != x or line[2] != 0:
        return None
    return "Swish", [sigmoid, line[3]], {"swish_param": {"beta": line[1]}}


def _mish(graph: _Graph, gate: str, x: str) -> Found:
    tanh = graph.behind(gate, "TanH")
    soft = graph.behind(tanh["bottom"][0], "BNLL") if tanh else None
    return ("Mish", [tanh, soft], {}) if tanh and soft and soft["bottom"] == [x] else None


def _hard_swish(graph: _Graph, gate: str, x: str) -> Found:
    hard = graph.behind(gate, "HardSigmoid")
    if hard is None or hard["bottom"] != [x]:
        return None
    message = hard.get("hard_sigmoid_param", {})
    alike = _near(message.get("alpha", 0.2), 1 / 6) and message.get("beta", 0.5) == 0.5
    return ("HardSwish", [hard], {}) if alike else None


def _gelu(graph: _Graph, last: Spec, gate: str, factor: str) -> bool:
    """k x (f(x) + 1) m n with k m n = 1/2, where k x is `factor`, and n may be the factor of a layer behind."""
    total, parts = 1.0, []
    line = graph.line(gate)
    while line is not None and line[2] == 0:  # factors of the gate
        total, gate = total * line[1], line[0]
        parts.append(line[3])
        line = graph.line(gate)
    if line is None or line[1] != line[2]:
        return False
    total *= line[1]
    parts.append(line[3])
    bent = graph.behind(line[0], "Erf") or graph.behind(line[0], "TanH")
    if bent is None:
        return False
    parts.append(bent)
    x, scaled = factor, graph.line(factor)
    inner = (_root if bent["type"] == "Erf" else _cube)(graph, bent["bottom"][0])
    if inner is None:
        return False
    if scaled is not None and scaled[2] == 0 and scaled[0] == inner[0]:
        x, total = scaled[0], total * scaled[1]
        parts.append(scaled[3])
    if x != inner[0]:
        return False
    parts += inner[1]
    if not _near(total, 0.5):
        (top,) = _names(last, "top")
        after = graph.reader.get(top)
        if after is None or graph.reads[top] != 1 or top in graph.kept or after["type"] != "Power":
            return False
        message = after.get("power_param", {})
        plain = message.get("power", 1) == 1 and message.get("shift", 0) == 0
        if not plain or not _near(total * message.get("scale", 1.0), 0.5):
            return False
        parts.append(last)
        last = after
    fields = {} if bent["type"] == "Erf" else {"gelu_param": {"approximate": "TANH"}}
    return graph.replace(last, parts, "GELU", x, **fields)


Inner = tuple[str, list[Spec]] | None  # x, and the layers between


def _root(graph: _Graph, blob: str) -> Inner:
    """x / sqrt(2)"""
    line = graph.line(blob)
    return (line[0], [line[3]]) if line and line[2] == 0 and _near(line[1], math.sqrt(0.5)) else None


def _cube(graph: _Graph, blob: str) -> Inner:
    """sqrt(2 / pi) (x + 0.044715 x^3)"""
    outer = graph.line(blob)
    if outer is None or outer[2] != 0 or not _near(outer[1], math.sqrt(2 / math.pi)):
        return None
    total = graph.behind(outer[0], "Eltwise")
    if total is None or total.get("eltwise_param") or len(total["bottom"]) != 2:
        return None
    for x, part in (total["bottom"], total["bottom"][::-1]):
        line = graph.line(part)
        if line is None or line[2] != 0 or not _near(line[1], 0.044715):
            continue
        cube = _third_power(graph, line[0], x)
        if cube is not None:
            return x, [outer[3], total, line[3], *cube]
    return None


def _third_power(graph: _Graph, blob: str, x: str) -> list[Spec] | None:
    """The layers that make x^3: a power, or two products."""
    power = graph.behind(blob, "Power")
    if power is not None:
        return [power] if power["bottom"] == [x] and power.get("power_param") == {"power": 3.0} else None
    product = graph.behind(blob, "Eltwise")
    if product is None or product.get("eltwise_param") != {"operation": "PROD"} or x not in product["bottom"]:
        return None
    rest = list(product["bottom"])
    rest.remove(x)
    square = graph.behind(rest[0], "Eltwise") if len(rest) == 1 else None
    product_of_x = {"bottom": [x, x], "eltwise_param": {"operation": "PROD"}}
    if square is not None and all(square.get(k) == v for k, v in product_of_x.items()):
        return [product, square]
    power = graph.behind(rest[0], "Power") if len(rest) == 1 else None
    if power is not None and power["bottom"] == [x] and power.get("power_param") == {"power": 2.0}:
        return [product, power]
    return None


def _near(a: float, b: float) -> bool:
    """Whether both are one number, given in float32 or with some seven digits."""
    return math.isclose(a, b, rel_tol=1e-6)
