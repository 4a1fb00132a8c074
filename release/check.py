"""Installs the wheel for Linux on each Python as a stranger does, and runs `minidnn demo` there.

    python release/check.py [--python PATH ...]     (`make wheels-check`, which makes the wheel first)

Each Python gets an environment, a home and a working folder, all empty. The PATH has the environment's own programs
and no others, so there is no compiler. pip takes wheels alone. First the wheel is installed by itself, then with its
extra `cpu`. The table says for each what was installed, in seconds and bytes, and what `minidnn demo` took. A row is
good if the demo succeeds, nothing was compiled, our kernels are those of the wheel wherever oneDNN is there, and the
snapshot has the bytes of the other Pythons'.

A Python is looked for on the PATH, among pyenv's and among uv's. Of one that is not here pip is asked whether all
dependencies have wheels for it. The exit code is 1 if any row is bad.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from time import perf_counter

from minidnn import sizes
from minidnn.report import table

ROOT = Path(__file__).resolve().parents[1]
PYTHONS = ("3.10", "3.11", "3.12", "3.13", "3.14")
EXTRAS = ("", "[cpu]")
SNAPSHOT = Path("minidnn-demo", "vdnn_all_iter_250.safetensors")
KEPT = ("PIP_", "SSL_CERT", "REQUESTS_CA")  # variables of the environment that pip needs to reach an index
# asks for the libraries of the package that is installed (-I), not of a checkout in the working folder
DEVICE = ("-I", "-c", "from minidnn.backends import open_device; print(open_device('cpu').found)")
GOOD = "works"


@dataclass(frozen=True)
class Row:
    """What came of one installation. Seconds and bytes are None where it did not come to that.

    nbytes: that the installation added to the environment
    digest: of the snapshot that the demo left"""

    python: str
    extra: str
    verdict: str
    install: float | None = None
    nbytes: int | None = None
    demo: float | None = None
    digest: str | None = None


class Bad(Exception):
    """A step failed; the message is its last line."""


# ---- Pythons


def find(version: str, given: Sequence[str] = ()) -> str | None:
    """A Python of this version, as 3.12, that runs: one of those given, on the PATH, pyenv's or uv's."""
    homes = (
        Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions"),
        Path.home() / ".local/share/uv/python",
    )
    there = [path for home in homes for path in home.glob(f"*{version}.*/bin/python{version}")]
    for path in (*given, shutil.which(f"python{version}"), *sorted(map(str, there))):
        if path is not None and _version(path) == version:
            return path
    return None


def _version(python: str) -> str | None:
    """The version of a Python, as 3.12; None if it does not run, as pyenv's shim of one that is not chosen."""
    try:
        return run([python, "-c", "import ensurepip, sys, venv; print('%d.%d' % sys.version_info[:2])"])[1]
    except (Bad, OSError):
        return None


# ---- one Python


def tried(version: str, python: str, wheel: Path) -> Iterator[Row]:
    """Install the wheel in an empty environment, by itself and with its extra, and run the demo after each."""
    with tempfile.TemporaryDirectory(prefix="minidnn-check-") as name:
        folder = Path(name)
        for extra in EXTRAS:
            (folder / f"home{extra}" / "work").mkdir(parents=True)
        try:
            run([python, "-m", "venv", folder / "venv"])
            before = _size(folder / "venv")
        except Bad as error:
            yield Row(version, EXTRAS[0], f"no environment: {error}")
            return
        for extra in EXTRAS:
            row = _installed(Row(version, extra, GOOD), folder, wheel)
            yield replace(row, nbytes=row.nbytes and row.nbytes - before)


def _installed(row: Row, folder: Path, wheel: Path) -> Row:
    home, programs = folder / f"home{row.extra}", folder / "venv" / "bin"
    env = surroundings(home, programs)
    pip = [programs / "python", "-m", "pip", "install", "--quiet", "--no-cache-dir", "--only-binary=:all:"]
    try:
        install, _ = run([*pip, f"{wheel}{row.extra}"], env)
        row = replace(row, install=install, nbytes=_size(folder / "venv"))
        demo, _ = run([programs / "minidnn", "demo"], env, home / "work")
        row = replace(row, demo=demo, digest=sha256((home / "work" / SNAPSHOT).read_bytes()).hexdigest())
        _, found = run([programs / "python", *DEVICE], env)
    except Bad as error:
        return replace(row, verdict=str(error))
    return replace(row, verdict=judged(found, home, bool(row.extra)))


