"""The memory of a training as the operating system tells it, beside what the program said before it began.

    python -m benchmarks.ram                                     all of it: half an hour
    python -m benchmarks.ram --cases resnet18:8 --disk /scratch  one net, also through a disk
    python -m benchmarks.ram --save                              also writes benchmarks/results/ram-<machine>.*

Each run is a process of its own: it trains some iterations, tests two batches, saves a snapshot and ends. Its largest
resident size is the kernel's figure (`wait4`). The runs of a net are under `liveness`, and under `--ram` at parts of
what liveness took and at the least that is not refused, each without a disk and with one. They take turns, an iteration
each; the ratio is that to the iteration of `liveness` in the same round. Where PyTorch is installed, it trains the same
net beside them, eager and layer by layer (benchmarks/peer.py). A plan may take leaner algorithms; where they are the
same, the snapshots must have the same bytes.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # so that it can also be run as a file

from benchmarks import machine
from minidnn.memory.parts.whole import as_whole, name_by_numbers
from minidnn.program import Algorithm, Op

CASES = "resnet18:8,resnet50:8,vgg16:4,densenet121:8"
PARTS = "70,50"
MIB = 2**20
TESTED = 2  # batches
LEAST = 6  # trials of the least limit: planning for it shows what else is needed
FIELDS = dict(
    base_lr=0.01, weight_decay=5e-4, lr_policy="fixed", seed=1, device="cpu", workers=0, snapshot_prefix="net",
    test_iter=[1], test_interval=1000,
)  # fmt: skip
Given = dict[str, Any]


# ---- a run, in its own process


def ours(given: Given) -> None:
    """Answer "step" and "end" on standard input, for minidnn."""
    from minidnn.memory.budget import RamError
    from minidnn.training.solver import Solver
    from minidnn.zoo import load

    try:
        solver = Solver(load(given.pop("net")), **FIELDS, **given)
    except RamError as error:
        answer(refused=error.smallest, why=str(error))
        return
    with solver:
        a, plan = solver.arrangement, solver.arrangement.schedules["TRAIN"].plan
        answer(
            foreseen=solver.session.ram.total, arena=a.arena, host=a.off_device, disk=a.on_disk, policy=a.policy,
            runs_again=len(plan.order) - len(set(plan.order)), numbers=numbers(plan.algorithm),
        )  # fmt: skip
        for line in sys.stdin:
            if line.strip() == "end":
                break
            answer(seconds=solver.step().seconds)
        solver.test(TESTED)
        saved = solver.save().path
    answer(digest=digest(saved))


def theirs(given: Given) -> None:
    """The same for PyTorch."""
    import torch

    from benchmarks import nets
    from benchmarks.peer import Peer, Trainer, first_weights
    from minidnn.optimizers import SGD
    from minidnn.programs.build import programs
    from minidnn.programs.spec import TrainSpec

    net = nets.found(given["net"], given["batch"])
    train = TrainSpec(SGD(momentum=given["momentum"], weight_decay=FIELDS["weight_decay"]), seed=1)  # type: ignore[arg-type]
    batch = nets.batch_of(programs(net, train, ("TRAIN",))["TRAIN"], nets.GENTLE)
    peer = Peer(net.graph("TRAIN"), first_weights(net), "cpu")
    trainer = Trainer(peer, {t.name: value for t, value in batch.items()}, train, nets.GENTLE, warm=1)
    answer(version=torch.__version__)
    for line in sys.stdin:
        if line.strip() == "end":
            break
        began = perf_counter()
        trainer.step().item()
        answer(seconds=perf_counter() - began)
    answer()


def numbers(algorithm: Mapping[Op, Algorithm]) -> str:
    """A digest of the algorithms as far as the numbers depend on them: those of whole ops, and how sums are parted."""
    found = sorted((op.name, name_by_numbers(op, a)) for op, a in as_whole(algorithm).items() if "[" not in op.name)
    return hashlib.sha256(repr(found).encode()).hexdigest()


def answer(**what: Any) -> None:
    print(json.dumps(what), flush=True)


def digest(path: Path) -> str:
    with open(path, "rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest() if sys.version_info >= (3, 11) else _digest(file)
    path.unlink()
    return found


def _digest(file: Any) -> str:
    found = hashlib.sha256()
    while piece := file.read(MIB):
        found.update(piece)
    return found.hexdigest()


# ---- the runs of a net


@dataclass
class Run:
    """A run and what it answered; sizes are bytes. `resident`: the most that the process had in memory."""

    name: str
    given: Given
    limit: int | None = None
    refused: int | None = None
    told: dict[str, Any] = field(default_factory=dict)
    seconds: list[float] = field(default_factory=list)
    resident: int | None = None
    digest: str | None = None

    def start(self, folder: Path, kind: str = "ours") -> None:
        """Start the process. If the plan is refused, it ends, and `refused` says what would do."""
        command = [sys.executable, "-m", "benchmarks.ram", f"--{kind}", json.dumps(self.given)]
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[1])}
        self.process = subprocess.Popen(
            command, cwd=folder, env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self.told = self._answer()
        if "refused" in self.told:
            self.refused = self.told["refused"]
            self._wait()

    def step(self) -> float:
        seconds = self._ask("step")["seconds"]
        self.seconds.append(seconds)
        return seconds

    def end(self) -> None:
        """Let it save and end."""
        self.digest = self._ask("end").get("digest")
        self.resident = self._wait()

    def _ask(self, what: str) -> dict[str, Any]:
        assert self.process.stdin is not None
        self.process.stdin.write(what + "\n")
        self.process.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.name}: the process ended without an answer, see above")
        return json.loads(line)

    def _wait(self) -> int:
        """The kernel's figure of the most resident bytes, once the process has ended."""
        _, status, usage = os.wait4(self.process.pid, 0)
        self.process.returncode = os.waitstatus_to_exitcode(status)
        if self.process.returncode:
            raise RuntimeError(f"{self.name}: the process ended with status {self.process.returncode}")
        return usage.ru_maxrss * 1024


