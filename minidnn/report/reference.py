"""References of the fields that files may have, from the schema's table: JSON Schemas for editors, and two pages for
readers."""

from __future__ import annotations

import inspect
import json
import re
from typing import Any

from pydantic import BaseModel

from minidnn.layers import LAYERS, Layer
from minidnn.schema import LayerParameter, NetParameter, SolverParameter, message_of
from minidnn.schema.caffe import TYPES
from minidnn.schema.common import BlobShape, FillerParameter, NetStateRule, ParamSpec
from minidnn.schema.message import LARGEST, OURS
from minidnn.schema.refused import TYPES_NOT_DONE
from minidnn.schema.table import FieldType, fields

DRAFT = "https://json-schema.org/draft/2020-12/schema"
_JSON = {"int": "integer", "float": "number", "bool": "boolean"}
_LIMITS = {
    "ge": ("minimum", "at least"), "gt": ("exclusiveMinimum", "more than"), "le": ("maximum", "at most"),
    "lt": ("exclusiveMaximum", "less than"),
}  # fmt: skip
_COMMON = (ParamSpec, FillerParameter, BlobShape, NetStateRule)
STAR = " \\*"
NOT_OBEYED = "read, but not obeyed"


def json_schema(model: type[BaseModel]) -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of files with this message: a net or a solver."""
    models = [model]
    for each in models:  # it grows
        inner = (field.model for field in fields(each).values() if field.model and not field.old)
        models += [result for result in dict.fromkeys(inner) if result not in models]
    definitions = {each.__name__: _object(each) for each in models}
    # A layer of one's own has another type.
    definitions["LayerParameter"]["properties"]["type"] = {"anyOf": [{"enum": sorted(LAYERS)}, {"type": "string"}]}
    return {"$schema": DRAFT, **definitions.pop(model.__name__), "$defs": definitions}


def _object(model: type[BaseModel]) -> dict[str, Any]:
    given = {name: field for name, field in fields(model).items() if not field.old}
    made: dict[str, Any] = {
        "type": "object",
        "properties": {name: _property(field) for name, field in given.items()},
        "additionalProperties": False,
    }
    return made | {"required": [name for name, field in given.items() if field.required]}


def _property(field: FieldType) -> dict[str, Any]:
    item: dict[str, Any] = {"type": _JSON.get(field.kind, field.kind)}
    if field.model is not None:
        item = {"$ref": f"#/$defs/{field.model.__name__}"}
    elif field.words or field.only:
        item = {"enum": [*field.words, *field.only]}
    elif field.as_text:
        item = {"type": [item["type"], "string"]}
    item |= {_LIMITS[name][0]: limit for name, limit in field.limits}
    made = {"anyOf": [item, {"type": "array", "items": item}]} if field.repeated else item
    if not isinstance(field.default, BaseModel | tuple | None):
        made = made | {"default": field.default}
    return made if field.obeyed else made | {"description": NOT_OBEYED}


# -- the page of layers --------------------------------------------------------------------------------------

_HEAD = """# Layers

