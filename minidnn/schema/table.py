"""The fields of a message as a table: what Caffe's text and binary formats, the JSON Schema and the reference need.

The pydantic models are the one home of names, types, defaults and numbers; this reads them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel, BeforeValidator
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from minidnn.schema.message import number_of

Kind = Literal["message", "enum", "string", "bool", "int", "float"]


@dataclass(frozen=True)
class FieldType:
    """One field. `words` are the names of an enum in the order of their numbers, which begin at `first`, or the texts
    that a string may have; empty: any."""

    name: str
    number: int | None  # None: Caffe's binary files never hold it
    kind: Kind
    repeated: bool
    required: bool
    default: Any  # None: without a default
    model: type[BaseModel] | None  # of a message
    words: tuple[str, ...] = ()
    first: int = 0
    old: bool = False  # a form of old files, which schema/upgrade.py turns into the new one
    obeyed: bool = True  # False: read and ignored
    limits: tuple[tuple[str, float], ...] = ()  # ("ge", 0): at least 0; also gt, le and lt
    only: tuple[Any, ...] = ()  # the numbers or the bools that it may be; empty: any
    as_text: bool = False  # whether a number may be given as a text: 12GiB
    itemsize: int = 0  # of a long array: bytes of an element in binary files; 0: it is none


@cache
def fields(model: type[BaseModel]) -> Mapping[str, FieldType]:
    """The fields of a message by name, in the order of the schema."""
    return MappingProxyType({name: _field(name, info) for name, info in model.model_fields.items()})


@cache
def numbered(model: type[BaseModel]) -> Mapping[int, FieldType]:
    """The fields of a message by their numbers in binary files."""
    return MappingProxyType({f.number: f for f in fields(model).values() if f.number is not None})


def present(model: type[BaseModel], name: str) -> bool:
    """Whether the message has this field, and not as the form of old files."""
    return name in fields(model) and not fields(model)[name].old


def leaves(annotation: Any) -> Iterable[Any]:
    """The types and the literals that an annotation is made of."""
    arguments = get_args(annotation)
    if not arguments:
        yield annotation
    for argument in arguments:
        yield from leaves(argument)


def _field(name: str, info: FieldInfo) -> FieldType:
    result = [leaf for leaf in leaves(info.annotation) if leaf is not type(None) and leaf is not ...]
    said = info.json_schema_extra if isinstance(info.json_schema_extra, dict) else {}
    words = tuple(leaf for leaf in result if isinstance(leaf, str))
    model = next((leaf for leaf in result if isinstance(leaf, type) and issubclass(leaf, BaseModel)), None)
    return FieldType(
        name,
        number_of(info),
        _kind(result, bool(words) and said.get("wire") != "string", model),
        _repeated(info.annotation),
        info.is_required(),
        None if info.default is PydanticUndefined else info.default,
        model,
        words,
        int(str(said.get("first", 0))),
        bool(said.get("old", False)),
        bool(said.get("obeyed", True)),
        tuple(_limits([*info.metadata, *(m for leaf in result if isinstance(leaf, FieldInfo) for m in leaf.metadata)])),
        tuple(leaf for leaf in result if isinstance(leaf, int | float)),
        any(isinstance(m, BeforeValidator) for m in (*info.metadata, *result)) and not _repeated(info.annotation),
        {"float": 4, "double": 8, "byte": 1}.get(str(said.get("wire")), 0),
    )


def _limits(metadata: Iterable[Any]) -> Iterable[tuple[str, float]]:
    for each in metadata:
        for name in ("ge", "gt", "le", "lt"):
            if (limit := getattr(each, name, None)) is not None:
                yield name, limit


def _kind(leaves: list[Any], enum: bool, model: type[BaseModel] | None) -> Kind:
    if model is not None:
        return "message"
    if enum:
        return "enum"
    types = {leaf if isinstance(leaf, type) else type(leaf) for leaf in leaves if not isinstance(leaf, FieldInfo)}
    kinds: tuple[tuple[type, Kind], ...] = ((str, "string"), (bool, "bool"), (float, "float"), (int, "int"))
    return next((kind for type_, kind in kinds if type_ in types), "string")


def _repeated(annotation: Any) -> bool:
    return get_origin(annotation) is tuple or any(_repeated(part) for part in get_args(annotation))
