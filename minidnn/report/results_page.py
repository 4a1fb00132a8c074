"""The page of results, docs/results.md: each document of `--json` with its fields, made of the models themselves."""

from __future__ import annotations

from collections.abc import Mapping
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from minidnn.results import VERSION, Record
from minidnn.results.record import Document
from minidnn.results.words import meaning

HEAD = f"""# Results

`make reference` generates this page from `minidnn/results` and `minidnn_papers/records.py`: do not edit it.

Every command that prints results has an option `--json`. With it, the command prints one document with the fields
`version` and `kind`. The version is {VERSION}. It increases when a field is removed or changes its meaning; new fields
may appear without a new version. A name has the same meaning in all documents. Names of byte counts end in `_bytes`,
and their values are integers; names of times end in `_seconds`. A value that is unknown or does not apply is null.

Times are predicted by a model ([costs](costs.md)) unless `origin` is `run`.

In Python the same fields are attributes: `minidnn.plan("vgg16").rows[0].peak_bytes`.
"""


def results_page(documents: Mapping[str, type[Document]]) -> str:
    """The text of docs/results.md. documents: by their kinds"""
    parts, seen = [HEAD], set[type[Record]]()
    for kind, model in documents.items():
        parts.append(f"## {kind}\n\n{_words(model)}\n\n{_table(model)}")
        for inner in _inner(model):
            if inner not in seen:
                seen.add(inner)
                parts.append(f"### {inner.__name__}\n\n{_words(inner)}\n\n{_table(inner)}")
    return "\n".join(parts)


def _words(model: type[Record]) -> str:
    return " ".join((model.__doc__ or "").split())


def _table(model: type[Record]) -> str:
    lines = ["| field | type | meaning |", "|---|---|---|"]
    for name, field in model.model_fields.items():
        if name not in ("version", "kind"):
            lines.append(f"| `{name}` | {_type(field.annotation)} | {meaning(model, name)} |")
    return "\n".join(lines) + "\n"


NAMED = {int: "integer", float: "number", str: "text", bool: "true or false", Any: "any", NoneType: "null"}


def _type(kind: Any) -> str:
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return " or ".join(_type(one) for one in inner)
    if origin is Literal:
        return " or ".join(f"`{value}`" for value in inner)
    if origin is list:
        return f"list of {_type(inner[0])}"
    if origin is dict:
        return f"object of {_type(inner[1])}"
    if isinstance(kind, type) and issubclass(kind, Record):
        return f"[{kind.__name__}](#{kind.__name__.lower()})"
    return NAMED[kind]


def _inner(model: type[Record]) -> list[type[Record]]:
    """The records in the model's fields, and in theirs, each once."""
    result: list[type[Record]] = []

    def visit(kind: Any) -> None:
        if isinstance(kind, type) and not get_args(kind) and issubclass(kind, Record) and kind not in result:
            result.append(kind)
            for field in kind.model_fields.values():
                visit(field.annotation)
        for one in get_args(kind):
            visit(one)

    for field in model.model_fields.values():
        visit(field.annotation)
    return result
