"""How far plans are from the bound: eight nets, the budgets 100, 70, 50, 30 and 15 % of liveness:p's arena, and the
least budget that any other policy keeps.

    python -m benchmarks.gaps                                 all: some forty minutes
    python -m benchmarks.gaps --networks vgg19:64:titan_x     one net, batch and profile
    python -m benchmarks.gaps --untuned --suffixes 2,4,8      nets that nobody tuned `best` on; the others in parts, too
    python -m benchmarks.gaps --before FILE.json              the same table of an older commit beside it
    python -m benchmarks.gaps --jobs 2                        two nets at once
    python -m benchmarks.gaps --save                          also writes benchmarks/results/gaps-<machine>.*

Steps are simulated, as the cuda backend fuses them. Each row has the bound, `best`, the quickest other policy that
keeps the budget, and the CPU seconds that planning `best` took, with placing and proving. For each net the least budget
follows: the bound's, which no plan is below, and what `best` reaches.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # so that it can also be run as a file

from benchmarks import machine
from benchmarks.nets import TRAIN, found, on_gpu
from minidnn.cli.options import positive
from minidnn.costs import Costs, profile
from minidnn.files.replace import replacing
from minidnn.memory.budget import BudgetError
from minidnn.memory.execution.simulator import simulate
from minidnn.memory.joint.variants import ProgramVariants
from minidnn.memory.planning import arrange
from minidnn.memory.policies import AT, BUDGETED, OTHERS
from minidnn.memory.policies.shared import kept
from minidnn.program import Program, SplitRegion
from minidnn.programs.build import programs
from minidnn.programs.fusion import Fuses, as_cuda
from minidnn.report import table

NETWORKS = (
    "vgg19:64:titan_x", "vgg19:256:titan_x", "googlenet:128:titan_x", "resnet50:128:titan_x", "resnet50:128:h200:tf32",
    "densenet121:64:titan_x", "resnet152:32:titan_x", "resnet1001:16:titan_x",
)  # fmt: skip
UNTUNED = (
    "inception_v4:32:titan_x", "wrn_28_10:64:titan_x", "mobilenet_v2:96:titan_x", "vgg16:64:a100",
    "resnet152:32:rtx4090", "vit_small:128:rtx4090", "resnet50:64:h100:tf32", "densenet121:32:titan_x",
)  # fmt: skip
PARTS = (1.0, 0.7, 0.5, 0.3, 0.15)
WHOLE = "liveness:p"
RESULTS = Path(__file__).parent / "results"
Row = dict[str, Any]
Case = tuple[str, int, str]  # net, batch, profile


def train(network: str, batch: int, fuses: Fuses | None = as_cuda) -> Program:
    return programs(found(network, batch).with_batch(batch), TRAIN, ("TRAIN",), fuses=fuses)[
        "TRAIN"
    ].synchronous_inputs()


@dataclass(frozen=True)
class Planned:
    """A proved plan: seconds of its step, bytes of its arena, ops that run again, and the regions in parts."""

    seconds: float
    arena: int
    again: int
    parts: tuple[SplitRegion, ...]


def planned(program: Program, policy: str, costs: Costs, budget: int) -> Planned | None:
    """The policy's plan; None: the budget is refused."""
    try:
        schedule = arrange([program], policy, costs, budget).schedules[program.name]
    except BudgetError:
        return None
    made = schedule.program
    return Planned(
        simulate(schedule, costs).seconds, schedule.arena, len(schedule.plan.order) - len(made.ops), made.parts
    )


def least(program: Program, costs: Costs, policies: Sequence[str]) -> int:
    """Bytes of the leanest arena of any of the policies."""
    found = []
    for policy in policies:
        try:
            found.append(arrange([program], policy, costs, 0).arena)
        except BudgetError as refusal:
            found.append(refusal.smallest)
    return min(found)


