"""Files of nets and solvers as Documents, by the suffix of the name: YAML, Caffe's prototxt, or a .caffemodel, which
has the net beside its weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from minidnn.files import regular
from minidnn.schema import prototext, yaml
from minidnn.schema.blobs import message
from minidnn.schema.document import CAFFEMODEL, PROTOTEXT, Document, InvalidFile


def read(path: str | Path) -> Document:
    """The document of a file. Raises InvalidFile for a bad one, and OSError for one that cannot be read."""
    if Path(path).suffix == CAFFEMODEL:
        return _binary(path)
    raw = regular.content(path)
    comments = Path(path).suffix in PROTOTEXT  # where any bytes may stand, as in Caffe
    try:
        return parse(raw.decode("utf-8", "surrogateescape" if comments else "strict"), str(path))
    except UnicodeDecodeError as error:
        before = raw[: error.start]
        line, column = before.count(b"\n") + 1, error.start - (before.rfind(b"\n") + 1) + 1
        raise InvalidFile([f"{path}:{line}:{column}: expected UTF-8 text, got byte {raw[error.start]:#x}"]) from None


def parse(text: str, source: str) -> Document:
    """The document of a text; `source` is its name in errors, and its suffix says what the text is.

    Raises InvalidFile for a bad syntax. Fields given twice become errors of the document."""
    return (prototext if Path(source).suffix in PROTOTEXT else yaml).parse(text, source)


def _binary(path: str | Path) -> Document:
    """The net in a .caffemodel, without its weights, and without the phases that Caffe noted there as it wrote."""
    from minidnn.schema.binary import BinaryNet

    _, net = message(path, BinaryNet)
    for field in ("layer", "layers"):
        layers: list[Any] = net.get(field, [])
        for layer in (layer for layer in layers if isinstance(layer, dict)):
            layer.pop("blobs", None)
            layer.pop("phase", None)
    if isinstance(net.get("state"), dict):
        net["state"].pop("#1", None)  # the phase
    return Document(net, what=str(path))
