"""MONeT's published overheads beside ours: ResNet-50 at batch 184 and GoogLeNet at batch 320, at its memory budgets.

    python -m benchmarks.monet                              all: some minutes
    python -m benchmarks.monet --networks resnet50          one net
    python -m benchmarks.monet --save                       also writes benchmarks/results/monet-<machine>.*

MONeT's figures were measured by its authors; they are read from the README of github.com/utsaslab/MONeT (May 2021). It
chooses what runs again and by which algorithm; nothing leaves its device. Ours are foreseen: steps are simulated on
the profile titan_x, as the cuda backend fuses them. Each overhead is over the step that plans nothing: PyTorch's there,
liveness:p here. Budgets are compared twice: at the same part of that step's memory, and at the same bytes.

"Joint" is `best`. "Re-runs alone" is `best` on a link so slow that no large tensor is copied out within a step. The
inputs may still be dropped and read from the host again. Each has its bound, which no plan can go below. Where the slow
link leaves the solver without a safe bound, the joint one holds.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # so that it can also be run as a file

from benchmarks import machine
from benchmarks.gaps import WHOLE, Row, planned, save, train
from minidnn.costs import Costs, profile
from minidnn.memory.budget import BudgetError
from minidnn.memory.execution.simulator import simulate
from minidnn.memory.joint.bound import LowerBound
from minidnn.memory.joint.facts import Facts
from minidnn.memory.planning import arrange
from minidnn.memory.policies import BUDGETED, kept
from minidnn.program import Program
from minidnn.report import table

GB = 10**9
GPU = "titan_x"
NO_LINK = 1e5  # bytes per second out: a loss leaves in no time, a large tensor not within a step
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
    """Plans of one program on costs, with a bound. `real` are the costs by which its steps are simulated."""

    def __init__(self, program: Program, costs: Costs, real: Costs) -> None:
        self.program, self.costs, self.real = program, costs, real
        self.leaves = costs is real
        self.bound = LowerBound(Facts(program, costs))

    def at(self, budget: int) -> tuple[float | None, float | None]:
        """Seconds of the bound and of `best`, at a budget in bytes. None: the bound excludes it; no plan was found."""
        bound = self.bound.closest(budget)
        if bound is None:
            return None, None
        try:
            schedule = arrange([self.program], BUDGETED, self.costs, budget).schedules[self.program.name]
        except BudgetError:
            return bound.seconds, None
        outputs = set(self.program.outputs)
        out = [t.tensor.name for t in schedule.plan.trips if t.out is not None and t.tensor not in outputs]
        if out and not self.leaves:
            raise AssertionError(f"{out[0]} leaves the device, {self.costs.bandwidth_out:g} bytes a second")
        return bound.seconds, simulate(schedule, self.real).seconds


def rows(network: str) -> Iterator[Row]:
    published = MONET[network]
    program, costs = train(network, published.batch), profile(GPU)
    found = planned(program, WHOLE, costs, 1 << 62)
    assert found is not None
    seconds, whole, _ = found
    ways = {"alone": Ours(program, replace(costs, bandwidth_out=NO_LINK), costs), "joint": Ours(program, costs, costs)}
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
            if row["alone_bound_percent"] is not None and row["joint_bound_percent"] is not None:
                # Plans of re-runs alone are joint plans, too.
                row["alone_bound_percent"] = max(row["alone_bound_percent"], row["joint_bound_percent"])
            yield row | {"cpu_seconds": time.process_time() - begin}


def reached(row: Row, way: str, part: float) -> str:
    """Whether the overhead is at most `part` of MONeT's; whether the bound leaves that possible where it is not."""
    goal, ours, bound = part * row["monet_percent"], row[f"{way}_percent"], row[f"{way}_bound_percent"]
    if ours is not None and ours <= goal:
        return "yes"
    return "no" if bound is not None and bound <= goal else "no, nor can any plan"


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
            f"{answers.count('no, nor can any plan')} more are excluded by the bound"
        )
    return told


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--networks", default=",".join(MONET), help="NET,...: " + ", ".join(MONET))
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument("--save", action="store_true", help="write the results to benchmarks/results/")
    args = parser.parse_args(argv)
    networks = args.networks.split(",")
    if unknown := [name for name in networks if name not in MONET]:
        parser.error(f"MONeT's table of {unknown[0]} is not here; there are {', '.join(MONET)}")
    kept.LEAST = sys.maxsize  # a plan from the cache would take no time
    all_rows: list[Row] = []
    for name in networks:
        for row in rows(name):
            all_rows.append(row)
            print("  ".join(cells(row)), file=sys.stderr, flush=True)
    document: Row = {"rows": all_rows, "gpu": GPU, "machine": machine.described(), "date": date.today().isoformat()}
    if args.json:
        table.dump(document)
    else:
        table.plain(HEADINGS, [cells(r) for r in all_rows])
        print("\n".join(summary(all_rows)))
    if args.save:
        save("monet", HEADINGS, [cells(r) for r in all_rows], summary(all_rows), document)
    return 0


if __name__ == "__main__":
    sys.exit(main())
