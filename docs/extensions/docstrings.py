"""Docstrings of minidnn are plain text: paragraphs, `names`, and lists of "name: what it means". Here they become
reStructuredText, which autodoc wants."""

from __future__ import annotations

import re
from typing import Any

_ITEM = re.compile(r"(\w[\w, ]*): +(?=\S)")


def converted(lines: list[str]) -> list[str]:
    """The lines as reStructuredText. A paragraph that begins with "name: ..." is a list of such items; the lines of an
    item that follow its first are indented."""
    found: list[str] = []
    listed = False
    for before, line in zip(["", *lines], lines, strict=False):
        item = _ITEM.match(line)
        if not before.strip():
            listed = item is not None
        text = _escaped(line.strip())
        if listed and item and not line.startswith(" "):
            found += ["", f"``{item[1]}``", f"   {_escaped(line[item.end() :])}"]
        else:
            found.append(f"   {text}" if listed and text else text)
    return found


def _escaped(text: str) -> str:
    """Names in backticks are literal, and no other character means anything."""
    parts = text.split("`")
    marked = [re.sub(r"([*|\\]|_(?!\w))", r"\\\1", part) for part in parts[::2]]
    literal = [f"``{part}``" for part in parts[1::2]]
    return "".join(a + b for a, b in zip(marked, [*literal, ""], strict=False))


def _convert(app: Any, what: str, name: str, value: Any, options: Any, lines: list[str]) -> None:
    lines[:] = converted(lines)


def setup(app: Any) -> dict[str, bool]:
    app.connect("autodoc-process-docstring", _convert)
    return {"parallel_read_safe": True}
