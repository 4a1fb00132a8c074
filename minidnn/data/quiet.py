"""Silence of the libraries that read samples: what is wrong with a file is an error's to say, or of no account.

NumPy warns of headers that Python 2 wrote; Pillow of odd metadata, of palettes, and of sizes that data/decoding.py
bounds by itself. Pillow's logger and libtiff write their complaints before an error comes. The filter of warnings is
one of this thread and of the time of a reading: those of others are shown as ever. (`warnings.catch_warnings` would
change them for all threads.)
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import logging
import os
import re
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_LIBTIFF = re.compile(r" (/.*/libtiff[-.][^/\n]*)$", re.MULTILINE)  # a file among those that a process has mapped


class _Decoding(threading.local):
    """Whether this thread decodes an image, as the pattern of a filter of warnings."""

    depth = 0

    def match(self, text: str) -> bool:
        return self.depth > 0


_HERE = _Decoding()
_FILTER = ("ignore", None, Warning, _HERE, 0)  # action, text, category, module, line


@contextlib.contextmanager
def here() -> Iterator[None]:
    """No warning of this thread is shown, and libraries write nothing of their own."""
    _once()
    filters: list[Any] = warnings.filters  # type: ignore[assignment]
    if not filters or filters[0] is not _FILTER:  # another one would be asked before it
        filters[:] = [_FILTER, *(one for one in filters if one is not _FILTER)]
    _HERE.depth += 1
    try:
        yield
    finally:
        _HERE.depth -= 1


@functools.cache
def _once() -> None:
    logging.getLogger("PIL").addHandler(logging.NullHandler())  # Python prints what no handler takes
    try:
        files = _LIBTIFF.findall(Path("/proc/self/maps").read_text(encoding="utf-8", errors="surrogateescape"))
    except FileNotFoundError:  # no Linux: libtiff's lines are shown there
        return
    for file in filter(os.path.isfile, set(files)):
        ctypes.CDLL(file).TIFFSetErrorHandler(None)
