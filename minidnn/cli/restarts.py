"""`minidnn train --max-restarts N`: a run that is started again from its newest snapshot if it fails.

A launcher such as mpiexec ends all its ranks when one ends, so it has to be restarted from outside. `--launcher` says
how: "mpiexec -n 4". Given more than once, the second is for the first restart, and so on; the last one stays. So a run
goes on with fewer ranks where a machine is lost. torchrun restarts ranks by itself, and they go on likewise.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Sequence

from minidnn.errors import InvalidInput
from minidnn.ranks.launched import TORCHRUN, Launch
from minidnn.training.interrupt import SIGNALS
from minidnn.visible import say

INPUT = 2  # the exit code of a run that cannot be: another start does not help
OURS = {"--max-restarts", "--launcher"}  # options with a value


def supervised(args: argparse.Namespace, launch: Launch | None, arguments: Sequence[str]) -> int:
    """Run `minidnn train` with these arguments, at most 1 + max_restarts times; the last one's exit code.

    Raises InvalidInput if ranks are started already."""
    if launch is not None:
        own = ", which has its own --max-restarts" if launch.by == TORCHRUN else ", which ends all ranks together"
        raise InvalidInput(
            f"--max-restarts cannot be used within {launch.by}{own}; instead: minidnn train SOLVER --max-restarts N "
            '--launcher "mpiexec -n 4"'
        )
    rest, launchers = _without(arguments, OURS), args.launcher or [""]
    asked: list[int] = []  # signals
    code = 0
    for start in range(1 + (args.max_restarts or 0)):
        launcher = launchers[min(start, len(launchers) - 1)]
        resume = [] if start == 0 else ["--resume", "latest"]
        words = rest if start == 0 else _without(rest, {"--resume", "--weights"})
        code = _run([*shlex.split(launcher), sys.executable, "-m", "minidnn", *words, *resume], asked)
        if code in (0, INPUT) or asked:
            break
        if start < (args.max_restarts or 0):
            following = launchers[min(start + 1, len(launchers) - 1)]
            by = f" by {following}" if following else ""
            text = f"the run ended with code {code}: restart {start + 1} of {args.max_restarts}{by}"
            say(f"minidnn: {text}, from its newest snapshot", file=sys.stderr, flush=True)
    return code


def _run(words: Sequence[str], command: list[int]) -> int:
    """Run a command, and hand signals on to it. Returns its exit code, 128 + N if signal N has ended it."""
    try:
        process = subprocess.Popen(words, start_new_session=True)
    except OSError as error:
        raise InvalidInput(f"--launcher: {words[0]} cannot be run: {error.strerror}") from error

    def hand_on(number: int, _: object) -> None:
        command.append(number)
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, number)

    before = {number: signal.signal(number, hand_on) for number in SIGNALS}
    try:
        code = process.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return 128 - code if code < 0 else code


def _without(words: Sequence[str], options: set[str]) -> list[str]:
    """The words without these options and their values."""
    result, skip = [], False
    for word in words:
        name, equals, _ = word.partition("=")
        if skip:
            skip = False
        elif name in options:
            skip = not equals
        else:
            result.append(word)
    return result
