"""What every kind of input promises: it is accepted, or refused in words that a user can read. Nothing else happens."""

from __future__ import annotations

import contextlib
import io
import os
import re
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from hypothesis.strategies import SearchStrategy

from minidnn.cli.exit_codes import exit_code, message
from minidnn.cli.main import main
from minidnn.errors import BadInput

NOT_FOR_PEOPLE = re.compile(r"Traceback|internal error|site-packages|<[\w.]+ object at 0x|Warning:")


class Fault(AssertionError):
    """A promise that was not kept."""


class Misread(Fault):
    """Samples that are not those of the file, without a word."""


@dataclass(frozen=True)
class Kind:
    """A kind of input.

    cases:    what makes a case
    check:    a function of a case and an empty folder, the working one, which says whether the case was accepted.
              Raises Fault, or whatever minidnn raised, if a promise was not kept
    examples: how many cases `make test` tries
    """

    name: str
    cases: SearchStrategy[bytes]
    check: Callable[[bytes, Path], bool]
    examples: int


def readable(text: str, *names: str) -> None:
    """Raise Fault unless this error message can be printed, and names each of these."""
    if not text.strip():
        raise Fault("an error without words")
    if found := NOT_FOR_PEOPLE.search(text):
        raise Fault(f"{found[0]!r} in an error: {text[:2000]}")
    printable(text)
    for name in names:
        if name not in text:
            raise Fault(f"an error that does not name {name}: {text[:500]}")


def printable(text: str) -> None:
    """Raise Fault if a terminal could take a character of this text for a command."""
    if bad := next((c for c in text if not c.isprintable() and c not in "\n\r\t"), None):
        at = text.index(bad)
        raise Fault(f"the character {bad!r} is printed: {text[max(0, at - 60) : at + 60]!r}")


def refused(error: BaseException, *names: str) -> None:
    """Check the error with which an input was refused. Raises it anew if it is not one for users."""
    if not isinstance(error, BadInput) and not (isinstance(error, OSError) and exit_code(error) == 2):
        raise error
    readable(message(error), *names)


@contextlib.contextmanager
def silent() -> Iterator[None]:
    """Libraries of C write nothing to the standard error of the process here, of which Python's streams know nothing.
    Raises Fault if one does."""
    with TemporaryFile() as file:
        before = os.dup(2)
        os.dup2(file.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(before, 2)
            os.close(before)
        file.seek(0)
        if text := file.read():
            raise Fault(f"a library writes to standard error: {text[:500]!r}")


@contextlib.contextmanager
def strictly() -> Iterator[None]:
    """Raises Fault if there are warnings here: they would print paths of the package among a command's words."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        try:
            yield
        finally:
            if seen:
                raise Fault(f"{seen[0].category.__name__}: {seen[0].message}")


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int
    out: str
    err: str


def command(*argv: str, failures: str = "(?!)") -> Ended:
    """What `minidnn ARGV` prints, and its exit code. Raises Fault unless the code is 0, or 2 with a readable error.

    failures: a pattern of those errors with which it may end with 1
    """
    # The streams of a terminal in UTF-8, where standard error escapes what it cannot print.
    out = io.TextIOWrapper(io.BytesIO(), "utf-8", newline="")
    err = io.TextIOWrapper(io.BytesIO(), "utf-8", errors="backslashreplace", newline="")
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), strictly():
            code = main(argv)
    except SystemExit as end:  # argparse's
        code = end.code if isinstance(end.code, int) else 1
    texts = []
    for stream in (out, err):
        stream.flush()
        texts.append(stream.buffer.getvalue().decode("utf-8"))
    ended = Ended(code, *texts)
    if "this machine does not have enough memory" in ended.err:
        raise MemoryError(ended.err)
    if code == 0 or (code == 1 and re.search(failures, ended.err)):
        printable(ended.err)
    elif code == 2:
        readable(ended.err or ended.out)  # `plan` without a plan within the budget says so in its table
    else:
        raise Fault(f"exit code {code}: {ended.err[-2000:]}: {' '.join(map(ascii, argv))}")
    printable(ended.out)
    return ended


@contextlib.contextmanager
def inside(folder: Path) -> Iterator[None]:
    """With this working folder."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def same(what: str, one: Any, other: Any) -> None:
    """Raise Fault unless both are the same; NaN is as good as itself."""
    if one != other and repr(one) != repr(other):
        raise Fault(f"{what} differ: {one!r:.500} and {other!r:.500}")


def frames(error: BaseException) -> str:
    """Where an error was raised: the innermost functions of minidnn, for telling faults apart."""
    found = []
    at = error.__traceback__
    while at is not None:
        code = at.tb_frame.f_code
        if "minidnn" in code.co_filename.split(os.sep) or f"fuzz{os.sep}kinds" in code.co_filename:
            found.append(f"{Path(code.co_filename).stem}.{code.co_name}")
        at = at.tb_next
    return " < ".join(reversed(found[-3:]))
