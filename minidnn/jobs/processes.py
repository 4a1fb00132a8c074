"""Work in processes side by side, or in this one.

Processes are forks: they have what this one holds. Programs and costs hold functions, which cannot be sent.
"""

from __future__ import annotations

import io
import multiprocessing
import signal
import sys
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any

from minidnn.spoken import option

_HELD: Any = None  # in a fork: what its parent held


class Processes:
    """So many processes, each of which calls functions with `held` as their first argument; one: this process does."""

    def __init__(self, count: int, held: Any) -> None:
        self.count, self.held, self.pool = count, held, None if count == 1 else _pool(count, held)

    def submit(self, function: Callable[..., Any], *args: Any) -> Future[Any]:
        """The call `function(held, *args)`. If the processes have ended, BrokenProcessPool is its error."""
        future: Future[Any] = Future()
        if self.pool is None:
            future.set_result(function(self.held, *args))
            return future
        try:
            return self.pool.submit(_call, function, *args)
        except BrokenProcessPool as error:
            future.set_exception(error)
            return future

    def close(self) -> None:
        """Wait for what was begun; the rest is not done."""
        if self.pool is not None:
            self.pool.shutdown(wait=True, cancel_futures=True)


def result(future: Future[Any], ended: Callable[[str], Any]) -> Any:
    """The call's result; of a process that has ended, what `ended` gives for the reason."""
    try:
        return future.result()
    except BrokenProcessPool:
        return ended(f"the process that planned it has ended; if memory ran out, use {option('jobs', 1)}")


class _NoTerminal(io.TextIOWrapper):
    """Standard error of a fork: it passes warnings and hides progress."""

    def isatty(self) -> bool:
        return False


def _pool(count: int, held: Any) -> ProcessPoolExecutor:
    """Forks, which take `held` over when the first call comes."""
    return ProcessPoolExecutor(count, multiprocessing.get_context("fork"), _begin, (held,))


def _begin(held: Any) -> None:
    """Ignore Ctrl-C between calls: it is the parent's, who asks for no more."""
    global _HELD
    _HELD = held
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if sys.stderr is not None:
        sys.stderr = _NoTerminal(sys.stderr.buffer, line_buffering=True)


def _call(function: Callable[..., Any], *args: Any) -> Any:
    """A call that Ctrl-C ends."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return function(_HELD, *args)
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
