"""The base classes of all errors that users read, and the hint for a misspelled name.

Every error that a user is meant to read derives from `BadInput` or from `Failed`. The command line prints its message
and nothing else, so the message must be complete. Any other exception is a bug of minidnn and is reported as one.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class _Readable(Exception):
    def __str__(self) -> str:
        """The bare message. KeyError and OSError, from which some subclasses derive, would change it."""
        return str(self.args[0]) if self.args else ""


class BadInput(_Readable):
    """The user's input cannot be used: a file, an option, a budget, or a device that is not here. Exit code 2."""


class Failed(_Readable):
    """The input was good, but something failed while the command ran. Exit code 1."""


class InvalidInput(BadInput, ValueError):
    """The arguments cannot be used, or not together; the message says which ones and why."""


def near(name: str, known: Iterable[str], cutoff: float = 0.6) -> str:
    """` (did you mean 'conv1'?)` with the known name most similar to `name`, ignoring case; "" if none is similar.

    cutoff: the least similarity that counts, from 0 to 1 (see difflib.get_close_matches)
    """
    lower = {word.lower(): word for word in known}
    close = difflib.get_close_matches(name.lower(), lower, 1, cutoff)
    return f" (did you mean {lower[close[0]]!r}?)" if close and lower[close[0]] != name else ""