def runs(net: str, batch: int, args: argparse.Namespace, folder: Path) -> list[Run]:
    """All runs of a net, trained in turns."""
    common = dict(net=net, batch=batch, momentum=args.momentum)
    base = Run("liveness", {**common, "policy": "liveness:p"})
    tell(f"{net}:{batch}, liveness")
    base.start(folder)
    base.step()
    base.end()
    assert base.resident is not None
    found = [Run("liveness", base.given)]
    for disk in (None, args.disk)[: 1 if args.disk is None else 2]:
        more = common if disk is None else {**common, "disk": str(disk)}
        for part in args.parts:
            limit = base.resident * part // 100
            found.append(Run(f"{part} %{' and a disk' if disk else ''}", {**more, "ram": limit}, limit))
        found.append(_least(f"least{' with a disk' if disk else ''}", more, folder))
    started = []
    for run in found:
        tell(f"{net}:{batch}, {run.name}")
        if run.given.get("ram") != 0:
            run.start(folder)
        started += [run] if run.refused is None else []
    if importlib.util.find_spec("torch") is not None:
        found.append(Run("PyTorch, eager", common))
        found[-1].start(folder, "theirs")
        started.append(found[-1])
    for k in range(args.rounds):
        tell(f"{net}:{batch}, round {k + 1} of {args.rounds}")
        for run in started if k % 2 == 0 else reversed(started):
            run.step()
    for run in started:
        tell(f"{net}:{batch}, {run.name}: saving")
        run.end()
    return found


def _least(name: str, given: Given, folder: Path) -> Run:
    """The run within the least limit that is not refused, not started yet."""
    limit = MIB
    for _ in range(LEAST):
        run = Run(name, {**given, "ram": limit}, limit)
        tell(f"{name}: {limit / MIB:.0f} MiB")
        run.start(folder)
        if run.refused is None:
            run.step()
            run.end()
            break
        limit = max(run.refused, limit + MIB)
    return Run(name, {**given, "ram": limit}, limit)


def tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


# ---- the table


def row(net: str, batch: int, run: Run, base: Run) -> dict[str, Any]:
    ratios = [a / b for a, b in zip(run.seconds[1:], base.seconds[1:], strict=False)]
    return {
        "net": net, "batch": batch, "run": run.name, "limit_bytes": run.limit, "refused_bytes": run.refused,
        "foreseen_bytes": run.told.get("foreseen"), "resident_bytes": run.resident,
        "disk_bytes": run.told.get("disk"), "policy": run.told.get("policy"), "runs_again": run.told.get("runs_again"),
        "seconds": median(run.seconds[1:]) if run.seconds[1:] else None,
        "ratio": median(ratios) if ratios else None, "ratio_low": min(ratios, default=None),
        "ratio_high": max(ratios, default=None), "sha256": run.digest, "algorithms_sha256": run.told.get("numbers"),
    }  # fmt: skip


