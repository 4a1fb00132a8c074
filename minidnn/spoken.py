"""The name of an option in a text: a keyword of Python, or a flag of the command line, whichever its reader writes.

Texts below the command line name options by these functions alone (tests/project/test_spoken.py). The program `minidnn`
says that it reads a command line; else the caller is a program in Python.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

SWITCHES = {"no_fusion": "fuse=False"}  # that are keywords of other names

_flags = False  # of the process, since threads tell of errors, too


@contextmanager
def on_command_line() -> Iterator[None]:
    """Within it, options are flags."""
    global _flags
    before, _flags = _flags, True
    try:
        yield
    finally:
        _flags = before


def either(flags: str, keywords: str) -> str:
    """The first text for who reads a command line, the second one in Python."""
    return flags if _flags else keywords


def many(count: int, noun: str) -> str:
    """A number of things: 1 rank, 2 ranks, 3 policies. noun: of one thing"""
    plural = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"{count:,} {noun if count == 1 else plural}"


def option(name: str, value: object = None) -> str:
    """The option of this name: --host-budget, or host_budget; with a value --host-budget 64MiB, or host_budget="64MiB".

    value: True of a switch. A text in capitals, such as N, stands for a value"""
    flag = f"--{name.replace('_', '-')}"
    if name in SWITCHES:
        return either(flag, SWITCHES[name])
    if value is None:
        return either(flag, name)
    stands = isinstance(value, str) and value.isalpha() and value.isupper()
    plain = f"{value:g}" if isinstance(value, float) else f"{value}"
    shown = f'"{value}"' if isinstance(value, str) and not stands else plain
    return either(flag if value is True else f"{flag} {plain}", f"{name}={shown}")
