"""One message of a document against its model: its values, or its errors in plain words with line and column."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import cache
from typing import Any

from pydantic import BaseModel, ValidationError

from minidnn.errors import near
from minidnn.schema.caffe import LayerParameter
from minidnn.schema.document import Document, Path_, quote
from minidnn.schema.elsewhere import near_field
from minidnn.schema.refused import NOT_DONE
from minidnn.schema.table import leaves
from minidnn.spoken import option


def is_mapping(document: Document, data: Any, at: Path_, what: str) -> bool:
    if isinstance(data, Mapping):
        return True
    document.error(at, f"expected a mapping of {what}, got {quote(data)}")
    return False


def checked(document: Document, model: type[BaseModel], data: Any, at: Path_) -> Any:
    """The checked message; None if it has errors, which are added to the document."""
    try:
        return model.model_validate(data)
    except ValidationError as invalid:
        errors = invalid.errors(include_url=False)
        unknown = [e for e in errors if e["type"] == "extra_forbidden"] if document.dropped is not None else []
        for error in unknown or errors:
            _explain(document, model, error, at)
        for error in unknown:
            data = _without(data, error["loc"])
        return checked(document, model, data, at) if unknown else None


def _without(data: Any, loc: Sequence[int | str]) -> Any:
    """The values without the field at `loc`."""
    part, *rest = loc
    if isinstance(part, int):
        if not isinstance(data, list | tuple):  # a scalar counts as a list of one
            return _without(data, rest)
        return [_without(item, rest) if i == part else item for i, item in enumerate(data)]
    return {k: _without(v, rest) if k == part else v for k, v in data.items() if rest or k != part}


def _explain(document: Document, model: type[BaseModel], error: Any, at: Path_) -> None:
    kind, loc, got = error["type"], tuple(error["loc"]), error["input"]
    ctx = error.get("ctx", {})
    path = (*at, *loc)
    if kind == "extra_forbidden":
        owner = _descend(model, loc[:-1]) or model
        unknown_field(document, path, owner.__name__, str(loc[-1]), owner.model_fields)
        return
    if kind == "missing":
        document.error(path, "required, but not given", True)
        return
    if kind == "value_error":
        text = str(ctx["error"])
    elif kind == "literal_error":
        options = _options(model, loc)
        text = f"expected {_either(options)}, got {quote(got)}"
        if isinstance(got, str):
            text += near(got, [o for o in options if isinstance(o, str)])
    elif kind in _EXPECTED:
        text = f"expected {_EXPECTED[kind].format(**ctx)}, got {quote(got)}"
    else:
        text = f"{error['msg']}, got {quote(got)}"
    document.error(path, text)


_EXPECTED = {
    "int_type": "an integer",
    "int_from_float": "an integer",
    "float_type": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "string_type": "a text",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
    "greater_than": "more than {gt:g}",
    "greater_than_equal": "at least {ge}",
    "less_than": "less than {lt:g}",
    "less_than_equal": "at most {le}",
}


def unknown_field(document: Document, path: Path_, message: str, field: str, fields: Collection[str]) -> None:
    reason = NOT_DONE.get(message, {}).get(field)
    if document.dropped is not None:
        document.drop(path, reason or "")
        return
    document.error(
        path, reason or f"there is no field {field!r}{near_field(field, fields)}{_of_a_fork(document)}", True
    )


def _of_a_fork(document: Document) -> str:
    """What to do about a field that a fork of Caffe may have; once for a file."""
    if not document.of_caffe or document.forked:
        return ""
    document.forked = True
    return f"; {option('ignore_unknown', True)} leaves out the additions of Caffe's forks"


def _either(options: Sequence[Any]) -> str:
    texts = [repr(o) for o in options]
    return texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])} or {texts[-1]}"


@cache
def messages() -> frozenset[str]:
    """The fields of LayerParameter that hold the messages of layer types."""
    return frozenset(f for f in LayerParameter.model_fields if f.endswith("_param"))


@cache
def model_of(model: type[BaseModel], field: str) -> type[BaseModel] | None:
    """The class of the message that a field holds, be it optional or repeated; None if it holds no message."""
    info = model.model_fields.get(field)
    result = leaves(info.annotation) if info else ()
    return next((t for t in result if isinstance(t, type) and issubclass(t, BaseModel)), None)


def _descend(model: type[BaseModel], loc: Sequence[str | int]) -> type[BaseModel] | None:
    result: type[BaseModel] | None = model
    for part in loc:
        if isinstance(part, str) and result is not None:
            result = model_of(result, part)
    return result


def _options(model: type[BaseModel], loc: Sequence[str | int]) -> list[Any]:
    """The values that the enum field at `loc` takes."""
    names = [i for i, part in enumerate(loc) if isinstance(part, str)]
    owner = _descend(model, loc[: names[-1]])
    annotation = owner.model_fields[str(loc[names[-1]])].annotation if owner else None
    return [leaf for leaf in leaves(annotation) if isinstance(leaf, str | int)]
