"""MONeT's published overheads beside ours: ResNet-50 at batch 184 and GoogLeNet at batch 320, at its memory budgets.

    python -m benchmarks.monet                              all: some minutes
    python -m benchmarks.monet --networks resnet50          one net
    python -m benchmarks.monet --no-fusion                  of programs whose ops are not fused
    python -m benchmarks.monet --save                       also writes benchmarks/results/monet-<machine>.*

MONeT's figures were measured by its authors; they are read from the README of github.com/utsaslab/MONeT (May 2021). It
chooses what runs again and by which algorithm; nothing leaves its device. Ours are foreseen: steps are simulated on
the profile titan_x, as the cuda backend fuses them. Each overhead is over the step that plans nothing: PyTorch's there,
liveness:p here. Budgets are compared twice: at the same part of that step's memory, and at the same bytes.

"Joint" is `best`. "Re-runs alone" is the same planner where no tensor may leave for the host. The policies that copy
nothing are its candidates. The inputs may still be dropped and read from the host again. Each has its bound, which no
plan can go below. PyTorch fuses nothing: --no-fusion compares with the program that has every BatchNorm and ReLU as an
op of its own, which may run again alone.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # so that it can also be run as a file

from benchmarks import machine
from benchmarks.gaps import WHOLE, Row, planned, save, train
from minidnn.costs import Costs, profile
from minidnn.memory.budget import BudgetError
from minidnn.memory.execution.simulator import simulate
from minidnn.memory.joint.bound import LowerBound
from minidnn.memory.joint.index import SMALL, Index
from minidnn.memory.joint.planner import Planner
from minidnn.memory.lowering.lower import lower
from minidnn.memory.lowering.placement import place
from minidnn.memory.plan import complete
from minidnn.memory.planning import arrange
from minidnn.memory.policies import BUDGETED, find
from minidnn.memory.policies.ours.best import FINE
from minidnn.memory.policies.shared import kept
from minidnn.memory.proof.verify import verify_all
from minidnn.memory.schedule import Schedule
from minidnn.program import Program
from minidnn.programs.fusion import as_cuda
from minidnn.report import table

GB = 10**9
GPU = "titan_x"
COPY_NOTHING = "liveness", "recompute_cheap", "sqrt_n", "recompute_all"
ALONE, JOINT = 1.1, 0.5  # the goals: our overhead in multiples of MONeT's


@dataclass(frozen=True)
class Published:
    """A table of MONeT's README.

    batch:    images
    whole:    GB that PyTorch takes
    overhead: {GB that MONeT takes: % of PyTorch's step}
    """

    batch: int
    whole: float
    overhead: dict[float, float]


MONET = {
    "resnet50": Published(184, 15.06, {10.01: 3.22, 9.01: 4.68, 8.01: 5.56, 6.99: 7.28, 6.0: 9.31, 4.99: 11.95}),
    "googlenet": Published(320, 14.93, {9.98: 7.13, 8.99: 7.87, 8.01: 8.44, 7.02: 9.71, 6.01: 12.14, 4.99: 15.77}),
}


class Ours:
    """Plans of one program, with their bounds.

    copies: whether tensors may leave for the host; if so the plans are those of `best`
    """

    def __init__(self, program: Program, costs: Costs, copies: bool) -> None:
        self.program, self.costs, self.copies = program, costs, copies
        self.bound = LowerBound(Index(program, costs, copies=copies))

    def at(self, budget: int) -> tuple[float | None, float | None]:
        """Seconds of the bound and of a proved plan, at a budget in bytes. None: the bound excludes it; no plan was
        found."""
        bound = self.bound.closest(budget)
        if bound is None:
            return None, None
        schedule = self._joint(budget) if self.copies else self._alone(budget)
        return bound.seconds, None if schedule is None else simulate(schedule, self.costs).seconds

    def _joint(self, budget: int) -> Schedule | None:
        try:
            return arrange([self.program], BUDGETED, self.costs, budget).schedules[self.program.name]
        except BudgetError:
            return None

    def _alone(self, budget: int) -> Schedule | None:
        """The quickest of the planner's plan and of the policies' that copy nothing, as `best` takes it."""
        planners = (Planner(self.program, self.costs, small, copies=False) for small in (SMALL, FINE))
        found = next((found for planner in planners if (found := planner.within(budget)) is not None), None)
        plans = [] if found is None else [found.plan]
        plans += [find(name, budgeted=True)(self.program, self.costs, budget) for name in COPY_NOTHING]
        listings = (lower(self.program, complete(self.program, self.costs, plan)) for plan in plans)
        placed = [schedule for x in listings if (schedule := place(x, enough=budget)).arena <= budget]
        if not placed:
            return None
        quickest = min(placed, key=lambda schedule: simulate(schedule, self.costs).seconds)
        verify_all([quickest], budget)
        out = [t.tensor.name for t in quickest.plan.offloads if t.offload_at is not None and t.prefetch_at is not None]
        assert not out, f"{out} leave the device"
        return quickest


def rows(network: str, fused: bool) -> Iterator[Row]:
    published = MONET[network]
    program, costs = train(network, published.batch, as_cuda if fused else None), profile(GPU)
    found = planned(program, WHOLE, costs, 1 << 62)
    assert found is not None
    seconds, whole = found.seconds, found.arena
    ways = {"alone": Ours(program, costs, copies=False), "joint": Ours(program, costs, copies=True)}
    for by in ("part", "bytes"):
        for gb, theirs in published.overhead.items():
            budget = int(whole * gb / published.whole if by == "part" else gb * GB)
            row: Row = {
                "network": network, "batch": published.batch, "by": by, "monet_gb": gb, "budget_bytes": budget,
                "whole_bytes": whole, "whole_seconds": seconds, "monet_percent": theirs,
            }  # fmt: skip
            begin = time.process_time()
            for way, ours in ways.items():
                for name, taken in zip((f"{way}_bound_percent", f"{way}_percent"), ours.at(budget), strict=True):
                    row[name] = None if taken is None else 100 * (taken / seconds - 1)
            yield row | {"cpu_seconds": time.process_time() - begin}


EXCLUDED = "no, nor can any plan of ops as a whole"


def reached(row: Row, way: str, part: float) -> str:
    """Whether the overhead is at most `part` of MONeT's; whether the bound leaves that possible where it is not."""
    goal, ours, bound = part * row["monet_percent"], row[f"{way}_percent"], row[f"{way}_bound_percent"]
    if ours is not None and ours <= goal:
        return "yes"
    return "no" if bound is not None and bound <= goal else EXCLUDED


HEADINGS = [
    "net", "budget", "of whole", "MONeT, %", "re-runs alone, %", "bound, %", f"<= {ALONE:g} x", "joint, %", "bound, %",
    f"<= {JOINT:g} x",
]  # fmt: skip


def cells(r: Row) -> list[str]:
    def percent(name: str) -> str:
        return "–" if r[name] is None else f"{r[name]:.2f}"

    name = f"{r['network']} b{r['batch']} by {r['by']}"
    line = [name, f"{r['budget_bytes'] / GB:.2f} GB", f"{r['budget_bytes'] / r['whole_bytes']:.1%}"]
    line.append(percent("monet_percent"))
    for way, part in (("alone", ALONE), ("joint", JOINT)):
        line += [percent(f"{way}_percent"), percent(f"{way}_bound_percent"), reached(r, way, part)]
    return line


def summary(all_rows: Sequence[Row]) -> list[str]:
    told = []
    for way, name, part in (("alone", "re-runs alone", ALONE), ("joint", "joint", JOINT)):
        answers = [reached(r, way, part) for r in all_rows]
        told.append(
            f"{name} at most {part:g} x MONeT's overhead: {answers.count('yes')} of {len(answers)} budgets; "
            f"{answers.count(EXCLUDED)} more are excluded by the bound"
        )
    return told


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--networks", default=",".join(MONET), help="NET,...: " + ", ".join(MONET))
    parser.add_argument("--no-fusion", action="store_true", help="every layer's ops apart, as PyTorch runs them")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument("--save", action="store_true", help="write the results to benchmarks/results/")
    args = parser.parse_args(argv)
    networks = args.networks.split(",")
    if unknown := [name for name in networks if name not in MONET]:
        parser.error(f"MONeT's table of {unknown[0]} is not here; there are {', '.join(MONET)}")
    kept.KEEPS = False  # a plan from the cache would take no time
    all_rows: list[Row] = []
    for name in networks:
        for row in rows(name, not args.no_fusion):
            all_rows.append(row)
            print("  ".join(cells(row)), file=sys.stderr, flush=True)
    fused = not args.no_fusion
    document: Row = {
        "rows": all_rows,
        "gpu": GPU,
        "fused": fused,
        "machine": machine.described(),
        "date": date.today().isoformat(),
    }
    if args.json:
        table.dump(document)
    else:
        table.plain(HEADINGS, [cells(r) for r in all_rows])
        print("\n".join(summary(all_rows)))
    if args.save:
        save("monet" if fused else "monet-unfused", HEADINGS, [cells(r) for r in all_rows], summary(all_rows), document)
    return 0


if __name__ == "__main__":
    sys.exit(main())
