"""Write the networks of this folder that repeat themselves, from their one definition in minidnn/zoo.

    python models/generate.py            write them
    python models/generate.py --check    say which files differ, and fail if any does

Nets of other depths need no file: `minidnn plan vgg416`, `minidnn plan resnet1001`.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from minidnn import zoo
from minidnn.nets.net import Net
from minidnn.schema import plain

HERE = Path(__file__).resolve().parent
WIDTH = 118


def text(net: Net, about: str) -> str:
    """The net's file, a layer on a line where it fits."""
    head = [f"# {about}", "# Written by models/generate.py from minidnn/zoo.", f"name: {net.name}", "layer:"]
    return "\n".join([*head, *(_layer(plain(layer)) for layer in net.layers), ""])


def _layer(fields: dict[str, Any]) -> str:
    """One mapping, broken between fields where a line is full."""
    lines = ["- {"]
    for i, (key, value) in enumerate(fields.items()):
        part = f"{key}: {_flow(value)}" + ("}" if i == len(fields) - 1 else ",")
        if len(lines[-1]) + len(part) > WIDTH:
            lines.append("  ")
        lines[-1] += part if lines[-1].endswith("{") else f" {part}"
    return "\n".join(lines)


def _flow(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_flow(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_flow, value)) + "]"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def main(check: bool) -> int:
    different = []
    for kind in zoo.WRITTEN:
        net = kind()
        wanted = text(net, kind.__doc__ or "")
        path = HERE / f"{net.name}.yaml"
        if check:
            if not path.is_file() or path.read_text() != wanted:
                different.append(path.name)
        else:
            path.write_text(wanted)
            print(path)
    if different:
        print(f"differ from minidnn/zoo: {', '.join(different)}", file=sys.stderr)
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv[1:]))
