"""The shim (shim.c): how it is compiled, the faults that it can make, and the log of calls that it writes."""

from __future__ import annotations

import ctypes
import enum
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

SOURCE = Path(__file__).with_name("shim.c")


class Action(enum.IntEnum):
    """What happens to a call; the numbers are those of shim.c."""

    NOTHING = 0
    FAIL = 1  # the call is not made, and ends with an error
    SHORT = 2  # a write writes half of its bytes
    KILL_BEFORE = 3  # SIGKILL in place of the call
    KILL_AFTER = 4  # the call, then SIGKILL


@dataclass(frozen=True)
class Fault:
    """Call number `at`, counted from 1, goes wrong; and the `times` - 1 after it, or with 0 all after it."""

    action: Action = Action.NOTHING
    at: int = 0
    errno: int = 0
    times: int = 1

    def __str__(self) -> str:
        what = os.strerror(self.errno) if self.errno else self.action.name.lower().replace("_", " ")
        return f"call {self.at}{'' if self.times else ' and all after it'}: {what}"


@dataclass(frozen=True)
class Call:
    """A call that the shim has seen. Number 0 is what the process wrote to its standard output ("say")."""

    number: int
    kind: str
    result: int  # of the call; -errno if it failed
    path: str
    other: str  # a rename's second path
    detail: int  # a write's offset, a truncation's size, whether an open made or emptied the file
    data: bytes  # what was written


def compile_shim(folder: Path) -> Path:
    """The library. Raises NotCompiled if there is no C compiler that can make it."""
    from minidnn import compiled  # imports more than a small script needs

    library = folder / "shim.so"
    words = [compiled.find_compiler(), "-shared", "-fPIC", "-O1", "-o", str(library), str(SOURCE), "-ldl"]
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode:
        raise compiled.NotCompiled(done.stderr)
    return library


def arm(folder: Path, log: Path, fault: Fault) -> None:
    """From now on the shim, which this process was started with, watches the folder."""
    where, file = os.fsencode(folder.resolve()), os.fsencode(log)
    f = fault
    ctypes.CDLL(None).faults_arm(where, file, int(f.action), f.errno, ctypes.c_long(f.at), f.times)


def disarm() -> None:
    ctypes.CDLL(None).faults_disarm()


def read_log(path: Path) -> Iterator[Call]:
    text, at = path.read_bytes(), 0
    while at < len(text):
        end = text.index(b"\n", at)
        head, other, detail, size = os.fsdecode(text[at:end]).split("\t")
        number, kind, result, name = head.split(" ", 3)
        at = end + 1 + int(size)
        yield Call(int(number), kind, int(result), name, other, int(detail), text[end + 1 : at])
