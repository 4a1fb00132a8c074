"""The Python source of a net: a class whose `define` gives the same layers."""

from __future__ import annotations

import json
import keyword
import re
from typing import Any

from minidnn.layers import LAYERS
from minidnn.nets.define import COMMON, TOPS, home
from minidnn.schema import LayerParameter, NetParameter, plain
from minidnn.visible import visible

_WIDTH = 120
_USED = ("minidnn", "L")  # names that the written source uses


def source(net: NetParameter) -> str:
    """The Python source of a module with one class, a Net with these layers."""
    batch = _batch(net)
    variables: dict[str, str] = {}
    body: list[str] = []
    for layer in net.layer:
        body += _call(layer, variables, batch)
    name = _identifier(net.name.title() if net.name.islower() else net.name, "TheNet")
    if name in _USED:  # else the class would hide a name that its own `define` uses
        name += "_"
    lines = ["import minidnn", "from minidnn import L", "", "", f"class {name}(minidnn.Net):"]
    lines += [f"    name = {_value(net.name)}"]
    lines += ["    force_backward = True"] if net.force_backward else []
    lines += [f"    state = {_value(plain(net.state))}"] if plain(net.state) else []
    lines += ["", f"    def define(self{f', batch={batch}' if batch else ''}):"]
    return "\n".join(lines + [f"        {line}" for line in body]) + "\n"


def _call(layer: LayerParameter, variables: dict[str, str], batch: int | None) -> list[str]:
    """The lines of the statement that calls one layer: one line if it fits, else one per argument."""
    data = plain(layer)
    arguments = [variables[bottom] for bottom in layer.bottom]
    arguments.append(f"name={_value(layer.name)}")
    in_place = len(layer.bottom) == 1 and layer.top == layer.bottom
    if in_place:
        arguments.append("in_place=True")
    elif layer.top != TOPS.get(layer.type, (layer.name,)):
        arguments.append(f"top={_value(data.get('top', []))}")
    arguments += [f"{field}={_value(data[field])}" for field in COMMON if field in data]
    for field, value in data.items():
        if field in ("name", "type", "bottom", "top", *COMMON):
            continue
        # the message's fields become arguments, unless one of them would go to another message of the type
        if value and all(home(layer.type, inner) == field for inner in value):
            arguments += [f"{k}={_batched(layer, k, v, batch)}" for k, v in value.items()]
        else:
            arguments.append(f"{field}={_value(value)}")
    for top in layer.top:
        if top not in variables:
            variables[top] = _variable(top, variables)
    target = ", ".join(variables[top] for top in layer.top)
    head = f"{target} = L.{layer.type}(" if target else f"L.{layer.type}("
    line = f"{head}{', '.join(arguments)})"
    if len(line) + 8 <= _WIDTH:
        return [line]
    return [head, *(f"    {argument}," for argument in arguments), ")"]


def _value(value: Any) -> str:
    if isinstance(value, dict) and all(isinstance(k, str) and k.isidentifier() for k in value):
        return f"dict({', '.join(f'{k}={_value(v)}' for k, v in value.items())})"
    if isinstance(value, list):
        return f"[{', '.join(map(_value, value))}]"
    return visible(json.dumps(value, ensure_ascii=False)) if isinstance(value, str) else repr(value)


def _batched(layer: LayerParameter, field: str, value: Any, batch: int | None) -> str:
    return "batch" if batch and field == LAYERS[layer.type].batch_field else _value(value)


def _batch(net: NetParameter) -> int | None:
    """The batch size, if all layers that have one have the same; else None."""
    kinds = [(layer, LAYERS[layer.type]) for layer in net.layer]
    sizes = {
        getattr(getattr(layer, kind.field_name or ""), kind.batch_field) for layer, kind in kinds if kind.batch_field
    }
    return sizes.pop() if len(sizes) == 1 else None


def _identifier(text: str, otherwise: str) -> str:
    name = re.sub(r"\W+", "_", text, flags=re.ASCII).strip("_")
    if not name:
        return otherwise
    return f"_{name}" if name[0].isdigit() or keyword.iskeyword(name) else name


def _variable(blob: str, variables: dict[str, str]) -> str:
    name = base = _identifier(blob, "blob")
    count = 1
    taken = {*variables.values(), "self", "batch", *_USED}
    while name in taken:
        count += 1
        name = f"{base}_{count}"
    return name
