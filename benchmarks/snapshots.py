"""The snapshots that all policies end with: with the same algorithms and the same parts they have to be the same file.

`python -m benchmarks.same_bytes --suffixes` asks this of each kind of CPU, in a process of its own, and prints a table.

Each policy is run twice with each suffix: without a budget, and under the least budget that it keeps. Freed bytes are
filled with NaN, and copies are late at random. A suffix with ":m" or ":p" names the algorithms: then the snapshot has
to be baseline's. Otherwise a policy chooses algorithms by its budget: then it has to be that of baseline with the same
ones. Baseline in parts has to end as a net of whole ops does whose algorithms take so many rows at a time.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_info

from benchmarks.cpu import Wrong
from benchmarks.progress import watched
from benchmarks.turns import Tell
from minidnn import Solver
from minidnn.backends import open_device
from minidnn.backends.cpu import CpuDevice
from minidnn.costs import Costs, estimate
from minidnn.memory.budget import BudgetError
from minidnn.memory.execution.device import Device
from minidnn.memory.policies import AT, CHOOSING, POLICIES
from minidnn.memory.policies.papers.poet import NoPlan
from minidnn.memory.schedule import Arrangement
from minidnn.nets.net import Net
from minidnn.report import table
from minidnn.training.comparison import restricted

NET = Path(__file__).parents[1] / "tests" / "support" / "nets" / "blocks.yaml"
SUFFIXES = ":m", ":p", ":m@2", ":p@2", ":m@8", ":p@8", "@2", "@8"
DEVICES = "cpu", "reference"
# Kinds of CPU by the names of OpenBLAS's kernels for them -> what oneDNN may use there.
ISA = {"Sandybridge": "AVX", "Haswell": "AVX2", "Zen": "AVX2", "SkylakeX": "AVX512_CORE"}
CORES = "Sandybridge", "Haswell", "SkylakeX"
BASELINE = "baseline"
STEPS = 3
DELAYS = 1e-3  # seconds by which a copy is delayed at most
Row = dict[str, Any]


@dataclass
class Trainings:
    """Trainings of one net on one device that differ in their policy alone."""

    net: Net
    device: Device
    ends: dict[Any, str] = field(default_factory=dict)  # {suffix, or algorithms: the digest of baseline's snapshot}

    def rows(self, suffixes: Iterable[str], tell: Tell) -> Iterator[Row]:
        """A row for each policy with each suffix that it takes."""
        for suffix in suffixes:
            names = [*POLICIES, *(() if ":" in suffix else CHOOSING)]
            for i, name in enumerate(names):
                tell(i, len(names), f"{self.device.name}: {name}{suffix}")
                yield {"device": self.device.name, "policy": name, "suffix": suffix, **self._row(name, suffix)}

    def _row(self, name: str, suffix: str) -> Row:
        try:
            compared = list(self._compared(name, suffix))
        except NoPlan as refusal:
            return {"files": 0, "different": 0, "same": True, "why": str(refusal)}
        different = [budget for budget, same in compared if not same]
        return {"files": len(compared), "different": len(different), "same": not different, "budgets": different}

    def _compared(self, name: str, suffix: str) -> Iterator[tuple[int | None, bool]]:
        """(a budget, whether the policy's snapshot under it is the one that it has to be)"""
        for budget in (None, self._least(name + suffix)):
            digest, arrangement = self._trained(name + suffix, budget)
            named = suffix.partition(AT)[0] in (":m", ":p") and name != BASELINE
            yield budget, digest == (self._baseline(suffix) if named else self._baseline_with(arrangement))

    def _least(self, policy: str) -> int:
        """The least budget that the policy keeps, in bytes."""
        try:
            self._trained(policy, 1)
        except BudgetError as refused:
            return refused.smallest
        raise AssertionError(f"{policy} trains in one byte")

    def _baseline(self, suffix: str) -> str:
        if suffix not in self.ends:
            self.ends[suffix], _ = self._trained(BASELINE + suffix)
        return self.ends[suffix]

    def _baseline_with(self, arrangement: Arrangement) -> str:
        """The digest of the snapshot that baseline ends with, its ops as a whole, with these algorithms."""
        costs = restricted(estimate(self.device), arrangement)
        assert costs is not None
        schedule = arrangement.schedules["TRAIN"]
        key = schedule.program.parts, tuple((op.name, a) for op, a in schedule.plan.algorithm.items())
        if key not in self.ends:
            self.ends[key], _ = self._trained(f"{BASELINE}:p", costs=costs)
        return self.ends[key]

    def _trained(self, policy: str, budget: int | None = None, costs: Costs | None = None) -> tuple[str, Arrangement]:
        """(a digest of the snapshot after some steps on noise, the plan)"""
        random = np.random.default_rng(7)
        data = random.standard_normal((24, 3, 12, 12), np.float32), random.integers(0, 5, 24).astype(np.int32)
        with (
            tempfile.TemporaryDirectory() as folder,
            Solver(
                self.net, policy=policy, budget=budget, costs=costs, device=self.device, seed=3, data=data,
                debug=True, delays=DELAYS, base_lr=0.02, momentum=0.9, weight_decay=5e-4, lr_policy="fixed", max_iter=9,
            ) as solver,
        ):  # fmt: skip
            solver.step(STEPS)
            file = solver.save(Path(folder) / "end").path
            return hashlib.sha256(file.read_bytes()).hexdigest(), solver.arrangement


def rows(suffixes: Iterable[str], devices: Iterable[str], threads: int, tell: Tell) -> Iterator[Row]:
    """The rows of these devices, with the kernels of the CPU that this process takes."""
    net = Net.from_file(NET)
    for name in devices:
        yield from Trainings(net, CpuDevice(threads) if name == "cpu" else open_device(name)).rows(suffixes, tell)


def of_core(core: str, suffixes: Sequence[str], devices: Sequence[str], threads: int) -> list[Row]:
    """The rows with the kernels for this kind of CPU, from a process of its own. Raises Wrong if these do not run."""
    if core not in ISA:
        raise Wrong(f"{core!r}: expected one of {', '.join(ISA)}")
    given = {"OPENBLAS_CORETYPE": core, "ONEDNN_MAX_CPU_ISA": ISA[core]}
    command = [sys.executable, "-m", "benchmarks.snapshots", core, ",".join(suffixes), ",".join(devices), str(threads)]
    done = subprocess.run(command, env={**os.environ, **given}, cwd=NET.parents[3], stdout=subprocess.PIPE, text=True)
    if done.returncode:
        raise Wrong(f"the trainings with the kernels for {core} ended with {done.returncode}")
    return [{"core": core, **row} for row in json.loads(done.stdout)]


def show(found: Sequence[Row]) -> None:
    """A table for each device: of each policy and suffix the number of files, and how many differ."""
    for device in dict.fromkeys(row["device"] for row in found):
        own = [row for row in found if row["device"] == device]
        suffixes = list(dict.fromkeys(row["suffix"] for row in own))
        lines = [
            [policy, *(_cell([r for r in own if (r["policy"], r["suffix"]) == (policy, s)]) for s in suffixes)]
            for policy in dict.fromkeys(row["policy"] for row in own)
        ]
        cores = ", ".join(dict.fromkeys(row["core"] for row in own))
        table.plain(["policy", *suffixes], lines, f"{device}, with the kernels for {cores}: files compared")
    for why in dict.fromkeys(f"{row['suffix']}: {row['why']}" for row in found if "why" in row):
        print(why)
    files, different = (sum(row[name] for row in found) for name in ("files", "different"))
    print(f"{files} snapshots compared, {different} differ")


def _cell(own: Sequence[Row]) -> str:
    files, different = (sum(row[name] for row in own) for name in ("files", "different"))
    return f"{different} of {files} differ" if different else str(files or "–")


def _taken() -> str:
    """The kind of CPU for which OpenBLAS has chosen its kernels here."""
    return next((one["architecture"] for one in threadpool_info() if one["internal_api"] == "openblas"), "no OpenBLAS")


def main(core: str, suffixes: str, devices: str, threads: str) -> int:
    if _taken() != core:
        print(f"benchmarks/snapshots.py: asked for the kernels for {core}, got {_taken()}", file=sys.stderr)
        return 2
    with watched() as (_, say):

        def tell(done: int, of: int, text: str) -> None:
            say(done, of, f"{core}, {text}")

        json.dump(list(rows(suffixes.split(","), devices.split(","), int(threads), tell)), sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
