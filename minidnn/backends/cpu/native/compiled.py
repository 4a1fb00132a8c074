"""Compiles this folder's C files for this CPU, and loads them as one library.

The system's C compiler runs once; the library is kept in the user's cache. Its file name has a hash of all that decides
its contents: sources, options, the CPU's instruction sets. So the file is never stale, and a later start runs no
compiler. The file is written whole or not at all. If it cannot be loaded, it is compiled again.
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
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from minidnn.files import replacing

SOURCES = Path(__file__).parent
NAME = "minidnn"
OPTIONS = ("-O3", "-march=native", "-fopenmp", "-fno-math-errno", "-fPIC")
COMPILERS = ("cc", "gcc", "clang")  # in the order of search; the environment variable CC names another
SECONDS = 120  # a compiler run that takes longer counts as hung: the slowest file needs a small part of this


class NotCompiled(Exception):
    """Our own kernels cannot be had; the message is one line with the reason."""


def load(cache_dir: Path | None = None) -> ctypes.CDLL:
    """The library of our compiled functions, from the cache or compiled now. `cache_dir`: default: the user's cache
    folder. Raises NotCompiled, with the reason in one line, if there is no usable compiler."""
    path = _path(cache_dir)
    if path.exists():
        with contextlib.suppress(OSError):  # damaged: compiled again below
            return ctypes.CDLL(str(path))
    compiler = _compiler()
    with tempfile.TemporaryDirectory() as folder, _told():
        made = Path(folder) / path.name
        _compile(compiler, made)
        with contextlib.suppress(OSError):  # if the cache cannot be written, the next start compiles again
            path.parent.mkdir(parents=True, exist_ok=True)
            with replacing(path, "wb") as file:
                file.write(made.read_bytes())
        try:
            return ctypes.CDLL(str(made))  # stays mapped after the folder is deleted
        except OSError as e:
            raise NotCompiled(f"what the C compiler made of {SOURCES} cannot be loaded: {e}") from None


@contextlib.contextmanager
def _told() -> Iterator[None]:
    """Says on a terminal that the kernels are being compiled; erases the line at the end."""
    terminal = sys.stderr.isatty()
    if terminal:
        print("compiling the kernels for this CPU, once: some 10 s", end="", file=sys.stderr, flush=True)
    try:
        yield
    finally:
        if terminal:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def _compiler() -> str:
    wanted = os.environ.get("CC")
    for name in (wanted,) if wanted else COMPILERS:
        if found := shutil.which(name):
            return found
    looked = f"CC={wanted} is not there" if wanted else f"none of {', '.join(COMPILERS)}"
    raise NotCompiled(f"needs a C compiler once ({looked})")


def _compile(compiler: str, to: Path) -> None:
    """Compile all sources in parallel, and link them into the library `to`."""
    sources = sorted(SOURCES.glob("*.c"))
    objects = [to.with_name(f"{source.stem}.o") for source in sources]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for done in [
            pool.submit(_run, [compiler, *OPTIONS, "-c", "-o", str(made), str(source)])
            for source, made in zip(sources, objects, strict=True)
        ]:
            done.result()
    _run([compiler, *OPTIONS, "-shared", "-o", str(to), *map(str, objects), "-lm"])


def _run(command: list[str]) -> None:
    compiler, what = command[0], f"{SOURCES}/*.c"
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as e:
        raise NotCompiled(f"{compiler} does not compile {what}: {e}") from None
    if done.returncode:
        said = done.stderr.splitlines()
        line = next((line for line in said if "error" in line), said[0] if said else f"exit code {done.returncode}")
        raise NotCompiled(f"{compiler} does not compile {what}: {line.strip()}")


def _path(cache_dir: Path | None) -> Path:
    if cache_dir is None:
        import platformdirs

        cache_dir = Path(platformdirs.user_cache_dir("minidnn")) / "native"
    files = sorted(SOURCES.glob("*.[ch]"))
    texts = (f"{file.name}\n{file.read_text(encoding='utf-8')}" for file in files)
    parts = [*texts, *OPTIONS, platform.machine(), _instructions()]
    key = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]
    return cache_dir / f"{NAME}-{key}.so"


def _instructions() -> str:
    """The facts of this CPU on which -march=native depends. (Different machines may share a home directory.)"""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return platform.processor()
    of_interest = ("vendor_id", "cpu family", "model\t", "flags", "Features", "CPU part")
    return "\n".join(dict.fromkeys(line for line in lines if line.startswith(of_interest)))
