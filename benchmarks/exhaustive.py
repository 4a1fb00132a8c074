"""How far `best` is from the quickest plan of all, on nets so small that all decisions can be tried.

    python -m benchmarks.exhaustive                   all: some minutes
    python -m benchmarks.exhaustive --networks chain  one net
    python -m benchmarks.exhaustive --random 20       further nets, at random
    python -m benchmarks.exhaustive --most 10000000   decisions about smaller tensors, too: long
    python -m benchmarks.exhaustive --save            also writes benchmarks/results/exhaustive-<machine>.*

Each gap of each large tensor is kept, copied or run again, in every combination, at the profiles of several GPUs with
links of several rates, and budgets from 90 to 45 % of liveness:p's arena (tests/support/exhaustive). The quickest plan
is lowered, placed, proved and simulated, like `best@1`, which runs ops as a whole, too. It decides about small tensors
besides, and where weights live. Where it is quicker than all that was tried, the gap is 0.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import date
from math import inf, isfinite
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # so that it can also be run as a file

from benchmarks import machine
from benchmarks.gaps import WHOLE, Row, planned, save
from minidnn.memory.policies.shared import kept
from minidnn.report import table
from tests.support.exhaustive import tried
from tests.support.exhaustive.nets import DEVICES, NETS, at_random, device, training

PARTS = (0.9, 0.8, 0.7, 0.6, 0.5, 0.45)
MOST = 120_000  # combinations of decisions about one net, of each of two kinds
POLICY = "best@1"
HEADINGS = ["net", "ops", "device", "link", "decisions", "plans", "evaluated", "budgets", "kept", "largest gap", "at"]


def rows(
    name: str,
    body: Callable[[Any], Any],
    gpu: str,
    link: float,
    fastest: bool,
    most: int = MOST,
    parts: Sequence[float] = PARTS,
) -> Iterator[Row]:
    """A row for each budget of a net on a device."""
    program, costs = training(body), device(gpu, link, fastest)
    whole = planned(program, WHOLE, costs, 1 << 60)
    assert whole is not None
    budgets = [int(whole.arena * part) for part in parts]
    begin = time.process_time()
    found = [planned(program, POLICY, costs, budget) for budget in budgets]
    planning = (time.process_time() - begin) / len(budgets)
    known = {budget: inf if plan is None else plan.seconds for budget, plan in zip(budgets, found, strict=True)}
    quickest = dict(known)
    ways = tried(program, costs, most)
    begin = time.process_time()
    for each in ways:
        quickest = {budget: best.seconds for budget, best in each.quickest(quickest).items()}
    took = time.process_time() - begin
    for part, budget in zip(parts, budgets, strict=True):
        yield {
            "network": name, "ops": len(program.ops), "gpu": gpu, "link": link, "fastest": fastest, "part": part,
            "budget_bytes": budget, "decisions": max(len(each.gaps) for each in ways),
            "plans": sum(each.plans for each in ways), "evaluated": sum(each.evaluated for each in ways),
            "unplaced": sum(each.unplaced for each in ways),
            "best_seconds": known[budget] if isfinite(known[budget]) else None,
            "quickest_seconds": quickest[budget] if isfinite(quickest[budget]) else None,
            "planning_seconds": planning, "enumeration_seconds": took,
        }  # fmt: skip


def gap(row: Row) -> float | None:
    """The part by which `best` takes longer; None: all decisions together have no plan within the budget."""
    if row["quickest_seconds"] is None:
        return None
    return inf if row["best_seconds"] is None else row["best_seconds"] / row["quickest_seconds"] - 1


def cells(of_case: Sequence[Row]) -> list[str]:
    """The line of all budgets of one net on one device."""
    r = of_case[0]
    gaps = {row["part"]: g for row in of_case if (g := gap(row)) is not None}
    worst = max(gaps, key=lambda part: gaps[part], default=None)
    algorithms = ", fastest" if r["fastest"] else ""
    largest = ["–", "–"] if worst is None else [f"{gaps[worst]:.2%}", f"{worst:.0%}" if gaps[worst] else "–"]
    numbers = [f"{r[name]:,}" for name in ("decisions", "plans", "evaluated")]
    return [r["network"], str(r["ops"]), r["gpu"] + algorithms, f"{r['link']:g} x", *numbers, str(len(of_case)),
            str(len(gaps)), *largest]  # fmt: skip


def summary(cases: Sequence[Sequence[Row]]) -> list[str]:
    gaps = [g for case in cases for row in case if (g := gap(row)) is not None]
    plans, evaluated = (sum(case[0][name] for case in cases) for name in ("plans", "evaluated"))
    return [
        f"{len(cases)} cases, {plans:,} plans, of which {evaluated:,} were evaluated: the others take more bytes, or "
        "longer, by a part of their decisions.",
        f"{sum(map(len, cases))} budgets, of which {len(gaps)} have a plan: {POLICY} takes longer than the quickest "
        f"in {sum(g > 1e-9 for g in gaps)}, by more than .1 % in {sum(g > 1e-3 for g in gaps)}, "
        f"at most {max(gaps, default=0):.2%}.",
    ]


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--networks", default=",".join(NETS), help=f"some of {', '.join(NETS)}")
    parser.add_argument("--random", type=int, default=4, metavar="N", help="nets at random besides")
    parser.add_argument("--most", type=int, default=MOST, help="combinations of decisions about one net")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument("--save", action="store_true", help="write the results to benchmarks/results/")
    args = parser.parse_args(argv)
    if unknown := [name for name in args.networks.split(",") if name and name not in NETS]:
        parser.error(f"there is no net {unknown[0]}; there are {', '.join(NETS)}")
    kept.LEAST = sys.maxsize  # each plan is made anew
    nets = {name: NETS[name] for name in args.networks.split(",") if name}
    nets |= {f"random {seed}": at_random(seed) for seed in range(args.random)}
    cases = []
    for name, body in nets.items():
        for gpu, link in DEVICES:
            for fastest in (False, True):
                cases.append(list(rows(name, body, gpu, link, fastest, args.most)))
                print("  ".join(cells(cases[-1])), file=sys.stderr, flush=True)
    made: Row = {"rows": [row for case in cases for row in case], "machine": machine.described()}
    made["date"] = date.today().isoformat()
    if args.json:
        table.dump(made)
    else:
        table.plain(HEADINGS, [cells(case) for case in cases])
        print("\n".join(summary(cases)))
    if args.save:
        save("exhaustive", HEADINGS, [cells(case) for case in cases], summary(cases), made)
    return 0


if __name__ == "__main__":
    sys.exit(main())
