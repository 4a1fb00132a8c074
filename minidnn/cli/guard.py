"""Runs a rank's work in a child process, so that its end is reported, whatever its cause.

A launcher kills all ranks once one has ended, and a rank that the system kills can print nothing. So each rank forks:
the child works, and the parent waits, passes signals on, and reports how the child has ended. Then the launcher ends
all. The parent that knows the cause reports first: that of a killed rank at once; then that of the first rank, before
others with the same error; and last those that only know that another rank has ended.

Until a rank's MPI has started, the launcher may not notice that another has ended: MPICH's then waits for ever. So the
parent looks after the other ranks of its machine meanwhile, and at the clock.

Afterwards, MPICH's launcher may still miss an end. Its proxy (hydra's, in MPICH 5.0) kills the other ranks when it
reads that a process has closed its connection, unless it has collected an exit code of that process before. A signal it
never misses: it then ends the ranks of all machines. So a rank that fails sends one to itself (`leave`).
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
from pathlib import Path
from typing import Any, NoReturn

from minidnn.cli.restarts import INPUT
from minidnn.ranks.engine import LIMIT, RankLost
from minidnn.ranks.launched import Launch
from minidnn.training.interrupt import SIGNALS
from minidnn.visible import say

MOMENT = 2.0  # seconds
LOOK = 0.05  # seconds between two looks at a child that starts
ROOM = 1 << 16  # bytes of a child's message
PR_SET_PDEATHSIG = 1  # prctl: the signal that a process gets when its parent ends
LOST = 1  # the exit code of a rank that was killed

Message = dict[str, Any]


class Guard:
    """The child's messages to its parent, the latest of each kind."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115  (it lives as long as the two processes)
        self._said: Message = {}

    def say(self, **what: Any) -> None:
        """entered: that MPI has started; snapshot: the path of the newest one; error: what ended the work, in words;
        lost: that this was another rank"""
        self._said |= {key: str(value) for key, value in what.items()}
        os.pwrite(self._file.fileno(), json.dumps(self._said).encode().ljust(ROOM)[:ROOM], 0)

    def heard(self) -> Message:
        text = os.pread(self._file.fileno(), ROOM, 0)
        try:
            result: Message = json.loads(text) if text else {}
        except ValueError:  # killed while it wrote
            result = {}
        return result


def guarded(
    launch: Launch,
    work: Callable[[Guard], int],
    describe: Callable[[Exception], tuple[str, int]],
    limit: float = LIMIT,
    here: Callable[[], int] | None = None,
) -> int:
    """Do the work in a child, and return its exit code.

    describe: the message and the exit code of the error that ends the work
    limit: seconds until the work has to say that it has `entered`
    here:  tells how many ranks of this machine are alive; None: as `ranks_here`"""
    guard, parent = Guard(), os.getpid()
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if not child:
        _work(guard, parent, work, describe)
    with contextlib.suppress(OSError):  # the child does it, too; whoever is first
        os.setpgid(child, child)  # a launcher's signals go to the parent's group, and once more from the parent
    passed: set[int] = set()

    def hand_on(number: int, _: object) -> None:
        passed.add(number)
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, number)

    for number in SIGNALS:
        signal.signal(number, hand_on)
    status = _started(guard, child, limit, here or (lambda: ranks_here(launch)))
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1] if status is None else status)
    heard = guard.heard()
    if -code in passed:
        code = 128 - code
    if why := heard.get("error") or (_killed(-code) if code < 0 else None):
        time.sleep(MOMENT * (2 if heard.get("lost") else bool(launch.rank) if code >= 0 else 0))
        newest = heard.get("snapshot")
        rest = f"\nthe newest snapshot is {newest}: --resume latest continues from it" if newest else ""
        _complain(f"rank {launch.rank}: {why}{rest}")
    return LOST if code < 0 else code


def leave(launch: Launch, code: int) -> int:
    """The exit code of a rank's process. With one that means that others may be waiting for this rank, the process ends
    here, in a way that the launcher notices. Wrong input ends all ranks alike. So does a signal, after which the first
    rank may still be writing a snapshot. Their codes say so."""
    if launch.by != "MPICH" or code in (0, INPUT, *(128 + number for number in SIGNALS)):
        return code
    _flush()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGTERM)
    return code


def ranks_here(launch: Launch) -> int:
    """How many ranks of this machine are alive, as far as it can be known: those that MPICH's launcher has started."""
    if launch.by != "MPICH":
        return 0
    parent = os.getppid()
    try:
        return len(Path(f"/proc/{parent}/task/{parent}/children").read_text(encoding="ascii").split())
    except OSError:
        return 0


def _started(guard: Guard, child: int, limit: float, here: Callable[[], int]) -> int | None:
    """Wait until the child has entered MPI. The status with which it has ended before that, if it has: it is killed if
    other ranks have ended, or if it takes too long."""
    began, most = time.monotonic(), 0
    while not guard.heard().get("entered"):
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return status
        count = here()
        most = max(most, count)
        why = None
        if count < most:
            why = f"MPI cannot start: of {most} ranks on this machine, {count} are left"
        elif time.monotonic() - began > limit:
            why = f"MPI has not started within {limit:g} s: another rank has ended or is late (--rank-limit)"
        if why:
            time.sleep(MOMENT)  # that rank may be about to say why it ends, and this one may have heard of it
            if not guard.heard().get("entered"):
                guard.say(error=why)
                os.kill(child, signal.SIGKILL)
                return os.waitpid(child, 0)[1]
        time.sleep(LOOK)
    return None


def _work(
    guard: Guard, parent: int, work: Callable[[Guard], int], describe: Callable[[Exception], tuple[str, int]]
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
        text, code = describe(error)
        guard.say(error=text, **{"lost": True} if isinstance(error, RankLost) else {})
        _flush()
        os._exit(code)
    sys.exit(code)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()


def _killed(number: int) -> str:
    name = signal.Signals(number).name
    memory = ", perhaps by the system because memory ran out" if number == signal.SIGKILL else ""
    return f"its process was killed ({name}{memory})"


def _complain(text: str) -> None:
    with contextlib.suppress(OSError):
        for line in text.split("\n"):
            say(f"minidnn: {line}", file=sys.stderr, flush=True)
