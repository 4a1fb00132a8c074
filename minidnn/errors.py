"""The two ways in which a command may end badly, and the hint that goes with a misspelled name.

Each error that a user is meant to read derives from `BadInput` or from `Failed`. Its message must suffice: the command
line prints the message and nothing else. Any other exception is a bug of minidnn and is reported as one.
"""

from __future__ import annotations

import difflib
import importlib
import sysconfig
import traceback
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import ClassVar

from minidnn.visible import visible


class _Readable(Exception):
    several: ClassVar[bool] = False  # whether messages have several lines; then the raiser makes each line visible

    def __str__(self) -> str:
        """The message, made `visible`; KeyError and OSError, from which some subclasses derive, would print it
        differently."""
        text = str(self.args[0]) if self.args else ""
        return text if self.several else visible(text)


class BadInput(_Readable):
    """The user's input cannot be used: a file, an option, a budget, a device that this machine lacks. Exit code 2."""


class Failed(_Readable):
    """The input was good, but something failed while the command ran. Exit code 1."""


class InvalidInput(BadInput, ValueError):
    """Arguments that cannot be used, alone or together; the message names them and the reason."""


def near(name: str, names: Iterable[str], cutoff: float = 0.6) -> str:
    """` (did you mean 'conv1'?)` if a known name resembles `name`, upper or lower case; else an empty text.

    cutoff: the least similarity, from 0 to 1 (difflib.get_close_matches)
    """
    lower = {word.lower(): word for word in names}
    close = difflib.get_close_matches(name.lower(), lower, 1, cutoff)
    return f" (did you mean {lower[close[0]]!r}?)" if close and lower[close[0]] != name else ""


def few(names: Sequence[str], most: int = 5) -> str:
    """The first of these names, and how many more there are: "conv1, conv2 and 3 more"."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def described(error: BaseException) -> str:
    """An error of a user's own code, with its place there: FILE:LINE: NameError: name 'x' is not defined"""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{short(error.filename)}:{error.lineno}: {type(error).__name__}: {error.msg}"
    where = origin(error)
    return f"{where}{': ' if where else ''}{type(error).__name__}{f': {error}' if str(error) else ''}"


def origin(error: BaseException) -> str:
    """The place in a user's own code that an error comes from, FILE:LINE; empty if it comes from none."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if _foreign(frame.filename)]
    theirs = [f for f in frames if not of_python(f.filename) and not of_package(f.filename)] or frames
    return f"{short(theirs[-1].filename)}:{theirs[-1].lineno}" if theirs else ""


def _foreign(file: str) -> bool:
    """Whether the file is one, and no part of minidnn or of what Python does for `import`."""
    ours = (Path(__file__).parent, Path(importlib.__file__).parent)
    return not file.startswith("<") and not any(Path(file).is_relative_to(folder) for folder in ours)


def of_python(file: str) -> bool:
    """Whether the file belongs to Python's own library."""
    return Path(file).is_relative_to(sysconfig.get_paths()["stdlib"]) and not of_package(file)


def of_package(file: str) -> bool:
    """Whether the file belongs to an installed package."""
    return not {"site-packages", "dist-packages"}.isdisjoint(Path(file).parts)


def short(file: str) -> str:
    """The file's path as seen from the working folder, if it lies there."""
    path = Path(file)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else file
