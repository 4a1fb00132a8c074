"""Ctrl-C during training: the run ends after the current step; a second Ctrl-C ends it at once."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator


class Interrupt:
    """Whether Ctrl-C has asked the run to stop."""

    def __init__(self) -> None:
        self.asked = False

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """In this context the first Ctrl-C sets `asked`; the handler from before takes the second one.

        Only the main thread can handle signals: in any other thread this does nothing."""
        self.asked = False
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def ask(*_: object) -> None:
            signal.signal(signal.SIGINT, before)
            self.asked = True

        before = signal.signal(signal.SIGINT, ask)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)