def table(rows: Sequence[dict[str, Any]]) -> str:
    def mib(n: int | None) -> str:
        return "" if n is None else f"{n / MIB:.0f}"

    lines = [
        "| net | run | allowed | foreseen | from outside | off | on disk | s | × liveness | algorithms | sha256 |",
        "|---|---|" + "---:|" * 7 + "---|---|",
    ]
    for r in rows:
        off = ""
        if r["foreseen_bytes"] and r["resident_bytes"]:
            off = f"{r['resident_bytes'] / r['foreseen_bytes'] - 1:+.1%}"
        ratio = "" if r["ratio"] is None else f"{r['ratio']:.2f} ({r['ratio_low']:.2f} to {r['ratio_high']:.2f})"
        if r["refused_bytes"] is not None:
            ratio = f"refused: {mib(r['refused_bytes'])} would do"
        seconds = "" if r["seconds"] is None else f"{r['seconds']:.2f}"
        sizes = [mib(r[name]) for name in ("limit_bytes", "foreseen_bytes", "resident_bytes")]
        cells = [f"{r['net']}, {r['batch']}", r["run"], *sizes, off, mib(r["disk_bytes"] or None), seconds, ratio]
        digests = [(r[name] or "")[:12] for name in ("algorithms_sha256", "sha256")]
        lines.append(f"| {' | '.join([*cells, *digests])} |")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", default=CASES, help=f"NET:BATCH, with commas between them (default: {CASES})")
    parser.add_argument("--parts", default=PARTS, help=f"limits in percent of liveness (default: {PARTS})")
    parser.add_argument("--rounds", type=int, default=6, help="iterations of each run; the first is not timed")
    parser.add_argument("--momentum", type=float, default=0.9)
    parser.add_argument("--disk", type=Path, metavar="DIR", help="a folder on a disk that runs may use, too")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows, in bytes")
    parser.add_argument("--save", action="store_true", help="write benchmarks/results/ram-<machine>.*")
    parser.add_argument("--ours", help=argparse.SUPPRESS)
    parser.add_argument("--theirs", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.ours or args.theirs:
        ours(json.loads(args.ours)) if args.ours else theirs(json.loads(args.theirs))
        return 0
    args.parts = [int(part) for part in args.parts.split(",") if part]
    args.disk = args.disk and args.disk.resolve()
    rows = []
    for case in args.cases.split(","):
        net, _, batch = case.partition(":")
        with tempfile.TemporaryDirectory() as folder:
            found = runs(net, int(batch), args, Path(folder))
        rows += [row(net, int(batch), run, found[0]) for run in found]
        tell(table(rows))
    about = {**machine.described(), "date": str(date.today()), "momentum": args.momentum, "rounds": args.rounds}
    text = "MiB; from outside: the most resident bytes of the process, as the system tells\n\n" + table(rows)
    print(text)
    if args.json:
        args.json.write_text(json.dumps({"machine": about, "rows": rows}, indent=1) + "\n")
    if args.save:
        place = Path(__file__).parent / "results" / f"ram-{machine.slug(machine.cpu())}-{about['cores']}"
        place.with_suffix(".json").write_text(json.dumps({"machine": about, "rows": rows}, indent=1) + "\n")
        command = "python -m benchmarks.ram " + " ".join(sys.argv[1:])
        place.with_suffix(".md").write_text(
            f"`{command}`, {about['date']}, {about['cpu']}, {about['cores']} cores.\n\n{text}\n"
        )
    found = {(r["net"], r["algorithms_sha256"], r["sha256"]) for r in rows if r["algorithms_sha256"]}
    alike = Counter((net, algorithms) for net, algorithms, _ in found)
    differ = sorted({net for (net, _), count in alike.items() if count > 1})
    for net in differ:
        tell(f"{net}: the snapshots differ, with the same algorithms")
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
