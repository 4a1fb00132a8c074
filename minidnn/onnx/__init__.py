"""ONNX: nets read from its files and written to them (the extra `onnx`).

    net, weights = read("model.onnx")    a Net, and its weights by "<layer>/<blob>", as --weights takes them
    write(net, weights, "model.onnx")    the net of phase TEST, as other programs run it

`reading.py` walks the graph; files of `ops/` say which layers an operator becomes. Files of `writing`
say the reverse.
"""

from __future__ import annotations

from minidnn.onnx.file import InvalidModel
from minidnn.onnx.reading import read
from minidnn.onnx.writing import NotExported, write

__all__ = ["InvalidModel", "NotExported", "read", "write"]
