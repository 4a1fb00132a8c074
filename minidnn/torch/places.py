"""The line of a user's code that runs, or that fails where tensors have no values."""

from __future__ import annotations

import contextlib
import functools
import logging
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

from minidnn.errors import InvalidInput, described, origin, short

PACKAGE = Path(__file__).parents[1]
# what of minidnn stands between a user's code and PyTorch; the other files stand outside both
BETWEEN = ("places.py", "following.py", "nodes.py", "blocks.py")

CALLING = ("__torch_function__", "_step", "_made")  # functions that call a user's code, or PyTorch for it


def place(frame: FrameType | None) -> str:
    """FILE:LINE of the innermost frame of the step that is not PyTorch's; "" if there is none, as in backward."""
    while frame is not None:
        file = frame.f_code.co_filename
        if (ours := _ours(file)) is not None:
            return f"{short(file)}:{frame.f_lineno}" if not ours else ""
        frame = frame.f_back
    return ""


@functools.cache
def _ours(file: str) -> bool | None:
    """Whether a file is minidnn's; None if it stands between."""
    import torch

    path = Path(file)
    if file.startswith("<") or path.name == "contextlib.py" or path.is_relative_to(Path(torch.__file__).parent):
        return None
    return (None if path.name in BETWEEN else True) if path.is_relative_to(PACKAGE) else False


@contextlib.contextmanager
def refused(name: str) -> Iterator[None]:
    """What fails within raises InvalidInput with the line of the user's code, unless it is minidnn's own fault.

    name: of what runs"""
    from torch._subclasses import fake_tensor as fake

    log = logging.getLogger(fake.__name__)
    disabled, log.disabled = log.disabled, True  # it prints what is told here
    try:
        yield
    except (fake.DataDependentOutputException, fake.DynamicOutputShapeException) as error:
        what = "a value that" if isinstance(error, fake.DataDependentOutputException) else "a result whose shape"
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
