"""The gap of `best` to its bound after --effort 1, 10 and 60 seconds, on three hard budgets.

    python -m benchmarks.effort                                  some six minutes on an idle machine
    python -m benchmarks.effort --cells vit_small:128:rtx4090:15 --seconds 1,5      NET:BATCH:GPU:PERCENT of liveness:p
    python -m benchmarks.effort --save      also writes benchmarks/results/effort-<machine>.md, .json and .svg

Steps are simulated, and planning takes real seconds, so another machine finds other plans in them. A search of 0
seconds is the usual plan; its own planning comes before each search.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # so that it can also be run as a file

from benchmarks import machine
from benchmarks.gaps import RESULTS, WHOLE, Case, planned, save, train
from benchmarks.nets import on_gpu
from minidnn.cli.values import above_zero
from minidnn.costs import profile
from minidnn.files.replace import replacing
from minidnn.memory.effort import looking
from minidnn.memory.joint.variants import ProgramVariants
from minidnn.memory.policies import BUDGETED
from minidnn.memory.policies.shared import kept
from minidnn.report import table
from minidnn.report.draw import WIDTH, axis
from minidnn.report.plot import LEFT, RIGHT, Plot, coloured

CELLS = "resnet50:64:h100:tf32:15,wrn_28_10:64:titan_x:15,vgg16:64:a100:30"
SECONDS = "1,10,60"
USUAL = 0.3  # seconds at which the picture draws the usual plan
HEADINGS = ["net", "budget", "effort, s", "its time", "bound", "over bound", "planning, s"]
Row = dict[str, Any]


def rows(network: str, batch: int, gpu: str, percent: float, efforts: Sequence[float]) -> list[Row]:
    program, costs = train(network, batch), profile(gpu)
    whole = planned(program, WHOLE, costs, 1 << 62)
    assert whole is not None
    budget, result, bounds = int(whole.arena * percent / 100), [], ProgramVariants(program, costs)
    for effort in (0.0, *efforts):
        begin = time.perf_counter()
        with looking(effort or None):
            plan = planned(program, BUDGETED, costs, budget)
        took = time.perf_counter() - begin
        if plan is None:
            raise SystemExit(f"effort: no plan of {network} keeps {percent:g} %; ask for more")
        bound = bounds.closest(budget, {plan.parts})
        assert bound is not None
        result.append({
            "network": network, "batch": batch, "gpu": gpu, "percent": percent, "budget_bytes": budget,
            "effort_seconds": effort, "best_seconds": plan.seconds, "bound_seconds": bound.seconds,
            "whole_seconds": whole.seconds, "planning_seconds": took,
        })  # fmt: skip
        print("  ".join(cells(result[-1])), file=sys.stderr, flush=True)
    return result


def named(r: Row) -> str:
    return f"{r['network']} b{r['batch']} {r['gpu']} at {r['percent']:g} %"


def gap(r: Row) -> float:
    return float(r["best_seconds"] / r["bound_seconds"] - 1)


def cells(r: Row) -> list[str]:
    times = (f"{r[of] / r['whole_seconds']:.4f}" for of in ("best_seconds", "bound_seconds"))
    effort = f"{r['effort_seconds']:g}" if r["effort_seconds"] else "usual"
    return [
        f"{r['network']} b{r['batch']} {r['gpu']}", f"{r['percent']:g}%", effort, *times, f"{gap(r):.2%}",
        f"{r['planning_seconds']:.1f}",
    ]  # fmt: skip


class Patience(Plot):
    """Gaps to the bound against seconds of search, which grow from mark to mark by a factor."""

    caption = "seconds of search"

    def x(self, nbytes: float) -> float:
        first, last = (math.log(v) for v in self.across)
        return LEFT + (WIDTH - LEFT - RIGHT) * (math.log(max(nbytes, self.across[0])) - first) / (last - first)

    def reads(self, value: float) -> str:
        return f"{value:.0%}"

    def marks(self) -> list[str]:
        labels = {USUAL: "usual", 1: "1", 10: "10", 100: "100"}
        within = {at: label for at, label in labels.items() if self.across[0] <= at <= self.across[1]}
        return axis(within, self.x, self.bottom)


def picture(all_rows: Sequence[Row], note: str) -> str:
    """An SVG file: for each cell the gap, which stays until the next search that was longer."""
    names = list(dict.fromkeys(map(named, all_rows)))
    colours = coloured(names)
    most = max(map(gap, all_rows))
    last = max(r["effort_seconds"] for r in all_rows)
    plot = Patience(
        "best over the bound against --effort", note, (USUAL * 0.8, 1.6 * max(1.0, last)), (0, 1.08 * most), colours
    )
    for name in names:
        of = [(r["effort_seconds"] or USUAL, gap(r)) for r in all_rows if named(r) == name]
        plot.steps(of, colours[name], 1.6)
        for seconds, over in of:
            said = "the usual plan" if seconds == USUAL else f"{seconds:g} s"
            plot.point((seconds, over), colours[name], f"{name}, {said}: {over:.1%} over the bound")
    return plot.svg("how far best is from the bound after so many seconds of search")


def _cells(text: str) -> list[tuple[Case, float]]:
    """(net, percent) of NET:BATCH:GPU:PERCENT,..."""
    cut = [cell.rpartition(":") for cell in text.split(",")]
    return [(on_gpu(case), above_zero(percent)) for case, _, percent in cut]


def _seconds(text: str) -> list[float]:
    return [above_zero(part) for part in text.split(",")]


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--cells", type=_cells, default=CELLS, help="NET:BATCH:GPU:PERCENT,...")
    parser.add_argument("--seconds", type=_seconds, default=SECONDS, help=f"of the searches (default: {SECONDS})")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument("--save", action="store_true", help="write the results to benchmarks/results/")
    args = parser.parse_args(argv)
    kept.KEEPS = False  # a plan from the cache would take no time
    efforts, all_rows = args.seconds, []
    for case, percent in args.cells:
        all_rows += rows(*case, percent, efforts)
    document: Row = {"rows": all_rows, "machine": machine.described(), "date": date.today().isoformat()}
    if args.json:
        table.dump(document)
    else:
        table.plain(HEADINGS, [cells(r) for r in all_rows])
    if args.save:
        save("effort", HEADINGS, [cells(r) for r in all_rows], [], document)
        path = RESULTS / f"effort-{machine.slug(document['machine']['cpu'])}-{document['machine']['cores']}.svg"
        with replacing(path) as file:
            file.write(picture(all_rows, f"planned on {document['machine']['cpu']}; times are simulated"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
