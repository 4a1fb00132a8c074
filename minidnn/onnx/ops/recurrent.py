"""LSTM and GRU, forward and with one length for all sequences. Tops of the layers lack ONNX's axis of directions."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from minidnn.layers.base import Shape
from minidnn.layers.recurrent import GATES
from minidnn.onnx.gates import ordered
from minidnn.onnx.node import Node, Reader, Refused
from minidnn.onnx.ops.moves import part, reshaped
from minidnn.onnx.pieces import weight_of
from minidnn.onnx.weight import Weight, constant

FUNCTIONS = {"LSTM": ["sigmoid", "tanh", "tanh"], "GRU": ["sigmoid", "tanh"]}
STATES = {"LSTM": "hc", "GRU": "h"}


def recurrent(r: Reader, node: Node) -> None:
    """An LSTM or a GRU. The two biases of an LSTM are one there, their sum, unless they are two parameters."""
    kind = node.type
    _refuse(node, kind)
    x, gates, r_name = r.blob(node.inputs[0]), GATES[kind], node.inputs[2]
    steps, batch, inputs = r.shapes[x]
    width = (r.pieces[r_name] if r_name in r.pieces else r.needed(r_name, "R")).shape[-1]
    rows = gates * width
    w, w_hidden = (
        ordered(kind, _own(r, node.inputs[i], what, (1, rows, columns)))
        for i, what, columns in ((1, "W", inputs), (2, "R", width))
    )
    if node.get("hidden_size") not in (None, width):
        raise Refused(f"its hidden_size is {node.get('hidden_size')}, and its R has {width} columns")
    _same_lengths(r, node, steps)
    b, b_hidden = (ordered(kind, bias) for bias in _biases(r, node, rows))
    fields: dict[str, object] = {"num_output": int(width)}
    params = [w, b, w_hidden, b_hidden]
    if kind == "LSTM" and b.name:  # two parameters, each trained by itself
        fields["hidden_bias"] = True
    elif kind == "LSTM":
        params = [w, Weight(b.numbers + b_hidden.numbers, "", b.trained), w_hidden]
    given = [_state(r, node, 5 + i) for i in range(len(STATES[kind]))]
    wants_cells = kind == "LSTM" and len(node.outputs) > 2 and bool(node.outputs[2])
    exposed = wants_cells or any(given)
    bottoms = [x]
    for name, s in zip(given, STATES[kind], strict=True) if exposed else ():
        bottoms.append(r.blob(name or _zeros(r, f"{node.name}_{s}_0", (1, batch, width))))
    fields |= {"expose_hidden": True} if exposed else {}
    tops = 1 + len(STATES[kind]) if exposed else 1
    of_torch = re.fullmatch(r"(.+)\.weight_ih_(l\d+)", w.name)
    name = f"{of_torch[1]}.{of_torch[2]}" if of_torch else node.name
    y, *states = r.layer(kind, bottoms, params, tops, name, recurrent_param=fields)
    if not states and len(node.outputs) > 1 and node.outputs[1]:
        states = [part(r, y, 0, steps - 1, steps, f"{node.name}_last")]
    whole = reshaped(r, y, [steps, 1, batch, width], f"{node.name}_directions") if node.outputs[0] else y
    r.gives(node, [whole, *states])


def _refuse(node: Node, kind: str) -> None:
    """Raise Refused for what the layers lack."""
    if node.get("direction", "forward") != "forward":
        raise Refused(f"its direction is {node.get('direction')!r}, and minidnn's layers go forward")
    if node.get("layout", 0):
        raise Refused("its layout is 1, and minidnn's layers have the step as the first axis: layout 0")
    if node.get("clip") is not None or node.get("input_forget", 0):
        raise Refused("minidnn's layers have neither clip nor input_forget")
    functions = [name.lower() for name in node.get("activations") or FUNCTIONS[kind]]
    if functions != FUNCTIONS[kind] or node.get("activation_alpha") or node.get("activation_beta"):
        raise Refused(f"its activations are {functions}, and those of minidnn's {kind} are {FUNCTIONS[kind]}")
    if kind == "GRU" and not node.get("linear_before_reset", 0):
        raise Refused("its linear_before_reset is 0, and minidnn's GRU is that of linear_before_reset=1, as PyTorch's")
    if kind == "LSTM" and node.input(7):
        raise Refused("it has peepholes, and minidnn's LSTM has none")


def _same_lengths(r: Reader, node: Node, steps: int) -> None:
    """Raise Refused if a sequence may be shorter than the others."""
    if not (name := node.input(4)):
        return
    lengths = r.known(name)
    if lengths is None or not (lengths == steps).all():
        said = "computed as the net runs" if lengths is None else f"{[int(n) for n in lengths.reshape(-1)[:8]]}"
        raise Refused(f"its sequence_lens are {said}, and minidnn's layers take all {steps} steps of each sequence")


def _own(r: Reader, name: str, what: str, shape: Shape) -> Weight:
    """A weight, without the axis of directions. Raises Refused if it has another shape."""
    found = r.pieces[name] if name in r.pieces else r.needed(name, what)
    if found.shape != shape:
        raise Refused(f"its {what} has shape {found.shape}, where {shape} is needed")
    return found.reshaped(shape[1:]) if isinstance(found, Weight) else weight_of(r, found[0], what)


def _biases(r: Reader, node: Node, rows: int) -> Sequence[Weight]:
    """The biases of the inputs and of the hidden state; frozen zeros if the node has none."""
    if not (name := node.input(3)):
        return [constant(np.zeros(rows, np.float32))] * 2
    if name in r.pieces:
        return [weight_of(r, half, "B").reshaped((rows,)) for half in r.pieces[name].reshape(2, -1, 1)]
    both = r.needed(name, "B")
    if both.shape != (1, 2 * rows):
        raise Refused(f"its B has shape {both.shape}, where {(1, 2 * rows)} is needed")
    return [Weight(numbers, "", both.trained) for numbers in both.numbers.reshape(2, rows)]


def _state(r: Reader, node: Node, place: int) -> str:
    """The name of the value that is a first state; "" for zeros."""
    name = node.input(place)
    known = r.known(name) if name else None
    return "" if known is not None and not known.any() else name


def _zeros(r: Reader, name: str, shape: tuple[int, ...]) -> str:
    """The name of a new constant."""
    r.constants[name] = np.zeros(shape, np.float32)
    return name


OPS = {"LSTM": recurrent, "GRU": recurrent}
