"""The line of a user's code that runs, or that fails where tensors have no values.

There are two ways to it. Where eager mode is followed, a line of minidnn's own ends the search (`place`). Where a step
is traced, the frame of the step does (`user_line`).
"""

from __future__ import annotations

import contextlib
import functools
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import NamedTuple

from minidnn.errors import InvalidInput, described, origin, short
from minidnn.torch.experimental import fake_errors, fake_log
from minidnn.torch.user_code import PACKAGE, is_users_file

OUTSIDE = "loss"  # the module of what runs outside of all modules
# what of minidnn stands between a user's code and PyTorch; the other files stand outside both
BETWEEN = ("places.py", "experimental.py", "following.py", "nodes.py", "blocks.py")

CALLING = ("__torch_function__", "_step", "_made")  # functions that call a user's code, or PyTorch for it


class Place(NamedTuple):
    """Where an op comes from: the module's path, and the user's line. Both are empty where nobody knows."""

    module: str = ""
    file: str = ""
    line: int = 0

    def __str__(self) -> str:
        at = f"{brief(self.file)}:{self.line}" if self.file else ""
        return " ".join(part for part in (at, f"({self.module})" if self.module else "") if part) or "the module"


def place(frame: FrameType | None) -> str:
    """FILE:LINE of the innermost frame of the step that is the user's; "" if there is none, as in backward."""
    while frame is not None and not _outside(frame.f_code.co_filename):
        file = frame.f_code.co_filename
        if _named(file):
            return f"{short(file)}:{frame.f_lineno}"
        frame = frame.f_back
    return ""


@functools.cache
def _outside(file: str) -> bool:
    """Whether a file is minidnn's and stands outside a step."""
    path = Path(file)
    return path.is_relative_to(PACKAGE) and path.name not in BETWEEN


def _named(file: str) -> bool:
    """Whether it is a file, and the user's or that of a package between the user and PyTorch."""
    return not file.startswith("<") and is_users_file(file)


@contextlib.contextmanager
def refused(name: str) -> Iterator[None]:
    """What fails within raises InvalidInput with the line of the user's code, unless it is minidnn's own fault.

    name: of what runs"""
    asked, log = fake_errors(), fake_log()
    disabled, log.disabled = log.disabled, True  # it prints what is told here
    try:
        yield
    except (asked.value, asked.shape) as error:
        what = "a value that" if isinstance(error, asked.value) else "a result whose shape"
        where = origin(error)
        raise InvalidInput(
            f"{where}{': ' if where else ''}{name} asks for {what} depends on data ({error.func}), and there are none"
        ) from error
    except Exception as error:  # of whatever kind a user's code, or PyTorch, raises
        last = traceback.extract_tb(error.__traceback__)[-1]
        own = Path(last.filename).is_relative_to(PACKAGE) and last.name not in CALLING
        if own or isinstance(error, InvalidInput):
            raise
        raise InvalidInput(f"{name} fails on tensors without values: {described(error)}") from error
    finally:
        log.disabled = disabled


# ---- while a step is traced


def user_line(frame: FrameType | None, outer: tuple[str, str]) -> tuple[str, int]:
    """The innermost line of a step that is the user's; none if the loss is a function of PyTorch's.

    outer: the file and the name of the function that runs the step"""
    while frame is not None and (frame.f_code.co_filename, frame.f_code.co_name) != outer:
        if _named(frame.f_code.co_filename):
            return frame.f_code.co_filename, frame.f_lineno
        frame = frame.f_back
    return "", 0


def line_of(error: BaseException) -> tuple[str, int]:
    """The innermost line of an error, likewise."""
    lines = [(f.filename, f.lineno or 0) for f in traceback.extract_tb(error.__traceback__) if _named(f.filename)]
    return lines[-1] if lines else ("", 0)


def brief(file: str) -> str:
    """A file as people name it: relative to the working folder if it is below it, else its last two parts."""
    seen = short(file)
    return seen if seen != file else "/".join(Path(file).parts[-2:])
