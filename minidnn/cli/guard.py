"""A rank's work in a process of its own, so that its end is told whatever ends it.

A launcher kills all ranks once one has ended, and a rank that the system kills can say nothing. So each rank forks: the
child works, and the parent waits, passes signals on, and says how the child has ended. Then the launcher ends all. Who
knows the cause speaks first: a rank that was killed, at once; the first rank before others, which may have the same
error; and last those that only know that another one has ended.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any, NoReturn

from minidnn.ranks.engine import RankLost
from minidnn.ranks.launched import Launch
from minidnn.training.interrupt import SIGNALS
from minidnn.visible import say

MOMENT = 2.0  # seconds
ROOM = 1 << 16  # bytes of what a child says
PR_SET_PDEATHSIG = 1  # prctl: the signal that a process gets when its parent ends
LOST = 1  # the exit code of a rank that was killed

Said = dict[str, Any]


class Guard:
    """What a child says to its parent: the last of each."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115  (it lives as long as the two processes)
        self._said: Said = {}

    def say(self, **what: Any) -> None:
        """snapshot: the path of the newest one; error: what has ended the work, in words; lost: that this was another
        rank"""
        self._said |= {key: str(value) for key, value in what.items()}
        os.pwrite(self._file.fileno(), json.dumps(self._said).encode().ljust(ROOM)[:ROOM], 0)

    def heard(self) -> Said:
        text = os.pread(self._file.fileno(), ROOM, 0)
        try:
            found: Said = json.loads(text) if text else {}
        except ValueError:  # killed while it wrote
            found = {}
        return found


def guarded(launch: Launch, work: Callable[[Guard], int], said: Callable[[Exception], tuple[str, int]]) -> int:
    """Do the work in a child, and return its exit code.

    said: the message and the exit code of an error that ends the work"""
    guard, parent = Guard(), os.getpid()
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if not child:
        _work(guard, parent, work, said)
    with contextlib.suppress(OSError):  # the child does it, too; whoever is first
        os.setpgid(child, child)  # a launcher's signals go to the parent's group, and once more from the parent
    passed: set[int] = set()

    def hand_on(number: int, _: object) -> None:
        passed.add(number)
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, number)

    for number in SIGNALS:
        signal.signal(number, hand_on)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    heard = guard.heard()
    if -code in passed:
        code = 128 - code
    if why := heard.get("error") or (_killed(-code) if code < 0 else None):
        time.sleep(MOMENT * (2 if heard.get("lost") else bool(launch.rank) if code >= 0 else 0))
        newest = heard.get("snapshot")
        rest = f"\nthe newest snapshot is {newest}: --resume latest goes on from it" if newest else ""
        _complain(f"rank {launch.rank}: {why}{rest}")
    return LOST if code < 0 else code


def _work(
    guard: Guard, parent: int, work: Callable[[Guard], int], said: Callable[[Exception], tuple[str, int]]
) -> NoReturn:
    """The child: it ends here. After an error it leaves at once, since an MPI's own end waits for all ranks."""
    with contextlib.suppress(OSError):
        os.setpgid(0, 0)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(LOST)
    try:
        code = work(guard)
    except KeyboardInterrupt:
        guard.say(error="interrupted")
        os._exit(128 + signal.SIGINT)
    except Exception as error:
        if "--traceback" in sys.argv:
            sys.excepthook(type(error), error, error.__traceback__)
        text, code = said(error)
        guard.say(error=text, **{"lost": True} if isinstance(error, RankLost) else {})
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        os._exit(code)
    sys.exit(code)


def _killed(number: int) -> str:
    name = signal.Signals(number).name
    memory = ", by the system for want of memory perhaps" if number == signal.SIGKILL else ""
    return f"its process was killed ({name}{memory})"


def _complain(text: str) -> None:
    with contextlib.suppress(OSError):
        for line in text.split("\n"):
            say(f"minidnn: {line}", file=sys.stderr, flush=True)
