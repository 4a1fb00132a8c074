"""The exit code and the message of an error that ends a command.

The code is 2 if an input cannot be used (a file, an option, a budget), 1 if something failed while running.
"""

from __future__ import annotations

import errno
import sys

from minidnn.errors import BadInput, Failed
from minidnn.visible import visible

CUDA = ("cupy", "cupy_backends")  # if a kernel fails, an exception of one of these packages is raised as the step ends
NO_SUCH_FILE = (FileNotFoundError, NotADirectoryError, IsADirectoryError, PermissionError)


def exit_code(error: Exception) -> int:
    """2 if an input cannot be used, 1 if something failed while running."""
    if isinstance(error, Failed):
        return 1
    if isinstance(error, BadInput):
        return 2
    named = isinstance(error, OSError) and error.errno in (errno.ENAMETOOLONG, errno.ELOOP)
    return 2 if named or isinstance(error, NO_SUCH_FILE) or _unnameable(error) else 1


def _unnameable(error: Exception) -> bool:
    """Whether a file has a name that this locale cannot write. No text of ours is encoded in the locale's encoding."""
    return isinstance(error, UnicodeEncodeError) and error.encoding == sys.getfilesystemencoding() != "utf-8"


def message(error: Exception) -> str:
    """The error in words, on one line unless the error has several, each without effect on a terminal."""
    if isinstance(error, BadInput | Failed):
        return str(error)
    return visible(_unexpected(error))


def _unexpected(error: Exception) -> str:
    if type(error).__module__.partition(".")[0] in CUDA:
        return f"CUDA failed while the step ran: {error}; --no-graph and compute-sanitizer show where"
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        full = " (nothing more can be written there)" if error.errno == errno.ENOSPC else ""
        return f"{where}{error.strerror or error}{full}"
    if _unnameable(error):
        assert isinstance(error, UnicodeEncodeError)
        return (
            f"{error.object}: this locale ({error.encoding}) cannot express the name of this file; set LC_ALL=C.UTF-8"
        )
    if isinstance(error, MemoryError):
        return f"this machine does not have enough memory{f': {error}' if str(error) else ''}"
    what = f"{type(error).__name__}: {error}"
    return f"internal error, please report it: {what} (`minidnn --traceback VERB ...` shows where)"
