"""The load of the machine while something is measured: the processors that other programs keep at work."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter, process_time

STAT = Path("/proc/stat")
BUSY = 0.15  # processors that others keep at work: from here on measured times suffer


@dataclass(frozen=True)
class Load:
    """A moment: when it was, and the processor seconds that were taken until then. All in seconds.

    everyone: by all programs, on the processors that this one may use; None: not known
    own:      by all threads of this process
    """

    at: float
    everyone: float | None
    own: float

    @classmethod
    def now(cls) -> Load:
        return cls(perf_counter(), processor_seconds(), process_time())

    def others_until(self, later: Load) -> float | None:
        """The processors that other programs kept at work from now until `later`, on average; None: not known.

        The system counts in ticks, so a tick of each processor is taken off."""
        passed = later.at - self.at
        if self.everyone is None or later.everyone is None or passed <= 0:
            return None
        rounding = len(processors()) / os.sysconf("SC_CLK_TCK")
        return max(later.everyone - self.everyone - (later.own - self.own) - rounding, 0.0) / passed


def processors() -> set[int]:
    """The numbers of the processors that this process may use."""
    return os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set(range(os.cpu_count() or 1))


def processor_seconds() -> float | None:
    """Processor seconds that all programs have taken since the machine's start, on the processors that this process may
    use; None if the system does not say."""
    mine = {f"cpu{number}" for number in processors()}
    try:
        lines = [line.split() for line in STAT.read_text(encoding="utf-8").splitlines()]
        result = [[int(field) for field in line[1:9]] for line in lines if line and line[0] in mine]
        ticks = sum(user + nice + system + irq + soft + steal for user, nice, system, _, _, irq, soft, steal in result)
    except (OSError, ValueError):
        return None
    return ticks / os.sysconf("SC_CLK_TCK") if result else None
