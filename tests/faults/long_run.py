"""A day's worth of iterations in a few minutes: does a long training keep descriptors, threads, memory and speed?

The digits net with small batches and a snapshot every 1000 iterations, in one process, seen from outside: after each
snapshot that it reports, /proc says what it holds.
"""

from __future__ import annotations

import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from tests.support.paths import MODELS, ROOT

EVERY = 1000


@dataclass(frozen=True)
class Sample:
    iteration: int
    descriptors: int
    threads: int
    kib: int  # resident
    seconds: float  # since the sample before


def samples(folder: Path, iterations: int, batch: int = 8) -> tuple[int, list[Sample]]:
    """(exit code, a sample after each snapshot)"""
    text = (MODELS / "digits_solver.yaml").read_text()
    text = text.replace("net: ", f"net: {MODELS}/").replace("display: 50", "display: 0")
    text = text.replace("test_interval: 50 ", f"test_interval: {EVERY} ")
    (folder / "long.yaml").write_text(f"{text}\nsnapshot: {EVERY}\n")
    words = ["train", "long.yaml", "--max-iter", str(iterations), "--batch", str(batch)]
    words += ["--snapshot-prefix", str(folder / "long" / "run")]
    command = [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r}); import minidnn.cli.main as m; "
               f"raise SystemExit(m.main({words!r}))"]  # fmt: skip
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True)
    assert process.stdout
    found: list[Sample] = []
    before = time.perf_counter()
    for line in process.stdout:
        if "Snapshotting to" in line and (seen := _held(process.pid)):
            now = time.perf_counter()
            found.append(Sample((len(found) + 1) * EVERY, *seen, now - before))
            before = now
            for path in (folder / "long").glob(f"run_iter_{(len(found) - 1) * EVERY}.safetensors"):
                path.unlink()
    process.stdout.close()
    return process.wait(), found


def _held(pid: int) -> tuple[int, int, int] | None:
    """(descriptors, threads, resident KiB) of a process; None if it has just ended."""
    try:
        proc = Path(f"/proc/{pid}")
        resident = next(line for line in (proc / "status").read_text().splitlines() if line.startswith("VmRSS"))
        return len(list((proc / "fd").iterdir())), len(list((proc / "task").iterdir())), int(resident.split()[1])
    except (OSError, StopIteration):
        return None


def tenths(found: list[Sample]) -> list[tuple[str, Sample]]:
    """The medians of the first tenth, one in the middle and the last tenth."""
    n = max(1, len(found) // 10)
    middle = (len(found) - n) // 2
    parts = {"first": found[:n], "middle": found[middle : middle + n], "last": found[-n:]}
    return [
        (name, Sample(some[-1].iteration, *(_median(some, what) for what in ("descriptors", "threads", "kib")),
                      median(s.seconds for s in some)))
        for name, some in parts.items()
    ]  # fmt: skip


def _median(some: list[Sample], what: str) -> int:
    return round(median(getattr(s, what) for s in some))


def grown(found: list[Sample]) -> list[str]:
    """What is not flat: any more descriptors or threads in the last tenth than in the first, more than 1 MiB. Speed is
    shown only: it depends on what else the machine does."""
    first, _, last = (sample for _, sample in tenths(found))
    problems = [
        f"{last_value - value} more {what}"
        for what in ("descriptors", "threads")
        if (last_value := getattr(last, what)) > (value := getattr(first, what))
    ]
    return problems + ([f"{last.kib - first.kib} KiB more"] if last.kib - first.kib > 1024 else [])