def judged(found: str, home: Path, fast: bool) -> str:
    """The verdict on a demo that has succeeded.

    found: what the device says of its libraries
    home:  the folder that a cache would be in
    fast:  whether oneDNN was asked for"""
    if compiled := list(home.rglob("minidnn-*.so")):
        return f"compiled {len(compiled)} libraries"
    if fast and "our kernels came with the package" not in found:
        return f"without the wheel's kernels: {found}"
    return GOOD


def surroundings(home: Path, programs: Path) -> dict[str, str]:
    """The variables of a stranger's environment: an empty home, and no programs but these."""
    kept = {
        name: value for name, value in os.environ.items() if name.startswith(KEPT) or name.lower().endswith("_proxy")
    }
    return {**kept, "HOME": str(home), "PATH": str(programs), "LC_ALL": "C.UTF-8"}


def run(
    words: Sequence[str | Path], env: Mapping[str, str] | None = None, folder: Path | None = None
) -> tuple[float, str]:
    """The seconds of a command, and what it printed. Raises Bad with its last line if it fails."""
    began = perf_counter()
    done = subprocess.run(words, env=env, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = (done.stderr.strip() or done.stdout.strip() or f"exit code {done.returncode}").splitlines()
        raise Bad(lines[-1])
    return perf_counter() - began, done.stdout.strip()


def _size(folder: Path) -> int:
    return sum(path.lstat().st_size for path in folder.rglob("*") if path.is_file())


def absent(version: str, wheel: Path) -> Row:
    """The row of a Python that is not here: whether all dependencies have wheels for it."""
    with tempfile.TemporaryDirectory() as folder:
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed", "--target", folder]
        try:
            run([*pip, "--only-binary=:all:", "--python-version", version, f"{wheel}[cpu]"])
        except Bad as error:
            return Row(version, "", f"no such Python here, and {error}")
    return Row(version, "", "no such Python here; all dependencies have wheels for it")


# ---- all of them


def alike(rows: Sequence[Row]) -> list[Row]:
    """The rows, where one whose snapshot has other bytes than the first of its extra is told so."""
    first: dict[str, Row] = {}
    result = []
    for row in rows:
        if row.digest is not None:
            other = first.setdefault(row.extra, row)
            if row.digest != other.digest and row.verdict == GOOD:
                row = replace(row, verdict=f"another snapshot than Python {other.python}'s")
        result.append(row)
    return result


def bad(row: Row) -> bool:
    return row.verdict != GOOD and not row.verdict.endswith("have wheels for it")


def show(rows: Sequence[Row], wheel: Path) -> None:
    headings = ["Python", "installed", "size", "install", "demo", "what"]
    lines = [
        [row.python, f"minidnn{row.extra}", table.size(row.nbytes), table.duration(row.install),
         table.duration(row.demo), row.verdict] for row in rows
    ]  # fmt: skip
    table.plain(headings, lines, f"{wheel.name}, {sizes.text(wheel.stat().st_size)}")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    text = "a Python to take for its version (may be given several times)"
    parser.add_argument("--python", action="append", default=[], metavar="PATH", help=text)
    given = parser.parse_args().python
    wheels = list((ROOT / "dist").glob("*-manylinux_*.whl"))
    if len(wheels) != 1:
        print(
            f"release/check.py: expected one wheel for Linux in dist/, got {len(wheels)}: make wheels", file=sys.stderr
        )
        return 2
    rows: list[Row] = []
    for version in PYTHONS:
        python = find(version, given)
        print(f"Python {version}: {python or 'not here'}", flush=True)
        rows += tried(version, python, wheels[0]) if python else [absent(version, wheels[0])]
    rows = alike(rows)
    show(rows, wheels[0])
    return int(any(map(bad, rows)))


if __name__ == "__main__":
    sys.exit(main())
