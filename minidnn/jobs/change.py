"""A refused command, and changes of it (jobs/remedies.py)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Change:
    """The differences from the command that was refused; None: no difference. Fields are named like options."""

    policy: str | None = None
    format: str | None = None
    no_fusion: bool | None = None
    batch: int | None = None
    budget: int | None = None
    host_budget: int | None = None
    host_ring: int | None = None
    state: str | None = None

    @property
    def differs(self) -> dict[str, object]:
        return {name: value for name, value in asdict(self).items() if value is not None}

    def __str__(self) -> str:
        """The options to add to the command. Added behind an option of the same name, they replace it."""
        result = []
        for name, value in self.differs.items():
            flag = "--" + name.replace("_", "-")
            result.append(flag if value is True else f"{flag} {value}")
        return " ".join(result)


@dataclass(frozen=True)
class Asked:
    """The command that was refused. Its budgets are bytes, None where it names none.

    batch:   samples of its batch; None if the net has none
    formats: narrower number formats that its device has
    fuses:   whether ops are fused
    states:  the values of --state that send more to the host than the command does
    """

    policy: str
    budget: int | None
    host_budget: int | None
    batch: int | None
    formats: Sequence[str]
    fuses: bool
    states: Sequence[str] = ()
