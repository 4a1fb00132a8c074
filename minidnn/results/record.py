"""The base of all results. A record is checked and frozen; its fields are attributes, and it reads as a mapping."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from textwrap import shorten
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

LONGEST = 400  # characters of a repr
VERSION: Literal[1] = 1  # of the documents; it grows when a field goes, or changes its meaning


class Record(BaseModel, Mapping[str, Any]):  # type: ignore[misc]  # BaseModel iterates over pairs, a mapping over names
    """Named values. A name means the same in all records: `words.py` says where its meaning stands.

    A value that is None is not known, or does not apply."""

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=False, defer_build=True)

    def __getitem__(self, name: str) -> Any:
        if name not in type(self).model_fields:
            raise KeyError(name)
        return getattr(self, name)

    def __iter__(self) -> Iterator[str]:  # type: ignore[override]
        return iter(type(self).model_fields)

    def __len__(self) -> int:
        return len(type(self).model_fields)

    def __repr__(self) -> str:
        """The fields that are known, shortened; of lists and records how many values they have."""
        told = []
        for name, value in self.items():
            several = isinstance(value, (list, tuple, Mapping))
            told += [] if value is None else [f"{name}={f'<{len(value)}>' if several else repr(value)}"]
        return f"{type(self).__name__}({shorten(', '.join(told), LONGEST, placeholder=' …')})"

    def plain(self) -> dict[str, Any]:
        """The values as JSON has them: dicts, lists, texts and numbers."""
        return self.model_dump(mode="json")


class Document(Record):
    """A whole result, as `--json` prints it."""

    version: Literal[1] = VERSION
    kind: str


class NetDocument(Document):
    """A document about one net, on a device or on the profile of a GPU."""

    net: str
    batch: int | None = None
    tokens: int | None = None
    phase: str = "TRAIN"
    format: str
    device: str
    description: str | None = None
    host_budget_bytes: int | None = None
    ranks: int | None = None
    link: str | None = Field(default=None, description="the link between ranks")
    origin: Literal["profile", "estimated", "measured", "run"] = Field(
        description="where seconds come from: a GPU's `profile`, costs of this machine that were `estimated` or"
        " `measured`, or steps that were `run`"
    )
