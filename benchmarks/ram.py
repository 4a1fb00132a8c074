"""Resident memory of a training, by phase, beside what the program said before it began.

    python benchmarks/ram.py [--json FILE]

Each case is a process of its own: it builds the solver, trains three steps, saves a snapshot, and begins again from it.
A thread reads the process's resident bytes every millisecond. "over" is the peak minus the plan's bytes.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import threading
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from minidnn.memory.execution.host import resident_memory
from minidnn.training.solver import Solver

MODELS = Path(__file__).parent.parent / "models"
CASES = [
    ("lenet", 64, "liveness:p", None),
    ("resnet50", 8, "vdnn_all", "700MiB"),
    ("resnet50", 8, "baseline:p", None),
    ("vgg16", 4, "vdnn_all", "1600MiB"),
]
MIB = 2**20


@dataclass
class Row:
    """Bytes; `phases` has the most that were resident in each."""

    model: str
    batch: int
    policy: str
    budget: str | None
    planned: int
    said: int
    phases: dict[str, int]

    @property
    def peak(self) -> int:
        return max(self.phases.values())


class Watch:
    """Reads this process's resident bytes on a thread, and keeps the most of each phase."""

    def __init__(self) -> None:
        self.phase, self.most = "start", {"start": 0}
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def _look(self) -> None:
        while not self._end.wait(0.001):
            self._note()

    def _note(self) -> None:
        self.most[self.phase] = max(self.most[self.phase], resident_memory())

    def enter(self, phase: str) -> None:
        self._note()
        self.most[phase] = 0
        self.phase = phase

    def close(self) -> None:
        self._note()
        self._end.set()
        self._thread.join()


def measure(model: str, batch: int, policy: str, budget: str | None) -> Row:
    """One case, in this process and in a folder of its own."""
    solver = MODELS / f"{model}_solver.yaml"
    watch = Watch()

    def opened(**more: object) -> Solver:
        return Solver(solver, batch=batch, policy=policy, budget=budget, snapshot_prefix="ram", **more)

    with opened() as first:
        watch.enter("steps")
        first.step(3)
        watch.enter("save")
        saved = first.save().path
        ram = first.session.ram
    del first
    watch.enter("resume")
    with opened(resume=saved) as second:
        second.step(1)
    watch.close()
    return Row(model, batch, policy, budget, ram.plan, ram.total, watch.most)


def write_mnist(folder: Path, count: int = 1000) -> None:
    """Files in MNIST's format with random images: lenet reads such a folder."""
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    for split in ("train", "t10k"):
        images, labels = rng.integers(0, 256, (count, 28, 28), np.uint8), rng.integers(0, 10, count, np.uint8)
        for kind, array in (("images-idx3", images), ("labels-idx1", labels)):
            axes = b"".join(n.to_bytes(4, "big") for n in array.shape)
            (folder / f"{split}-{kind}-ubyte").write_bytes(bytes([0, 0, 8, array.ndim]) + axes + array.tobytes())


def table(rows: list[Row]) -> str:
    lines = ["| case | planned | start | steps | save | resume | peak | said | peak − planned |", "|---|" + "---:|" * 8]
    for r in rows:
        case = f"{r.model} b{r.batch}, {r.policy}" + (f", {r.budget}" if r.budget else "")
        phases = (r.phases[name] for name in ("start", "steps", "save", "resume"))
        sizes = (f"{n / MIB:.0f}" for n in (r.planned, *phases, r.peak, r.said, r.peak - r.planned))
        lines.append(f"| {case} | " + " | ".join(sizes) + " |")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows, in bytes")
    parser.add_argument("--case", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.case is not None:
        print(json.dumps(asdict(measure(*CASES[args.case]))))
        return 0
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        write_mnist(Path(folder) / "data" / "mnist")
        for number in range(len(CASES)):
            command = [sys.executable, __file__, "--case", str(number)]
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
            rows.append(Row(**json.loads(done.stdout)))
            print(table(rows[-1:]).splitlines()[-1], file=sys.stderr)
    print("MiB of resident memory; planned: arena and host's part\n\n" + table(rows))
    if args.json:
        args.json.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
