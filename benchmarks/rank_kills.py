"""Ranks that are killed at random moments: how soon do all end, and does the run go on to the same bytes?

    python -m benchmarks.rank_kills                       20 kills of ranks of digits_lenet, on 2 and on 4 ranks in turn
    python -m benchmarks.rank_kills --kills 4 --json

A run of some hundred iterations takes snapshots. After a random time (of a fixed seed) a process of a random rank gets
SIGKILL. The time counts until no process of the run is left. Then the run goes on by `--resume latest`, on the other
number of ranks, and its last snapshot has to have the bytes of a run that nobody disturbed.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from time import monotonic, sleep
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.progress import watched
from minidnn.cli.options import positive

ROOT = Path(__file__).resolve().parents[1]
GOAL = 10.0  # seconds
SOLVER = (ROOT / "models" / "digits_solver.yaml").read_text()
ITERATIONS = 240


def command(ranks: int, *options: str) -> list[str]:
    train = [sys.executable, "-m", "minidnn", "train", "solver.yaml", "--micro-batches", "4", *options]
    return ["mpiexec", "-n", str(ranks), *train]


def below(root: int) -> list[int]:
    """The processes below this one, in the order of their numbers."""
    listed = subprocess.run(["ps", "-eo", "pid=,ppid="], capture_output=True, text=True, check=True).stdout.split()
    parents = dict(zip(map(int, listed[::2]), map(int, listed[1::2]), strict=True))
    found = {root}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return sorted(found - {root})


def trained(folder: Path, ranks: int, *options: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    return subprocess.run(command(ranks, *options), cwd=folder, env=environment, capture_output=True, text=True)


def killed(folder: Path, ranks: int, after: float, choice: random.Random, whole: bytes) -> dict[str, Any] | None:
    """Kill a process of a run, and let the run go on. None: the run was over."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    run = subprocess.Popen(command(ranks), cwd=folder, env=environment, stdout=subprocess.PIPE,
                           stderr=subprocess.STDOUT, text=True)  # fmt: skip
    sleep(after)
    victims = [pid for pid in below(run.pid) if "minidnn" in _words(pid)]
    if not victims:
        run.communicate()
        return None
    all_, victim = below(run.pid), choice.choice(victims)
    began = monotonic()
    os.kill(victim, signal.SIGKILL)
    told, _ = run.communicate()
    while any(_words(pid) for pid in all_):
        if monotonic() - began > 60:
            break
        sleep(0.01)
    seconds = monotonic() - began
    others = 6 - ranks
    on = trained(folder, others, "--resume", "latest")
    last = folder / f"solver_iter_{ITERATIONS}.safetensors"
    lines = [line for line in told.splitlines() if line.startswith("minidnn:")]
    return {
        "ranks": ranks, "after_seconds": after, "seconds_to_end": seconds, "told": lines,
        "resumed_on": others, "equal": on.returncode == 0 and last.is_file() and last.read_bytes() == whole,
        **({} if on.returncode == 0 else {"resume_said": (on.stdout + on.stderr)[-400:]}),
    }  # fmt: skip


def _words(pid: int) -> str:
    """A living process's command; empty for one that has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser("benchmarks/rank_kills.py", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--kills", type=positive, default=20, metavar="N", help="(default: 20)")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="of the moments (default: 1)")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    args = parser.parse_args(argv)
    if shutil.which("mpiexec") is None:
        parser.error("there is no mpiexec on the PATH: pip install 'minidnn[mpi]'")
    choice, rows = random.Random(args.seed), []
    with tempfile.TemporaryDirectory() as name, watched() as (_, say):
        folder = Path(name)
        shutil.copy(ROOT / "models" / "digits_lenet.yaml", folder)
        (folder / "solver.yaml").write_text(
            SOLVER.replace("max_iter: 250", f"max_iter: {ITERATIONS}\nsnapshot: 20\nsnapshot_prefix: solver")
            .replace("snapshot_prefix: out/digits", "")
        )  # fmt: skip
        say(0, args.kills + 1, "a run that nobody disturbs")
        began = monotonic()
        done = trained(folder, 2)
        if done.returncode:
            raise SystemExit(done.stdout + done.stderr)
        lasts = dict.fromkeys((2, 4), monotonic() - began)  # of a run on so many ranks
        whole = (folder / f"solver_iter_{ITERATIONS}.safetensors").read_bytes()
        while len(rows) < args.kills:
            for path in folder.glob("solver_iter_*"):
                path.unlink()
            say(len(rows) + 1, args.kills + 1, f"kill {len(rows) + 1}")
            ranks = 2 if len(rows) % 2 == 0 else 4
            after = choice.uniform(0.1, 0.9) * lasts[ranks]
            row = killed(folder, ranks, after, choice, whole)
            if row is None:
                lasts[ranks] = after  # the machine is less busy than it was
            else:
                rows.append(row)
    if args.json:
        print(json.dumps({"rows": rows}, indent=2))
    else:
        table = Table("ranks", "killed after", "all ended within", "resumed on", "the same bytes", box=None)
        for row in rows:
            table.add_row(str(row["ranks"]), f"{row['after_seconds']:.1f} s", f"{row['seconds_to_end']:.2f} s",
                          str(row["resumed_on"]), "yes" if row["equal"] else "no")  # fmt: skip
        Console().print(table)
    return int(any(not row["equal"] or row["seconds_to_end"] > GOAL for row in rows))


if __name__ == "__main__":
    sys.exit(main())
