"""Threads of the host, each of which makes its calls in order: a stream's, while the calling thread goes on.

A call may wait for another line's. Where one raises, no line makes any call from then on, all that waits goes on, and
the error is raised in the calling thread, at its next wait or at the end.
"""

from __future__ import annotations

import queue
import threading
import weakref
from collections.abc import Callable, Iterable
from typing import Any

Item = list[Any] | None  # a function and its arguments; a list, so that it can be emptied; None ends the line


class Ended(Exception):
    """A line does nothing more in this step, since another one has failed."""


class Signal:
    """Says that an instruction has been issued, or, if the host runs it, that it has ended."""

    def __init__(self, lines: Lines, event: threading.Event) -> None:
        self._lines, self._event = lines, event
        self.clear, self.set = self._event.clear, self._event.set

    def wait(self) -> None:
        """Wait for the instruction. Raises Ended in a line, and what has failed in the calling thread."""
        self._event.wait()
        self._lines.check()


class Lines:
    """The threads of these streams. They end with the object."""

    def __init__(self, streams: Iterable[str]) -> None:
        self.failure: BaseException | None = None
        self._queues: dict[str, queue.SimpleQueue[Item]] = {s: queue.SimpleQueue() for s in streams}
        self._signals: list[Signal] = []
        own = weakref.ref(self)
        self._threads = [
            threading.Thread(target=_work, args=(q, own), name=f"minidnn-{s}", daemon=True)
            for s, q in self._queues.items()
        ]
        for thread in self._threads:
            thread.start()
        weakref.finalize(self, _end, list(self._queues.values()))

    def event(self) -> threading.Event:
        return threading.Event()

    def signal(self) -> Signal:
        self._signals.append(Signal(self, self.event()))
        return self._signals[-1]

    def put(self, stream: str, call: Callable[..., object], *args: Any) -> None:
        """Let a stream's line make this call. It keeps the arguments no longer than the call takes."""
        self._queues[stream].put([call, args])

    def check(self) -> None:
        """Raise what has failed; in a line, Ended."""
        if self.failure is not None:
            if threading.current_thread() in self._threads:
                raise Ended
            raise self.failure

    def fail(self, error: BaseException) -> None:
        if self.failure is None and not isinstance(error, Ended):
            self.failure = error
        for signal in self._signals:
            signal.set()

    def settle(self) -> None:
        """Return when all calls have been made, or left out."""
        for q in self._queues.values():
            reached = self.event()
            q.put([reached.set, None])
            reached.wait()

    def begin(self) -> None:
        """Forget the last step, of which no call is left."""
        self.settle()
        self.failure = None
        for signal in self._signals:
            signal.clear()

    def end(self) -> None:
        """Return when all calls have been made. Raises what has failed."""
        self.settle()
        self.check()


def _work(q: queue.SimpleQueue[Item], lines: weakref.ref[Lines]) -> None:
    while (item := q.get()) is not None:
        call, args = item
        item.clear()
        if args is None:  # also after a failure
            call()
        elif (own := lines()) is not None and own.failure is None:
            try:
                call(*args)
            except BaseException as error:
                own.fail(error)
        own = call = args = None


def _end(queues: Iterable[queue.SimpleQueue[Item]]) -> None:
    for q in queues:
        q.put(None)
