"""Files of nets and solvers as Documents: YAML, or Caffe's prototxt, by the suffix of the name."""

from __future__ import annotations

from pathlib import Path

from minidnn.schema import prototext, yaml
from minidnn.schema.document import Document, InvalidFile

PROTOTEXT = (".prototxt", ".pbtxt")


def read(path: str | Path) -> Document:
    """The document of a file. Raises InvalidFile for a bad one, and OSError for one that cannot be read."""
    raw = Path(path).read_bytes()
    try:
        return parse(raw.decode("utf-8"), str(path))
    except UnicodeDecodeError as error:
        before = raw[: error.start]
        line, column = before.count(b"\n") + 1, error.start - (before.rfind(b"\n") + 1) + 1
        raise InvalidFile([f"{path}:{line}:{column}: expected UTF-8 text, got byte {raw[error.start]:#x}"]) from None


def parse(text: str, source: str) -> Document:
    """The document of a text; `source` is its name in errors, and its suffix says what the text is.

    Raises InvalidFile for a bad syntax. Fields given twice become errors of the document."""
    return (prototext if Path(source).suffix in PROTOTEXT else yaml).parse(text, source)
