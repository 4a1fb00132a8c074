"""How long planning goes on looking for a quicker plan, where that is asked for: `--effort SECONDS`.

The seconds are no part of a plan, and pass by all that plans without looking longer: so they are in force within
`looking`, and the policy that searches asks `asked`. Without them planning ends after work that is always the same.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass


@dataclass
class Effort:
    """
    seconds: for which the search for each program's plan goes on, once the usual plan is there
    clock:   seconds that pass
    over:    whether the user has ended it: no search goes on then
    """

    seconds: float
    clock: Callable[[], float] = time.monotonic
    over: bool = False


_asked: ContextVar[Effort | None] = ContextVar("_asked", default=None)


def asked() -> Effort | None:
    """The effort in force; None: planning takes its usual plans."""
    effort = _asked.get()
    return None if effort is None or effort.over else effort


@contextmanager
def looking(effort: Effort | float | None) -> Iterator[None]:
    """Within it, planning looks for so many seconds longer; None: not longer than usual."""
    token = _asked.set(Effort(effort) if isinstance(effort, int | float) else effort)
    try:
        yield
    finally:
        _asked.reset(token)
