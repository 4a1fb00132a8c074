"""A step of a policy with its times: what pictures and the formats of other programs are made of."""

from __future__ import annotations

from dataclasses import dataclass

from minidnn.memory.execution.trace import Trace
from minidnn.memory.schedule import Schedule


@dataclass(frozen=True, eq=False)
class Step:
    """One step. `device` ran it, or was simulated."""

    policy: str
    schedule: Schedule
    trace: Trace
    measured: bool
    device: str

    @property
    def how(self) -> str:
        """Where its times come from, in words."""
        return f"measured on {self.device}" if self.measured else f"simulated on {self.device}"