This page lists every layer type, with the fields of its message, their types and defaults. `make reference` writes it
from the schema; a test keeps it up to date. A field without a default is required. A repeated field takes one value or
a list. `*` after a layer type or a field marks those that Caffe lacks.
"""


def layers_page() -> str:
    """The Markdown text of docs/layers.md."""
    parts = [_HEAD, "## Fields of every layer\n", _fields(LayerParameter, lambda name: not name.endswith("_param"))]
    for name in sorted(LAYERS, key=str.lower):
        parts += [f"## {name}{'' if name in TYPES else STAR}\n", _layer(LAYERS[name])]
    parts.append("## Messages within messages\n")
    for model in _COMMON:
        parts += [f"### {model.__name__}\n", _fields(model)]
    parts.append("## Layers that are refused\n")
    parts.append("\n".join(["| type | why |", "|---|---|", *(f"| {k} | {why} |" for k, why in TYPES_NOT_DONE.items())]))
    return "\n".join(parts) + "\n"


def _layer(kind: type[Layer]) -> str:
    text = inspect.cleandoc(kind.__dict__.get("__doc__") or "")
    parts = [f"{_markdown(text)}\n"] if text else []
    place = "; may work in place" if kind.in_place else "; a file may omit it" if kind.unnamed else ""
    parts.append(f"Bottoms: {_range(kind.bottoms)}. Tops: {_range(kind.tops)}{place}.\n")
    for message in filter(None, (kind.field_name, *kind.also)):
        parts += [f"`{message}`:\n", _fields(message_of(kind, message))]
    return "\n".join(parts)


def _markdown(text: str) -> str:
    """A docstring's paragraphs and items of lists, each on a line; indented paragraphs, which are code, as they are."""
    result = []
    for block in re.split(r"\n\s*\n", text):
        if all(line.startswith("    ") for line in block.splitlines()):
            result.append(block)
        else:
            result.append("\n".join(" ".join(item.split()) for item in re.split(r"\n(?=- )", block)))
    return "\n\n".join(result)


def _range(limits: tuple[int, int | None]) -> str:
    least, most = limits
    if most is None:
        return f"{least} or more"
    return "none" if most == 0 else str(least) if least == most else f"{least} to {most}"


def _fields(model: type[BaseModel], default: Any = lambda name: True) -> str:
    """A table of the message's fields."""
    lines = ["| field | type | default |", "|---|---|---|"]
    for field in fields(model).values():
        if field.old or not default(field.name):
            continue
        star = STAR if (field.number or 0) >= OURS else ""
        text = "" if field.obeyed else f"; {NOT_OBEYED}"
        lines.append(f"| `{field.name}`{star} | {_type(field)}{text} | {_default(field)} |")
    return "\n".join(lines) + "\n"


def _type(field: FieldType) -> str:
    several = "repeated " if field.repeated else ""
    if field.model is not None:
        return several + field.model.__name__
    if values := [*field.words, *(str(value).lower() for value in field.only)]:
        return several + " or ".join(f"`{value}`" for value in values)
    limits = [f"{_LIMITS[name][1]} {limit:g}" for name, limit in field.limits if abs(limit) < LARGEST]
    return ", ".join([several + field.kind, *limits])


def _default(field: FieldType) -> str:
    default = field.default
    if field.required:
        return "required"
    if isinstance(default, BaseModel):
        given = default.model_dump(exclude_unset=True)
        return ", ".join(f"{name}: {value:g}" for name, value in given.items()) or "its own"
    if default is None or default == () or default == "":
        return ""
    if isinstance(default, bool):
        return f"`{str(default).lower()}`"
    return f"`{default:g}`" if isinstance(default, float) else f"`{default}`"


# -- the page of solvers -------------------------------------------------------------------------------------

_SOLVER_HEAD = """# Solver files

This page lists every field of a solver file, with its type and default. `make reference` writes it from the schema; a
test keeps it up to date. `*` after a field marks those that Caffe lacks. [Training](training.md) explains the fields.
"""


def solver_page() -> str:
    """The Markdown text of docs/solver.md."""
    inner = dict.fromkeys(f.model for f in fields(SolverParameter).values() if f.model and not f.old)
    parts = [_SOLVER_HEAD, _fields(SolverParameter)]
    for model in inner:
        if model not in (NetParameter, *_COMMON):
            parts += [f"## {model.__name__}\n", _fields(model)]
    return "\n".join(parts)


def files() -> dict[str, str]:
    """The files of docs/ that are made of the schema, by name."""

    def text(model: type[BaseModel]) -> str:
        return json.dumps(json_schema(model), indent=1) + "\n"

    return {
        "layers.md": layers_page(),
        "solver.md": solver_page(),
        "net.schema.json": text(NetParameter),
        "solver.schema.json": text(SolverParameter),
    }
