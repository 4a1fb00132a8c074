"""Text for people. Text from files may hold anything: terminal commands, newlines that would forge a line of a log,
marks that reverse the order of characters. So all text goes through `visible` on its way out of the program.

The ways out are few: messages of errors (errors.py), lines that `say` prints, pieces that `flow` writes, cells and
titles of tables (report/table.py), texts of pages and pictures (report/markup.py), and lines of logs (cli/progress.py)
and listings. JSON, snapshots and plan files keep the true text.
"""

from __future__ import annotations

import contextlib
import sys
from functools import cache
from typing import TextIO


def visible(text: str) -> str:
    """The text on one line, without effect on a terminal: characters that are not printable are written as Python's
    `repr` writes them (`\\x1b`, `\\n`, `\\u202e`). It may be applied twice: backslashes stay as they are."""
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def say(text: str = "", file: TextIO | None = None, flush: bool = False) -> None:
    """Print one line, made `visible`, to `file`, or to standard output if None."""
    print(visible(text), file=file or sys.stdout, flush=flush)


def flow(text: str) -> None:
    """Write a piece of a text to standard output, at once. Its lines stay lines, and each is made `visible`."""
    sys.stdout.write("\n".join(map(visible, text.split("\n"))))
    sys.stdout.flush()


@cache
def say_once(line: str) -> None:
    """Print a line on stderr, if it can be written to; the same line only once in a process."""
    if sys.stderr is not None:
        with contextlib.suppress(OSError):
            say(line, file=sys.stderr, flush=True)


def status(text: str = "") -> None:
    """Replace the line on stderr by `text`, for work in progress; without text clear it. Only on a terminal."""
    if sys.stderr is not None and sys.stderr.isatty():
        with contextlib.suppress(OSError):
            sys.stderr.write(f"\r\x1b[K{visible(text)}")
            sys.stderr.flush()
