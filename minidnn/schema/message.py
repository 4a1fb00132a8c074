"""The base of a file's messages: fields with a type, a default and a number.

Repeated fields take a scalar or a list and hold tuples; enums are strings with their names. Types are strict: "20" is
no number and 1 is no bool. A field's number is that of caffe.proto, by which Caffe's binary files know it. Fields that
Caffe lacks have numbers from OURS on, or those of the fork that made them known.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic.fields import FieldInfo

Wire = Literal["", "string", "float", "double", "byte"]
OURS = 20000  # numbers from here on are of no version of Caffe that is known to us


def field(
    number: int, default: Any = ..., *, wire: Wire = "", first: int = 0, old: bool = False,
    obeyed: bool = True,
) -> Any:  # fmt: skip
    """A message's field; without a default it is required.

    number: its number in Caffe's binary files
    wire:   "string" if Caffe's field is a string where ours is a choice of words; "float", "double" or "byte" for long
            arrays of these, which are read from binary files when they are asked for; else ""
    first:  the number of an enum's first name; the others count on from it
    old:    whether only old files have it: schema/upgrade.py turns it into the new form, and no message holds it
    obeyed: whether it changes what minidnn does; else it is read and ignored, and commands say so
    """
    said: dict[str, Any] = {"number": number, "wire": wire, "first": first, "old": old, "obeyed": obeyed}
    return Field(default, json_schema_extra=said)


def number_of(info: FieldInfo) -> int | None:
    """The field's number in Caffe's binary files; None if they never hold it."""
    extra = info.json_schema_extra
    return int(str(extra["number"])) if isinstance(extra, dict) and "number" in extra else None


class Message(BaseModel):
    """A frozen value, equal to others with the same fields. `model_fields_set` has the fields that a file gave."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False, defer_build=True)

    def has(self, field: str) -> bool:
        """Whether the file gave this field: proto2's has_field()."""
        return field in self.model_fields_set


def _tuple(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return tuple(value)
    return () if value is None else (value,)


T = TypeVar("T")
Repeated = Annotated[tuple[T, ...], BeforeValidator(_tuple)]
LARGEST = 2**31 - 1  # Caffe and the libraries of kernels count in 32 bits
Uint = Annotated[int, Field(ge=0, le=LARGEST)]
Positive = Annotated[int, Field(ge=1, le=LARGEST)]
Int = Annotated[int, Field(ge=-LARGEST - 1, le=LARGEST)]
Engine = Literal["DEFAULT", "CAFFE", "CUDNN"]  # read but ignored: minidnn chooses, and the numbers are the same