def rows(network: str, batch: int, gpu: str, suffixes: Sequence[str]) -> Iterator[Row]:
    program, costs = train(network, batch), profile(gpu)
    bound = ProgramVariants(program, costs)
    whole = planned(program, WHOLE, costs, 1 << 62)
    assert whole is not None
    smallest, reached = least(program, costs, OTHERS), least(program, costs, (BUDGETED,))
    for part in (*PARTS, None):
        budget = smallest if part is None else int(whole.arena * part)
        begin = time.process_time()
        best = planned(program, BUDGETED, costs, budget)
        seconds = time.process_time() - begin
        others = {}
        for policy in (*OTHERS, *(f"{name}{AT}{n}" for n in suffixes for name in (BUDGETED, *OTHERS))):
            if (other := planned(program, policy, costs, budget)) is not None:
                others[policy] = other
        quickest = min(others, key=lambda policy: others[policy].seconds, default=None)
        at = bound.closest(budget, {plan.parts for plan in (*others.values(), *([best] if best else []))})
        yield {
            "network": network, "batch": batch, "gpu": gpu, "ops": len(program.ops), "whole_bytes": whole.arena,
            "whole_seconds": whole.seconds, "part": part, "budget_bytes": budget,
            "bound_seconds": None if at is None else at.seconds, "least_bytes": bound.least(), "reached_bytes": reached,
            "planning_seconds": seconds, "best_seconds": best and best.seconds, "best_bytes": best and best.arena,
            "ops_again": best and best.again, "other": quickest,
            "other_seconds": None if quickest is None else others[quickest].seconds,
        }  # fmt: skip


def cells(r: Row) -> list[str]:
    def over(seconds: float | None) -> list[str]:
        if seconds is None:
            return ["–", "–"]
        return [f"{seconds / r['whole_seconds']:.4f}", f"{seconds / r['bound_seconds'] - 1:.2%}"]

    part = r["budget_bytes"] / r["whole_bytes"]
    bound = "none exists" if r["bound_seconds"] is None else f"{r['bound_seconds'] / r['whole_seconds']:.4f}"
    name = f"{r['network']} b{r['batch']} {r['gpu']}"
    budget = f"{part:.1%}" + (" (least)" if r["part"] is None else "")
    seconds = "–" if r["best_seconds"] is None else f"{r['planning_seconds']:.1f}"
    result = [name, budget, bound, r["other"] or "–", *over(r["other_seconds"]), *over(r["best_seconds"]), seconds]
    if "before" in r:
        before = r["before"] or {"best_seconds": None, "bound_seconds": None, "planning_seconds": 0}
        result += [
            "–" if (of := before[name]) is None else f"{of / before['whole_seconds']:.4f}"
            for name in ("bound_seconds", "best_seconds")
        ]
        result.append("–" if before["best_seconds"] is None else f"{before['planning_seconds']:.1f}")
    return result


HEADINGS = ["net", "budget", "bound", "quickest other", "its time", "over", "best", "over bound", "planning, s"]
BEFORE = ["bound before", "best before", "planning before, s"]


def summary(all_rows: Sequence[Row]) -> list[str]:
    feasible = [r for r in all_rows if r["bound_seconds"] is not None]
    gaps = [r["best_seconds"] / r["bound_seconds"] - 1 for r in feasible if r["best_seconds"] is not None]
    below = sum(
        r[of] is not None and r[of] < r["bound_seconds"] * (1 - 1e-9)
        for r in feasible
        for of in ("best_seconds", "other_seconds")
    )
    worse = 0  # budgets at which another policy is quicker, or fits alone
    for r in feasible:
        best = r["best_seconds"] if r["best_seconds"] is not None else float("inf")
        worse += r["other_seconds"] is not None and best > r["other_seconds"] * (1 + 1e-9)
    return [
        *dict.fromkeys(map(_leanest, all_rows)),
        f"{len(feasible)} of {len(all_rows)} budgets that the bound does not exclude; best keeps {len(gaps)} of them:",
        f"within 2 % of the bound {sum(g <= 0.02 for g in gaps)}, within 10 % {sum(g <= 0.1 for g in gaps)}, "
        f"at most {max(gaps, default=0):.1%} above; another policy is quicker, or fits alone: {worse}; "
        f"plans below the bound: {below}",
    ]


