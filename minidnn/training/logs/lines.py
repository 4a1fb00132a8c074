"""Logs of lines: a JSON document a line for each event, or CSV, a row for each step and each test."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from minidnn.errors import InvalidInput
from minidnn.files.replace import make_folder, unwritable
from minidnn.training.logs.appended import Appended, whole_lines
from minidnn.training.logs.record import scalars


class JsonLines:
    """A JSON document a line, in ASCII, for each event."""

    begin: ClassVar[bytes] = b'{"event": "begin", '  # what each such file begins with
    head = b""

    def __init__(self, columns: Sequence[str]) -> None:
        """`columns`: the names of all curves."""

    def of(self, record: Mapping[str, Any]) -> bytes:
        return json.dumps(record).encode() + b"\n"


class Csv:
    """CSV with a head: a row for each step and each test. A step's row leaves the columns of tests empty, and the
    other way round."""

    begin: ClassVar[bytes] = b"event,iteration,epoch,"

    def __init__(self, columns: Sequence[str]) -> None:
        self._columns = ["event", "iteration", "epoch", *columns]
        self.head = self._row(self._columns)

    def of(self, record: Mapping[str, Any]) -> bytes:
        return self._row([record.get(name, "") for name in self._columns]) if scalars(record) else b""

    def _row(self, values: Sequence[Any]) -> bytes:
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerow(values)
        return text.getvalue().encode()


FORMS: dict[str, type[JsonLines] | type[Csv]] = {".jsonl": JsonLines, ".csv": Csv}


class LineLog:
    """A file of such lines, by its suffix. A run that begins at iteration 0 begins the file anew; one that goes on
    appends to it, after the last whole line."""

    def __init__(self, path: Path, columns: Sequence[str], goes_on: bool) -> None:
        """Raises OSError, and InvalidInput if the run goes on and has other curves than the file."""
        self._form: JsonLines | Csv = FORMS[path.suffix](columns)
        head = self._form.head
        make_folder(path.parent)
        kept = whole_lines(path) if goes_on and path.exists() else 0
        if kept and _first(path, len(head)) != head:
            what = f"has different columns from this run, which has {', '.join(columns)}; name another file"
            raise InvalidInput(f"log {path}: {what}")
        self._file = Appended(path, kept)
        if not kept:
            self._file.write(head)

    def __call__(self, record: Mapping[str, Any]) -> None:
        """Write the record. Raises OSError."""
        self._file.write(self._form.of(record))

    def close(self) -> None:
        self._file.close()


def problem(path: Path, snapshots: Path) -> str | None:
    """Why this file cannot be a log of lines; None if it can. A file that is there already must be a log, since a run
    replaces no other file. Its folder must be there, unless it is that of the snapshots, which is made. Raises
    OSError."""
    if path.suffix in FORMS and path.parent == snapshots and not snapshots.exists():
        return None
    if why := unwritable(path, *FORMS):
        return why
    if not path.exists():
        return None
    if not path.is_file():
        return "is not a regular file, to which lines can be added"
    begin = FORMS[path.suffix].begin
    if _first(path, len(begin)) in (b"", begin):
        return None
    return "exists already, and is not the log of a run; name another file"


def _first(path: Path, size: int) -> bytes:
    """The first bytes of a file, as many as it has of so many. Raises OSError."""
    with open(path, "rb") as file:
        return file.read(size)
