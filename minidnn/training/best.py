"""The best test of a run, by one output of a test net. It is part of each snapshot, so that a run that goes on from one
keeps the best of both parts."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

HIGHEST, LOWEST = "highest", "lowest"
OBJECTIVE = "objective"  # a test's mean objective, with test_compute_loss
_KINDS = {"output": str, "way": str, "value": float, "iteration": int, "tested": int, "misses": int}


@dataclass(frozen=True)
class Best:
    """The best test so far, and the number of tests since."""

    output: str
    way: str  # HIGHEST or LOWEST: which value is the best
    value: float
    iteration: int
    tested: int  # the iteration of the last test that was counted
    misses: int  # the tests since the best one, of which none was better

    @classmethod
    def of(cls, data: object) -> Best:
        """The value that plain data describe, such as those of a snapshot's metadata. Raises ValueError if they
        describe none."""
        given = data if isinstance(data, Mapping) else {}
        wrong = [name for name, kind in _KINDS.items() if type(given.get(name)) is not kind]
        if wrong or given["way"] not in (HIGHEST, LOWEST) or not math.isfinite(given["value"]):
            raise ValueError(f"its best test is {data!r}; expected a usable {', '.join(wrong) or 'way and value'}")
        return cls(**{name: given[name] for name in _KINDS})

    def data(self) -> dict[str, Any]:
        """The value as plain data; `of` reads it."""
        return asdict(self)
