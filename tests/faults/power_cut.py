"""What a power cut can leave of a training's files, computed from its log of calls.

The model is weaker than any file system that we know. Only fsync makes anything durable: a file's bytes, or a folder's
entries. Of the changes since then, the disk may have the first few or one alone, or all but one. A file whose bytes
were not flushed may have them, or be empty, cut in half, or full of zeros.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.faults.shim import Call

FOLDER = None  # a folder's content
DAMAGES = ("written", "empty", "half", "zeros")


@dataclass(eq=False)
class Node:
    """A file, or a folder (then it has no bytes)."""

    folder: bool = False
    data: bytearray = field(default_factory=bytearray)
    durable: bytes | None = None  # the bytes at the last fsync

    def after(self, damage: str) -> bytes:
        if damage == "written" or self.durable == bytes(self.data):
            return bytes(self.data)
        if self.durable is not None:
            return self.durable
        size = len(self.data)
        return {"empty": b"", "half": bytes(self.data[: size // 2]), "zeros": bytes(size)}[damage]


Change = tuple[tuple[str, "Node | None"], ...]  # entries set or, with None, removed, all at once
State = tuple[tuple[str, bytes | None], ...]  # the files by their paths; None: a folder


class Disk:
    """Replays calls. `root` is durable from the beginning."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.entries: dict[str, Node] = {}  # as programs see them
        self.durable: dict[str, Node] = {}
        self.pending: list[Change] = []

    def apply(self, call: Call) -> None:
        if call.result < 0:
            return
        node = self.entries.get(call.path)
        if call.kind == "mkdir":
            self._change((call.path, Node(folder=True)))
        elif call.kind == "create" and node is None:
            self._change((call.path, Node()))
        elif call.kind in ("create", "open") and call.detail and node and not node.folder:
            node.data.clear()
        elif call.kind == "write" and node:
            node.data.extend(bytes(max(0, call.detail - len(node.data))))  # a gap reads as zeros
            node.data[call.detail : call.detail + len(call.data)] = call.data
        elif call.kind == "truncate" and node:
            node.data[call.detail :] = bytes(max(0, call.detail - len(node.data)))
        elif call.kind in ("unlink", "rmdir"):
            self._change((call.path, None))
        elif call.kind in ("rename", "link"):
            self._move(call)
        elif call.kind == "fsync":
            self._flush(call.path)

    def _move(self, call: Call) -> None:
        moved = [name for name in self.entries if name == call.path or name.startswith(call.path + "/")]
        change = [(call.other + name[len(call.path) :], self.entries[name]) for name in moved]
        self._change(*change, *((name, None) for name in moved if call.kind == "rename"))

    def _change(self, *change: tuple[str, Node | None]) -> None:
        _enter(self.entries, change)
        self.pending.append(change)

    def _flush(self, path: str) -> None:
        node = self.entries.get(path)
        if node and not node.folder:
            node.durable = bytes(node.data)
            return
        for change in [c for c in self.pending if any(os.path.dirname(name) == path for name, _ in c)]:
            _enter(self.durable, change)
            self.pending.remove(change)

    def states(self) -> Iterator[State]:
        """All states that a power cut now can leave, some of them more than once."""
        n = len(self.pending)
        kept = [set(range(k)) for k in range(n + 1)] + [{k} for k in range(n)] + [set(range(n)) - {k} for k in range(n)]
        for some in kept:
            entries = dict(self.durable)
            for k in sorted(some):
                _enter(entries, self.pending[k])
            for damage in DAMAGES:
                yield self._state(entries, damage)

    def _state(self, entries: dict[str, Node], damage: str) -> State:
        """An entry is there if all folders above it are."""
        found: dict[str, bytes | None] = {}
        for name, node in sorted(entries.items()):
            above = os.path.dirname(name)
            if above == self.root or found.get(above, b"") is FOLDER:
                found[name] = FOLDER if node.folder else node.after(damage)
        return tuple(found.items())


def _enter(entries: dict[str, Node], change: Iterable[tuple[str, Node | None]]) -> None:
    for name, node in change:
        if node is None:
            entries.pop(name, None)
        else:
            entries[name] = node


def cuts(calls: Iterable[Call], root: str) -> Iterator[tuple[bytes, State]]:
    """(what the program had printed, the files) for each moment between calls and each state that a power cut can
    leave then; each pair once."""
    disk, said, seen = Disk(root), b"", set()
    for call in calls:
        if call.kind == "say":
            said += call.data
        else:
            disk.apply(call)
        for state in disk.states():
            if (said, state) not in seen:
                seen.add((said, state))
                yield said, state


def lay(state: State, root: str, place: Path) -> None:
    """Make the files of a state, with `place` for `root`."""
    for name, data in state:
        path = place / os.path.relpath(name, root)
        if data is FOLDER:
            path.mkdir()
        else:
            path.write_bytes(data)