def _leanest(r: Row) -> str:
    bound, reached = (
        f"{r[of] / 1e9:.3f} GB, {r[of] / r['whole_bytes']:.1%}" for of in ("least_bytes", "reached_bytes")
    )
    return f"{r['network']} b{r['batch']} {r['gpu']}: no plan is below {bound}; best reaches {reached}"


def save(name: str, headings: Sequence[str], lines: Sequence[Sequence[str]], notes: Sequence[str], made: Row) -> None:
    """Write a table with notes, and the document `made`, to benchmarks/results/NAME-<machine>.md and .json."""
    text = "\n".join("| " + " | ".join(line) + " |" for line in (headings, ["---"] * len(headings), *lines))
    path = RESULTS / f"{name}-{machine.slug(made['machine']['cpu'])}-{made['machine']['cores']}.md"
    with replacing(path) as file:
        file.write(f"{text}\n\n" + "\n".join(notes) + "\n")
    with replacing(path.with_suffix(".json")) as file:
        table.dump(made, file)


def beside(all_rows: Sequence[Row], path: Path) -> None:
    """Give each row that of an older table for the same net and budget, as "before"; None: it had none."""
    old = {_key(r): r for r in json.loads(path.read_text())["rows"]}
    for row in all_rows:
        row["before"] = old.get(_key(row))


def _key(r: Row) -> tuple[object, ...]:
    return r["network"], r["batch"], r["gpu"], r["part"]


def _rows_of(case: Case, suffixes: Sequence[str]) -> list[Row]:
    """The rows of a net on a GPU, each printed on stderr when it is there."""
    kept.KEEPS = False  # a plan from the cache would take no time
    result = []
    for row in rows(*case, suffixes):
        result.append(row)
        print("  ".join(cells(row)), file=sys.stderr, flush=True)
    return result


def _cases(text: str) -> list[Case]:
    return [on_gpu(each) for each in text.split(",")]


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--networks", type=_cases, default=",".join(NETWORKS), help="NET:BATCH:GPU,...")
    parser.add_argument("--untuned", action="store_true", help=f"other nets: {', '.join(UNTUNED)}")
    parser.add_argument("--suffixes", default="", help="numbers of parts in which all policies are tried, too: 2,4,8")
    parser.add_argument("--before", type=Path, help="a JSON file of an older commit: its columns stand beside")
    parser.add_argument("--jobs", type=positive, default=1, help="nets that are planned at once (default: 1)")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument("--save", action="store_true", help="write the results to benchmarks/results/")
    args = parser.parse_args(argv)
    networks = _cases(",".join(UNTUNED)) if args.untuned else args.networks
    suffixes = [n for n in args.suffixes.split(",") if n]
    with ProcessPoolExecutor(args.jobs) as pool:
        each = {network: pool.submit(_rows_of, network, suffixes) for network in networks}
    failed = {network: error for network, future in each.items() if (error := future.exception()) is not None}
    all_rows = [row for network, future in each.items() if network not in failed for row in future.result()]
    if args.before is not None:
        beside(all_rows, args.before)
    headings = HEADINGS + BEFORE * (args.before is not None)
    document: Row = {"rows": all_rows, "machine": machine.described(), "date": date.today().isoformat()}
    if args.json:
        table.dump(document)
    else:
        table.plain(headings, [cells(r) for r in all_rows])
        print("\n".join(summary(all_rows)))
    if args.save:
        name = "gaps-untuned" if args.untuned else "gaps"
        save(name, headings, [cells(r) for r in all_rows], summary(all_rows), document)
    for (network, *_), error in failed.items():
        print(f"gaps: {network}: {error}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
