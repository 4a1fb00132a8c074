"""The runtime of a machine: bytes on a device and on the host, and the streams that copy and compute.

A device that has memory and streams of its own (a GPU) brings its runtime. All others use `Threads`
(memory/execution/threads.py), on the host's memory.
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
class BoundCall:
    """An instruction bound to addresses.

    `call` does its work in the order of its stream: at once, or by handing it to the stream. A wait has no call; `on`
    is the index of the instruction that it waits for.
    """

    index: int
    stream: Stream
    call: Call | None = None
    on: int | None = None


class Runtime(Protocol):
    """Memory and streams, as a machine uses them.

    arena:  the device's bytes, sliced like an array of bytes
    host:   the host's bytes, an array
    broken: the device has failed and does not recover, so its memory cannot be read any more
    """

    arena: Any
    host: np.ndarray
    broken: bool

    def copy(self, to: Any, source: Any, stream: Stream) -> Call:
        """A call that copies bytes: from arena to host on stream "out", from host to arena on stream "in"."""
        ...

    def landing(self, to: Any, source: Any) -> Call:
        """A call that copies bytes from host to arena, for `land`."""
        ...

    def land(self, landings: Sequence[Call]) -> None:
        """Make these calls, beside the run in flight. The next run begins once their copies have ended.

        The run in flight must not use the bytes that they write."""
        ...

    def fill(self, bytes: Any, value: int) -> Call:
        """A call that sets these bytes of the arena to `value`, on the compute stream."""
        ...

    def bind(self, bound: Sequence[BoundCall], outputs_after: int | None = None) -> Any:
        """Prepare instructions, in the order of the schedule, to be run many times.

        outputs_after: `wait_for_outputs` may return once this instruction has run; None: once all have
        """
        ...

    def run(self, prepared: Any, after: Callable[[int], object] | None = None) -> None:
        """Run prepared instructions once and return when all streams have ended. Raises the error of any stream.

        after: called with a compute instruction's index when it has ended and before its successor begins
        """
        ...

    def launch(self, prepared: Any, meanwhile: Callable[[], object] | None = None) -> None:
        """Run prepared instructions after the run launched before, and return when that former run has ended.

        The new run may still be in progress; at most one is in flight. Its error is raised by the next call that waits
        for it.

        meanwhile: called once the former run has ended
        """
        ...

    def wait_for_outputs(self) -> None:
        """Return when the run in flight has passed `outputs_after` (see `bind`)."""
        ...

    def settle(self) -> None:
        """Return when no run is in flight."""
        ...

    def attempt(self, call: Call) -> None:
        """Run a call of the compute stream once, in each way in which `launch` would run it. Raises its error."""
        self.run(self.bind([BoundCall(0, "compute", call)]))

    def run_timed(self, prepared: Any) -> tuple[list[Timed], float]:
        """Run prepared instructions once: the time of each, and the seconds of the whole run."""
        ...

    def seconds(self, prepared: Any, times: int = 1) -> float:
        """Seconds of compute that one run takes, of `times` runs without a gap between them."""
        ...

    def read(self, bytes: Any) -> np.ndarray:
        """These bytes of the arena, on the host, once the run in flight has ended.

        The caller must not write to them.
        """
        ...

    def write(self, bytes: Any, source: np.ndarray) -> None:
        """Overwrite these bytes of the arena between runs. `source`: as many bytes, uint8."""
        ...

    def retain(self, host: np.ndarray) -> np.ndarray:
        """These bytes of the host, readable after `close`. Default: where they are, since the host's memory lives as
        long as an array views it."""
        return host

    def close(self) -> None: ...
