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

from minidnn.ranks.engine import Channel

NAMES = ("SIGINT", "SIGTERM", "SIGHUP")  # the last is not on every system
SIGNALS = tuple(signal.Signals[name] for name in NAMES if name in signal.Signals.__members__)


class Interrupt:
    """The requests of signals to a run. Several ranks obey together: a signal to one of them counts once all agree.

    number: the signal that asked the run to end; None as long as none did
    save:   SIGHUP has asked for a snapshot; False again once one is saved
    heard:  whether this rank has heard of the end
    """

    def __init__(self, channel: Channel | None = None) -> None:
        """channel: between the ranks; None: there is one rank"""
        self.number: int | None = None
        self.save = self.heard = False
        self._channel = channel
        self._waiting: tuple[int | None, bool] = None, False  # until the ranks agree

    @property
    def requested(self) -> bool:
        """Whether the run must end after the current step."""
        return self.number is not None

    def agreed(self) -> bool:
        """Whether the run must end. All ranks ask this between the same steps: then each knows what any has heard."""
        if self._channel is not None:
            number, save = self._waiting
            result = self._channel.most(2 * (number or 0) + save)
            self.number = result // 2 or self.number
            self.save |= result % 2 > 0
            self._waiting = None, False
        return self.requested

    def _hear(self, number: int | None) -> None:
        """A signal asks for the end, or, without a number, for a snapshot."""
        self.heard |= number is not None
        if self._channel is not None:
            before, save = self._waiting
            self._waiting = number or before, save or number is None
        elif number is None:
            self.save = True
        else:
            self.number = number

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """In this context signals only set these fields. Once one has asked the run to end, the handlers from before
        take all further ones, so that a second Ctrl-C ends the run at once.

        A signal that the process ignores stays ignored (nohup). Only the main thread can handle signals: in any other
        thread this does nothing."""
        self.number, self.save, self.heard, self._waiting = None, False, False, (None, False)
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
                self._hear(None)
            else:
                self._hear(number)
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
