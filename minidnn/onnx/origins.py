"""Which numbers of a file are parameters, to be trained, and which are constants, to be left alone.

ONNX does not say. PyTorch's newer exporter notes the module's parameters (exported.py). Its older one keeps their names
(scripted.py). Of other files the place decides: what a convolution, a product, an embedding or a normalization has as
its own is a parameter, and so is what is called a weight or a bias. The caller may decide instead.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from minidnn.errors import InvalidInput, few, near
from minidnn.onnx.node import Refused
from minidnn.onnx.tensors import array
from minidnn.onnx.weight import Weight

Trained = Iterable[str] | Callable[[str], bool] | None
OWN = {  # operator -> the inputs that are its own, if they are not computed
    "Conv": (1, 2), "ConvTranspose": (1, 2), "Gemm": (1, 2), "MatMul": (0, 1), "Gather": (0,), "PRelu": (1,),
    "BatchNormalization": (1, 2), "LayerNormalization": (1, 2), "InstanceNormalization": (1, 2),
    "GroupNormalization": (1, 2), "RMSNormalization": (1,), "LSTM": (1, 2, 3), "GRU": (1, 2, 3),
}  # fmt: skip
COMBINED = ("Add", "Sub", "Mul", "Div")
MOVED = ("Identity", "Transpose", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Cast", "CastLike", "Expand", "Slice")
NAMED = re.compile(r"(^|[._/])(weight|bias|gamma|beta|kernel|slope|alpha)(_?[a-z]{1,2}\d*)?$")
STATISTICS = re.compile(r"(^|[._/])(running_mean|running_var|num_batches_tracked|moving_mean|moving_variance)$")
AUTOMATIC = re.compile(r"onnx::|_?val_\d+$|\d+$|.*Constant(_\d+)?(_output_\d+)?$|const_")


@dataclass
class Origins:
    """What the numbers of a file are.

    nodes:      the graph's nodes, which read parameters by the names in `parameters`
    problems:   why the file cannot be trained as the module that it comes from, though another file of it can
    unlike:     why no file of the module can be trained as it is
    notes:      what was decided by appearances
    """

    nodes: list[Any]
    constants: dict[str, np.ndarray]
    parameters: dict[str, Weight] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    unlike: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def decided(origins: Origins, trained: Trained, source: str) -> Origins:
    """The same, with the parameters that the caller chooses. Raises InvalidInput for names that are none."""
    if trained is None:
        return origins
    names = {w.name for w in origins.parameters.values()} | {
        name for name, numbers in origins.constants.items() if numbers.dtype.kind == "f"
    }
    chosen = trained if callable(trained) else set(trained).__contains__
    if not callable(trained):
        for name in trained:
            if name not in names:
                raise InvalidInput(f"{source}: trained: it has no numbers called {name!r}{near(name, names)}")
    for value, weight in list(origins.parameters.items()):
        if not chosen(weight.name):
            origins.constants[value] = origins.parameters.pop(value).numbers
    for value in [v for v, numbers in origins.constants.items() if numbers.dtype.kind == "f" and chosen(v)]:
        origins.parameters[value] = Weight(origins.constants.pop(value), value, True)
    return origins


def by_place(nodes: list[Any], arrays: Mapping[str, np.ndarray]) -> Origins:
    """The origins in a file without PyTorch's notes."""
    result = Origins(list(nodes), dict(arrays))
    owned = own(nodes)
    read = {name for node in nodes if node.op_type in (*COMBINED, *MOVED) for name in node.input}
    for name, numbers in arrays.items():
        if numbers.dtype.kind != "f" or STATISTICS.search(name):
            continue
        if name in owned or (name in read and NAMED.search(name) and not AUTOMATIC.match(name)):
            result.parameters[name] = Weight(result.constants.pop(name), name, True)
    return result


def own(nodes: Iterable[Any]) -> set[str]:
    """The values that nodes have as their own, and those that these come from by moves alone."""
    nodes = list(nodes)
    places = {(n, k) for node in nodes for k in OWN.get(node.op_type, ()) for n in node.input[k : k + 1] if n}
    result = {name for name, _ in places}
    for node in reversed(nodes):
        if node.op_type in MOVED and result.intersection(node.output):
            result.add(node.input[0])
    return result


def frozen(shapes: Mapping[str, tuple[int, ...]]) -> str:
    """The sentence that names constants that layers have; "" if there is none."""
    listed = [f"{name} ({'x'.join(map(str, shape)) or '1'})" for name, shape in shapes.items()]
    return f"frozen, as constants of the file: {few(listed, 8)}" if listed else ""


def arrays(model: Any, beside: Mapping[str, np.ndarray]) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """(the numbers of the initializers, why those of others cannot be read); `beside`: those of other files"""
    result, unread = {}, {}
    for tensor in model.graph.initializer:
        try:
            known = beside.get(tensor.name)
            result[tensor.name] = array(tensor) if known is None else known
        except Refused as reason:
            unread[tensor.name] = str(reason)
    return result, unread
