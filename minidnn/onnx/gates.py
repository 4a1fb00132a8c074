"""The order of the gates of LSTM and GRU in ONNX and in the layers."""

from __future__ import annotations

from minidnn.onnx.weight import Weight


def ordered(kind: str, weight: Weight) -> Weight:
    """The same with the gates in the other order, of ONNX or of the layer: an LSTM's i, o, f, c are i, f, o, g there. A
    GRU's order is one in both."""
    if kind == "GRU":
        return weight
    return weight.reshaped((2, 2, weight.size // 4)).transposed((1, 0, 2)).reshaped(weight.shape)
