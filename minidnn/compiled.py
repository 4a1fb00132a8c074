"""Loads a folder of C files as one library, which a wheel brought or the system's C compiler makes.

A wheel for Linux brings libraries for levels of x86-64 (release/wheels.py). They lie beside the C files. The best one
that this CPU runs is loaded, even if there is a compiler, which would make no quicker one (benchmarks/levels.py). So
the numbers do not depend on a compiler.

Else the compiler runs once, for this CPU; the library is kept in the user's cache (files/cache.py), with a checksum.
The bytes that were checked are the ones that are loaded: they are copied to a folder of this process alone. If they
are damaged, or others may have written them, the library is compiled again.

A library's file name has a hash of all that decides its contents: sources, options, and the CPU's instruction sets or
the level. So the file is never stale, and a later start runs no compiler.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from minidnn import cpuinfo
from minidnn.files import cache

NAME = "minidnn"
COMPILERS = ("cc", "gcc", "clang")  # in the order of search; the environment variable CC names another
SECONDS = 120  # a compiler run that takes longer counts as hung: the slowest file needs a small part of this


class NotCompiled(Exception):
    """Our own C code cannot be had; the message is one line with the reason."""


@dataclass(frozen=True)
class Sources:
    """The C files of a folder, which become one library.

    what:     what people are told is being compiled: "the kernels, once: some 10 s"
    options:  the compiler's options for this CPU, with this environment; or for a level of x86-64
    levels:   the levels for which a wheel brings the library, and that this environment permits, the best first
    check:    (the files, a freshly compiled library): raises NotCompiled if the library lacks something
    ends:     how the names of the files end: ".cpp" for C++
    libraries: the linker's options, behind the files
    """

    folder: Path
    what: str
    options: Callable[[str | None], tuple[str, ...]]
    levels: Callable[[], Sequence[str]]
    check: Callable[[Sequence[Path], ctypes.CDLL], None] = lambda files, library: None
    ends: str = ".c"
    libraries: Sequence[str] = ("-lm",)

    @property
    def files(self) -> list[Path]:
        return sorted(self.folder.glob(f"*{self.ends}"))

    def load(self, cache_dir: Path | None = None) -> ctypes.CDLL:
        """The library that a wheel brought, or from the cache, or compiled now; a process loads it once. `cache_dir`:
        default: the user's cache folder. Raises NotCompiled, with the reason in one line, if there is no usable
        compiler, or what the wheel brought cannot be loaded."""
        cache_dir = cache_dir or cache.home() / "native"
        wanted = (self.folder, self.ends, self.options(None), tuple(self.levels()), cache_dir)
        if wanted not in _loaded:  # the files are read once, for the name of the library
            brought = self.brought()
            _loaded[wanted] = _opened(brought) if brought else self._kept(self.path(cache_dir))
        return _loaded[wanted]

    def brought(self) -> Path | None:
        """The library of the best level that this CPU runs, if a wheel brought it."""
        if not any(self.folder.glob(f"{NAME}-*.so")):  # as in a checkout; else all files are read to know the name
            return None
        there = (self.shipped(level) for level in self.levels() if cpuinfo.runs(level))
        return next((path for path in there if path.is_file()), None)

    def shipped(self, level: str) -> Path:
        """Where a wheel has the library for a level of x86-64."""
        return self.folder / f"{NAME}-{level}-{self._key(level, level)}.so"

    def ship(self, level: str) -> Path:
        """Compile the library for a level of x86-64, for a wheel. Raises NotCompiled."""
        path = self.shipped(level)
        path.write_bytes(self._compiled(level))
        self.check(self.files, _opened(path))
        return path

    def path(self, cache_dir: Path | None = None) -> Path:
        """The library's file in the cache."""
        return (cache_dir or cache.home() / "native") / f"{NAME}-{self._key(None, cpuinfo.native())}.so"

    def _key(self, level: str | None, instructions: str) -> str:
        files = sorted([*self.files, *self.folder.glob("*.h")])
        texts = (f"{file.name}\n{file.read_text(encoding='utf-8')}" for file in files)
        parts = [*texts, *self.options(level), platform.machine(), instructions]
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]

    def _kept(self, path: Path) -> ctypes.CDLL:
        """The library from the cache, else compiled now and kept there."""
        content = cache.kept(path)
        with contextlib.suppress(NotCompiled):  # what cannot be loaded is compiled again below
            if content is not None:
                return self._library(path, content)
        content = self._compiled(None)
        library = self._library(path, content)
        self.check(self.files, library)
        cache.keep(path, content, "kernels are compiled again at each start")
        return library

    def _library(self, path: Path, content: bytes) -> ctypes.CDLL:
        """The library with these bytes. It is loaded by the name of a file in a new folder, which nobody else can write
        to. It stays mapped after the folder is deleted. Raises NotCompiled if it cannot be loaded."""
        why = ""
        for where in (None, path.parent):  # the system's temporary folder may be mounted without the right to execute
            try:
                # a network file system keeps a file that is mapped, and so its folder
                with tempfile.TemporaryDirectory(dir=where, ignore_cleanup_errors=True) as folder:
                    copy = Path(folder) / path.name
                    copy.write_bytes(content)
                    return ctypes.CDLL(str(copy))
            except OSError as error:
                why = why or str(error)
        raise NotCompiled(f"what the C compiler made of {self.folder} cannot be loaded: {why}")

    def _compiled(self, level: str | None) -> bytes:
        """The library's bytes, by the C compiler, for this CPU or for a level of x86-64."""
        compiler = find_compiler()
        with tempfile.TemporaryDirectory() as folder, _progress(self.what):
            made = Path(folder) / f"{NAME}.so"
            self._compile([compiler, *self.options(level)], made)
            try:
                return made.read_bytes()
            except OSError as error:
                raise NotCompiled(
                    f"{compiler} makes no library of {self.folder}/*{self.ends}: {error.strerror}"
                ) from None

    def _compile(self, command: Sequence[str], to: Path) -> None:
        """Compile all files in parallel, and link them into the library `to`."""
        objects = [to.with_name(f"{source.stem}.o") for source in self.files]
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            for done in [
                pool.submit(self._run, [*command, "-c", "-o", str(made), str(source)])
                for source, made in zip(self.files, objects, strict=True)
            ]:
                done.result()
        self._run([*command, "-shared", "-o", str(to), *map(str, objects), *self.libraries])

    def _run(self, command: list[str]) -> None:
        compiler, what = command[0], f"{self.folder}/*{self.ends}"
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
        except (OSError, subprocess.TimeoutExpired) as e:
            raise NotCompiled(f"{compiler} does not compile {what}: {e}") from None
        if done.returncode:
            text = done.stderr.splitlines()
            line = next((line for line in text if "error" in line), text[0] if text else f"exit code {done.returncode}")
            raise NotCompiled(f"{compiler} does not compile {what}: {line.strip()}")


def portable(*options: str) -> Callable[[str | None], tuple[str, ...]]:
    """`Sources.options` that are the same on every CPU."""
    return lambda level: (*options, f"-march={level}") if level else options


_loaded: dict[tuple[object, ...], ctypes.CDLL] = {}


def _opened(path: Path) -> ctypes.CDLL:
    """A library that a wheel brings."""
    try:
        return ctypes.CDLL(str(path))
    except OSError as error:
        raise NotCompiled(f"{path} cannot be loaded: {error}") from None


@contextlib.contextmanager
def _progress(what: str) -> Iterator[None]:
    """Says on a terminal that the files are being compiled; erases the line at the end."""
    terminal = sys.stderr.isatty()
    if terminal:
        print(f"compiling {what}", end="", file=sys.stderr, flush=True)
    try:
        yield
    finally:
        if terminal:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def find_compiler() -> str:
    """The path of the C compiler. Raises NotCompiled if there is none."""
    wanted = os.environ.get("CC")
    for name in (wanted,) if wanted else COMPILERS:
        if result := shutil.which(name):
            return result
    looked = f"CC={wanted} is not there" if wanted else f"none of {', '.join(COMPILERS)}"
    raise NotCompiled(f"needs a C compiler once ({looked})")
