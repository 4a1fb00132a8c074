"""Signals during training: which end the run after the current step, and which only ask for a snapshot.

Ctrl-C (SIGINT) and SIGTERM end the run, as a scheduler's do before it kills. SIGHUP asks for a snapshot, as in Caffe
(`SolverAction`), unless the terminal that the run began on is gone: then it ends the run.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator

NAMES = ("SIGINT", "SIGTERM", "SIGHUP")  # the last is not on every system
SIGNALS = tuple(signal.Signals[name] for name in NAMES if name in signal.Signals.__members__)


class Interrupt:
    """What signals have asked of a run.

    number: the signal that asked the run to end; None as long as none did
    save:   SIGHUP has asked for a snapshot; whoever saves one sets it to False
    """

    def __init__(self) -> None:
        self.number: int | None = None
        self.save = False

    @property
    def asked(self) -> bool:
        """Whether the run must end after the current step."""
        return self.number is not None

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """In this context signals only set these fields. Once one has asked the run to end, the handlers from before
        take all further ones, so that a second Ctrl-C ends the run at once.

        A signal that the process ignores stays ignored (nohup). Only the main thread can handle signals: in any other
        thread this does nothing."""
        self.number, self.save = None, False
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        had_terminal = _has_terminal()
        before = {number: signal.getsignal(number) for number in SIGNALS}
        # None: a handler that is not Python's, in a program that embeds it
        watched = [number for number, handler in before.items() if handler not in (signal.SIG_IGN, None)]

        def restore() -> None:
            for number in watched:
                signal.signal(number, before[number])

        def handle(number: int, _: object) -> None:
            if signal.Signals(number).name == "SIGHUP" and (_has_terminal() or not had_terminal):
                self.save = True
            else:
                self.number = number
                restore()

        for number in watched:
            signal.signal(number, handle)
        try:
            yield
        finally:
            restore()


def _has_terminal() -> bool:
    """Whether the process has a controlling terminal that is still there."""
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY | os.O_NONBLOCK))
    except OSError:
        return False
    return True
