"""Solver fields as texts, FIELD=VALUE: `--set base_lr=0.01`, `--set minidnn.budget=2MiB`, `--set stepvalue=[10,20]`.

A value is YAML, as in a solver file; that of a text field is taken as it stands. A repeated field may be given several
times. Whether a value is right, the schema says, as of a file.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from pydantic import BaseModel

from minidnn.errors import InvalidInput, near
from minidnn.jobs.keywords import Asked
from minidnn.schema import InvalidFile, SolverParameter
from minidnn.schema.table import FieldType, fields
from minidnn.schema.yaml import parse

FLAG = "--set"


def assigned(texts: Sequence[str]) -> dict[str, Asked]:
    """The fields of these texts by dotted name. Raises InvalidInput for a text without "=", a field that there is not,
    a value that is no YAML, and a field that is given twice but takes one value."""
    result: dict[str, Asked] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise InvalidInput(f"{FLAG} {text}: expected FIELD=VALUE, such as base_lr=0.01")
        name, shown = name.strip(), f"{FLAG} {text}"
        field = _field(shown, name)
        given = _value(shown, field, value)
        given = (given if isinstance(given, list) else [given]) if field.repeated else given
        if (before := result.get(name)) is not None:
            if not field.repeated:
                raise InvalidInput(f"{before.shown} and {shown}: {name} takes one value")
            given, shown = [*before.value, *given], f"{before.shown} {shown}"
        result[name] = Asked(given, shown)
    for name, part in result.items():
        if (whole := result.get(name.partition(".")[0])) not in (None, part):
            raise InvalidInput(f"{whole.shown} and {part.shown}: give the whole message, or its fields")
    return result


def field_names(model: type[BaseModel] = SolverParameter, before: str = "") -> Iterable[str]:
    """All fields that a text may name, dotted: base_lr, minidnn.budget."""
    for name, field in fields(model).items():
        if field.old:
            continue
        if field.model is None or field.repeated:
            yield before + name
        elif not before:
            yield from field_names(field.model, f"{name}.") if name != "net_param" else ()


def values_of(name: str) -> Sequence[str]:
    """The values that a field may have, as far as they are words."""
    try:
        field = _field(name, name)
    except InvalidInput:
        return ()
    return field.words or (("true", "false") if field.kind == "bool" else ())


def _field(shown: str, name: str) -> FieldType:
    """The field of a dotted name. Raises InvalidInput, with the nearest name, if there is none."""
    model: type[BaseModel] | None = SolverParameter
    field: FieldType | None = None
    for part in name.split("."):
        if field is not None and field.repeated:
            raise InvalidInput(f"{shown}: {field.name} is repeated: give it whole, as {field.name}=[{{...}}]")
        field = fields(model).get(part) if model is not None else None
        if field is None:
            last = name.rpartition(".")[2]
            other = next((one for one in field_names() if one.rpartition(".")[2] == last), None)
            hint = f" (did you mean {other!r}?)" if other else near(name, field_names())
            raise InvalidInput(f"{shown}: a solver has no field {name!r}{hint}")
        model = field.model
    assert field is not None
    return field


def _value(shown: str, field: FieldType, text: str) -> Any:
    """The plain value of a text."""
    text = text.strip()
    quoted = len(text) > 1 and text[0] == text[-1] and text[0] in "\"'"
    if field.kind == "string" and not field.as_text and not quoted and not (field.repeated and text.startswith("[")):
        return text
    try:
        document = parse(text, shown)
        document.check()
    except InvalidFile as error:
        reason = error.errors[0].rpartition(": ")[2]
        raise InvalidInput(f"{shown}: {field.name} takes a value as in YAML: {reason}") from error
    return document.data
