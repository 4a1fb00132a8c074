"""What a machine runs on: bytes on a device and on the host, and its streams. A device that has memory and streams
of its own (a GPU) brings its runtime; for all others it is `Threads` (threads.py), on the host's memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from minidnn.memory.schedule import Stream

Call = Callable[[], Any]
Timed = tuple[int, Stream, float, float]  # an instruction's index, its stream, its start and end in seconds


@dataclass(frozen=True, eq=False)
class Bound:
    """An instruction bound to addresses. `call` does its work in the order of its stream: at once, or by handing it
    to the stream. A wait has none; it names the instruction that it is `on`."""

    index: int
    stream: Stream
    call: Call | None = None
    on: int | None = None


class Runtime(Protocol):
    """`arena` is sliced like an array of bytes; `host` is one. `broken`: after a failure from which the device does not
    recover, so that its memory cannot be read any more."""

    arena: Any
    host: np.ndarray
    broken: bool

    def copy(self, to: Any, source: Any, stream: Stream) -> Call:
        """A copy of bytes from the arena to the host on stream "out", from the host to the arena on stream "in"."""
        ...

    def fill(self, bytes: Any, value: int) -> Call:
        """On the compute stream: these bytes of the arena become `value`."""
        ...

    def bind(self, bound: Sequence[Bound], outputs_after: int | None = None) -> Any:
        """Prepare instructions in the order of the schedule, to be run many times.

        outputs_after: `wait_for_outputs` may return once this instruction has run; None: once all have.
        """
        ...

    def run(self, prepared: Any, after: Callable[[int], object] | None = None) -> None:
        """Run them once and return when all streams have ended. `after(i)` is called when compute instruction i has
        ended and before its successor begins. What failed on any stream is raised."""
        ...

    def launch(self, prepared: Any, meanwhile: Callable[[], object] | None = None) -> None:
        """Run them once after the run launched before, and return when that one has ended: this one may still be
        running. At most one run is in flight.

        meanwhile: called once the former run has ended. An error of the run in flight is raised by the next call that
        waits for it.
        """
        ...

    def wait_for_outputs(self) -> None:
        """Return when the run in flight is past the instruction that tells."""
        ...

    def settle(self) -> None:
        """Return when no run is in flight."""
        ...

    def run_timed(self, prepared: Any) -> tuple[list[Timed], float]:
        """Run them once; the time of each, and of all, since the beginning."""
        ...

    def seconds(self, prepared: Any, times: int = 1) -> float:
        """What one run keeps the compute stream busy for, of so many that follow one another without a gap."""
        ...

    def read(self, bytes: Any) -> np.ndarray:
        """These bytes of the arena, on the host, as the run in flight leaves them; not to be written to."""
        ...

    def write(self, bytes: Any, source: np.ndarray) -> None:
        """Overwrite these bytes of the arena between runs. `source`: as many uint8."""
        ...

    def close(self) -> None: ...
