"""The command's standard streams. They may be closed, full, or of an encoding that lacks characters of ours."""

from __future__ import annotations

import codecs
import contextlib
import io
import os
import sys

NAMES = ("stdin", "stdout", "stderr")  # in the order of their descriptors
ALIKE = {"–": "-", "—": "-", "×": "x", "µ": "u", "…": "...", "·": "*", "→": "->", "±": "+-"}


def prepare() -> None:
    """Call before anything is opened. Closed descriptors of 0 to 2 become /dev/null: else the next file that is opened
    would get such a number, and the output with it. Characters that a stream cannot encode are replaced."""
    for descriptor, name in enumerate(NAMES):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free descriptor, which is this one
        if getattr(sys, name) is None:
            nothing = open(os.devnull, "r" if name == "stdin" else "w", encoding="utf-8")  # noqa: SIM115
            setattr(sys, name, nothing)
    codecs.register_error("alike", _alike)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="alike")


def silence() -> None:
    """Print nothing more on standard output."""
    null = os.open(os.devnull, os.O_WRONLY)
    sys.stdout.flush()
    os.dup2(null, sys.stdout.fileno())
    os.close(null)


def _alike(error: UnicodeError) -> tuple[str | bytes, int]:
    """Similar characters of ASCII, or escapes (`\\xe9`), for characters that an encoding lacks."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    result = []
    for c in error.object[error.start : error.end]:
        result.append(ALIKE.get(c) or c.encode("ascii", "backslashreplace").decode("ascii"))
    return "".join(result), error.end


def settle() -> None:
    """Call at the end. A stream that takes no more is turned to /dev/null, so that Python's own end is quiet."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            with contextlib.suppress(OSError, ValueError):
                number = stream.fileno()
                null = os.open(os.devnull, os.O_WRONLY)
                os.dup2(null, number)
                os.close(null)
