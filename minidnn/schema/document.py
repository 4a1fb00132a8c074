"""A file as plain values, each with its line and column in the file, and the errors found in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from minidnn.errors import BadInput
from minidnn.visible import visible

Path_ = tuple[str | int, ...]  # ("layer", 3, "convolution_param", "num_output")
Mark = tuple[int, int]  # line and column, from 1

VALUES = 4  # per byte of a file, with those that aliases repeat; without aliases a value takes at least two bytes
DEPTH = 100  # lists and mappings within each other; our files need less than ten
PROTOTEXT = (".prototxt", ".pbtxt")
CAFFEMODEL = ".caffemodel"
LISTED = 100  # errors that a message lists at most


class InvalidFile(BadInput, ValueError):
    """A file, or a net made in Python, with errors; `errors` lists all of them, one line each."""

    several = True

    def __init__(self, errors: list[str]) -> None:
        self.errors = [visible(error) for error in errors]
        super().__init__("\n".join(self.errors))


class Document:
    """A file's plain values (`data`), the marks of its fields, and the errors found in it, which `check` raises."""

    def __init__(
        self, data: Any, source: str = "", marks: Mapping[Path_, Mark] | None = None, what: str = "net"
    ) -> None:
        self.data = data
        self.source = source  # the file's name; empty for a document made in Python
        self.what = what  # in errors without a source: the name of the whole, such as "net LeNet"
        self.marks = dict(marks or {})
        self.forked = False  # whether an error has said what to do about a fork's fields
        self.old = False  # whether layers are in the old form, `layers`, beside which no `layer` may stand
        self.shown: dict[Path_, str] = {}  # of fields that no file gives: how the user has written them
        self._errors: list[tuple[Mark, Path_, str]] = []
        self.dropped: list[str] | None = None  # a list: it gets the unknown fields, which then are no errors
        self._notes: dict[str, list[str]] = {}  # what the file means here, where it says something else: its places
        self._values = 0  # read so far
        self._most: int | None = None

    def bound(self, size: int) -> None:
        """Allow as many values as a file of `size` bytes may hold."""
        self._most = max(1000, VALUES * size)

    def entered(self, mark: Mark) -> None:
        """Note that a value is read. Raises InvalidFile where they are too many."""
        self._values += 1
        if self._most is not None and self._values > self._most:
            where = f"{self.source}:{mark[0]}:{mark[1]}"
            raise InvalidFile([f"{where}: aliases repeat so much that the file holds more than {self._most} values"])

    def error(self, path: Path_, message: str, at_name: bool = False) -> None:
        """Add the error `file:line:column: path.to.field: message`, at the field's value, or at its name."""
        self.error_at(self._mark(path, at_name), path, message)

    def error_at(self, mark: Mark, path: Path_, message: str) -> None:
        """Add an error at this line and column."""
        self._errors.append((mark, path, message))

    def check(self) -> None:
        """Raise InvalidFile with all errors, in the order of the file; do nothing if there are none."""
        if self._errors:
            ordered = sorted(self._errors, key=lambda e: e[0])
            lines = (f"{self._text(mark, path)}: {message}" for mark, path, message in ordered)
            result = list(dict.fromkeys(lines))
            more = [f"and {len(result) - LISTED} more errors"] if len(result) > LISTED else []
            raise InvalidFile(result[:LISTED] + more)

    def drop(self, path: Path_, reason: str = "") -> None:
        """Note that this field is ignored, unless that is noted already."""
        assert self.dropped is not None
        text = self._text(self._mark(path, True), path) + (f" ({reason})" if reason else "")
        if text not in self.dropped:
            self.dropped.append(text)

    def note(self, path: Path_, message: str) -> None:
        """Note what the field at this path means here."""
        place, places = self._text(self._mark(path, True), path), self._notes.setdefault(message, [])
        if place not in places:
            places.append(place)

    @property
    def notes(self) -> tuple[str, ...]:
        """A sentence for each note, at the first of its places."""
        more = {message: len(places) - 1 for message, places in self._notes.items()}
        counts = {message: f" (and {n} more)" if n else "" for message, n in more.items()}
        return tuple(f"{places[0]}: {message}{counts[message]}" for message, places in self._notes.items())

    @property
    def of_caffe(self) -> bool:
        """Whether the file is in one of Caffe's forms; then it means what it means to Caffe."""
        return (self.source or self.what).endswith((*PROTOTEXT, CAFFEMODEL))

    @property
    def count(self) -> int:
        """The number of errors so far."""
        return len(self._errors)

    def where(self, path: Path_) -> str:
        """`file:line:column: path.to.field`."""
        return self._text(self._mark(path), path)

    def replace(self, at: Path_, data: Any) -> None:
        """Put these values in the place of those at `at`."""

        def put(values: Any, at: Path_) -> Any:
            if not at:
                return data
            part, *rest = at
            if isinstance(part, int) and not isinstance(values, list | tuple):  # a scalar counts as a list of one
                return put(values, tuple(rest))
            if isinstance(part, int):
                return [put(item, tuple(rest)) if i == part else item for i, item in enumerate(values)]
            return {**values, part: put(values[part], tuple(rest))}

        self.data = put(self.data, at)

    def rename(self, old: Path_, new: Path_) -> None:
        """Let all that lies below `old` have its places below `new`."""
        n = len(old)
        self.marks = {(new + path[n:] if path[:n] == old else path): mark for path, mark in self.marks.items()}

    def spread(self, at: Path_, before: Sequence[int]) -> None:
        """Let element i of the list at `at` have the places of what was element before[i]."""
        n = len(at)
        after: dict[str | int, list[int]] = {}
        for i, old in enumerate(before):
            after.setdefault(old, []).append(i)
        inside = {path: mark for path, mark in self.marks.items() if len(path) > n and path[:n] == at}
        self.marks = {path: mark for path, mark in self.marks.items() if path not in inside}
        for path, mark in inside.items():
            rest = path[n + 1 :]
            homes: Sequence[str | int] = after.get(path[n], ()) if isinstance(path[n], int) else (path[n],)
            self.marks.update({(*at, i, *rest): mark for i in homes})

    def place_as(self, new: Path_, old: Path_) -> None:
        """Let the field `new` have the place of `old`."""
        name = self._mark(old, True)
        for i in range(1, len(new)):  # the messages around it, if the file has none of them
            self.marks.setdefault(new[:i], name)
        value: Path_ = (*new, "=")
        self.marks[new], self.marks[value] = name, self._mark(old)

    def place(self, path: Path_) -> str:
        """`file:line:column`; for a document made in Python, `what`."""
        line, column = self._mark(path)
        return f"{self.source}:{line}:{column}" if self.source else self.what

    def _mark(self, path: Path_, at_name: bool = False) -> Mark:
        """Line and column of that field, or of the nearest one around it. A scalar counts as a list of one."""
        result: Path_ = ()
        for part in path:
            if (*result, part) in self.marks:
                result = (*result, part)
            elif isinstance(part, str):
                break
        name = self.marks.get(result, (1, 1))
        return name if at_name else self.marks.get((*result, "="), name)

    def _text(self, mark: Mark, path: Path_) -> str:
        """Place and path for an error; layers have their names: layer[conv1].convolution_param.num_output."""
        value, text = self.data, ""
        for i, part in enumerate(path):
            if isinstance(part, str):
                value = value.get(part) if isinstance(value, Mapping) else None
                text += f".{part}"
                continue
            listed = isinstance(value, list | tuple)
            value = value[part] if listed and part < len(value) else value
            name = value.get("name") if i and path[i - 1] == "layer" and isinstance(value, Mapping) else None
            if name is not None or listed:
                text += f"[{part if name is None else name}]"
        place = self._shown(path) or (f"{self.source}:{mark[0]}:{mark[1]}" if self.source else self.what)
        return f"{place}: {text[1:]}" if text else place

    def _shown(self, path: Path_) -> str | None:
        """How the user has written the field, or the one around it; None: it is the file's."""
        return next((self.shown[path[:n]] for n in range(len(path), 0, -1) if path[:n] in self.shown), None)


def quote(value: Any) -> str:
    """A value as error messages quote it, of at most 60 characters."""
    if isinstance(value, dict):
        return f"a mapping with {', '.join(map(str, value))}" if value else "an empty mapping"
    if isinstance(value, list | tuple):
        return f"a list of {len(value)}"
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return str(value).lower()
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
