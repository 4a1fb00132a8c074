"""From a message back to plain values, as a file has them: the given fields, and a list of one as its element."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from minidnn.schema.message import Message


def plain(message: BaseModel) -> dict[str, Any]:
    """The fields that were given, as plain values, in the order of the schema; a user's own messages come last."""
    order = {name: i for i, name in enumerate(type(message).model_fields)}
    given = sorted(message.model_fields_set, key=lambda name: (order.get(name, len(order)), name))
    result = {}
    for name in given:
        value = getattr(message, name)
        if value is None or (value == () and isinstance(message, Message)):
            continue
        result[name] = _value(value, isinstance(message, Message) and name != "layer")
    return result


def _value(value: Any, scalars: bool) -> Any:
    if isinstance(value, BaseModel):
        return plain(value)
    if isinstance(value, list | tuple):
        items = [_value(item, scalars) for item in value]
        return items[0] if scalars and len(items) == 1 else items
    return value
