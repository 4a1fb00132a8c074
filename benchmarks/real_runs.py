"""Every policy that fits, run on this CPU: is `best` as quick as the quickest?

    python -m benchmarks.real_runs                                    all: less than half an hour on two idle cores
    python -m benchmarks.real_runs --networks cifar10_quick:100 --budgets 60,40 --rounds 30       a piece of it
    python -m benchmarks.real_runs --networks resnet50:2 --save    also writes benchmarks/results/real-runs-<machine>.*

The budgets are percents of baseline's arena. Plans are made with costs that are measured first, unless they are known;
with --costs estimated, with those that are the same on every machine. Each plan that is another one is run, and its
steps take turns with those of all others, so a load that slows a round slows all plans. A ratio is the median over the
rounds of the ratio within a round. A sitting opens all plans anew, since where the memory lies changes all steps by
some percent.

A row has the measured seconds with their 95 % interval, the foreseen ones, and the ratio to `best`. For each budget a
line says how far `best` is from the quickest policy. What was saved of other nets and budgets stays in the files.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from time import perf_counter
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # so that it can also be run as a file

from benchmarks import machine, nets
from benchmarks.cpu import RESULTS, Wrong, asked
from benchmarks.gaps import save
from benchmarks.gpu_check.journal import commit
from benchmarks.progress import watched
from benchmarks.turns import Tell, costs_of
from minidnn import sizes
from minidnn.backends import open_device
from minidnn.cli.options import names, positive
from minidnn.cli.values import counts
from minidnn.costs import Costs, estimate
from minidnn.errors import BadInput
from minidnn.jobs.options import COSTS
from minidnn.measuring.load import BUSY, Load
from minidnn.measuring.spread import Spread
from minidnn.measuring.steps import Steps
from minidnn.memory.budget import BudgetError
from minidnn.memory.execution.device import Device
from minidnn.memory.execution.host import free_memory
from minidnn.memory.execution.simulator import simulate
from minidnn.memory.execution.trace import copied
from minidnn.memory.planning import arrange
from minidnn.memory.policies import BUDGETED
from minidnn.memory.policies.check import check_policies
from minidnn.memory.schedule import Arrangement
from minidnn.program import Program
from minidnn.programs.build import programs
from minidnn.report import table

NETWORKS = "digits_lenet:128,cifar10_quick:100,resnet18:4,resnet50:2,googlenet:4,vit_small:2"
BUDGETS = "100,80,60,40"
WHOLE = "baseline"
POLICIES = (
    "baseline,liveness,liveness:p,vdnn_all,vdnn_dyn,vdnn_pp,superneurons,layrub,accudnn,capuchin,dtr,sqrt_n,"
    "recompute_cheap,recompute_all,best"
)
ROUNDS, SITTINGS = 30, 3
MOST = 30.0  # seconds of the rounds of a budget; but there are FEWEST in each sitting
FEWEST = 3
NEAR, CLOSE = 0.02, 0.05  # how near `best` should be to the quickest, and what is foreseen to what is measured
NAME = "real-runs"
Row = dict[str, Any]


@dataclass(eq=False)
class Case:
    """A plan, the policies that make it, and the seconds of its steps, by rounds."""

    arrangement: Arrangement
    foreseen: float
    policies: list[str] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)

    @property
    def nbytes(self) -> int:
        return self.arrangement.arena + self.arrangement.host


def planned(program: Program, policies: Sequence[str], costs: Costs, budget: int, tell: Tell) -> list[Case]:
    """A Case for each different plan that keeps the budget; that of `best` is the first."""
    cases: dict[str, Case] = {}
    ordered = sorted(policies, key=lambda policy: policy != BUDGETED)
    for i, policy in enumerate(ordered):
        tell(i, len(ordered), f"planning {policy} in {sizes.text(budget)}")
        try:
            arrangement = arrange([program], policy, costs, budget)
        except BudgetError:
            continue
        schedule = arrangement.schedules[program.name]
        plan = f"{schedule}{schedule.plan.algorithm}"
        if plan not in cases:
            cases[plan] = Case(arrangement, simulate(schedule, costs).seconds)
        cases[plan].policies.append(policy)
    return list(cases.values())


def take_turns(cases: Sequence[Case], device: Device, rounds: int, sittings: int, tell: Tell) -> None:
    """Run all plans in turns, and note the seconds of their steps. The order turns round with each round."""
    for sitting in range(sittings):
        with ExitStack() as stack:
            steps = []
            for i, case in enumerate(cases):
                tell(i, len(cases), f"opening {case.policies[0]}")
                steps.append(Steps(device, case.arrangement))
                stack.callback(steps[-1].close)
            began, share = perf_counter(), rounds // sittings or 1
            for number in range(share):
                if number >= FEWEST and perf_counter() - began > MOST / sittings:
                    break
                tell(number, share, f"sitting {sitting + 1} of {sittings}, round {number + 1}")
                pairs = list(zip(cases, steps, strict=True))
                for case, one in pairs if number % 2 else reversed(pairs):
                    case.seconds.append(one.step())


def fitting(cases: Sequence[Case], room: int) -> list[Case]:
    """The first of the cases that this machine has room for at once; the others are left out, and named on stderr."""
    kept, left = [], room
    for case in cases:
        left -= case.nbytes
        if left >= 0:
            kept.append(case)
        else:
            print(f"left out for want of memory: {', '.join(case.policies)}", file=sys.stderr)
    return kept


def rows(
    network: str, batch: int | None, percents: Sequence[int], policies: Sequence[str], costs_from: str,
    run: Callable[[Sequence[Case], Device], None], tell: Tell,
) -> Iterator[list[Row]]:  # fmt: skip
    """The rows of each budget of a net, when it has been run. run: notes the seconds of cases"""
    device = open_device("cpu")
    program = programs(nets.found(network, batch), nets.TRAIN, ("TRAIN",), fuses=device.fuses)["TRAIN"]
    costs = costs_of(device, [program], False, tell) if costs_from == "measured" else estimate(device)
    whole = arrange([program], WHOLE, costs).arena
    for percent in percents:
        budget = whole * percent // 100
        cases = fitting(planned(program, policies, costs, budget, tell), free_memory() * 3 // 4)
        before = Load.now()
        run(cases, device)
        others = before.others_until(Load.now())
        first = cases[0].seconds if cases else []
        yield [
            {
                "network": network, "batch": batch, "percent": percent, "budget_bytes": budget, "costs": costs_from,
                "policies": case.policies, **_of(case, program.name), "over_best": _over(case.seconds, first),
                "other_processors": others,
            }
            for case in cases
        ]  # fmt: skip


def _of(case: Case, name: str) -> Row:
    schedule, spread = case.arrangement.schedules[name], Spread.in_turn(case.seconds)
    return {
        "peak_bytes": case.arrangement.arena, **copied(schedule.instructions, schedule),
        "ops_again": len(schedule.plan.order) - len(set(schedule.plan.order)), "seconds": spread.median,
        "seconds_low": spread.low, "seconds_high": spread.high, "foreseen_seconds": case.foreseen,
        "rounds": case.seconds,
    }  # fmt: skip


def _over(mine: Sequence[float], its: Sequence[float]) -> list[float]:
    """[median, low, high] of the ratio within a round."""
    spread = Spread.in_turn([a / b for a, b in zip(mine, its, strict=True)])
    return [spread.median, spread.low, spread.high]


# ---- what is said of them


HEADINGS = ["net", "budget", "policies", "peak", "moved out", "again", "measured", "foreseen", "off", "over best"]


def cells(r: Row) -> list[str]:
    interval = f"{table.duration(r['seconds'])} ({r['seconds_low'] * 1e3:.4g}–{r['seconds_high'] * 1e3:.4g} ms)"
    ratio, low, high = r["over_best"]
    return [
        f"{r['network']} b{r['batch']}", f"{r['percent']} %, {sizes.text(r['budget_bytes'])}", ", ".join(r["policies"]),
        sizes.text(r["peak_bytes"]), sizes.text(r["offload_bytes"]), str(r["ops_again"]), interval,
        table.duration(r["foreseen_seconds"]), f"{r['foreseen_seconds'] / r['seconds'] - 1:+.1%}",
        f"{ratio:.3f} ({low:.3f}–{high:.3f})",
    ]  # fmt: skip


def behind(of_budget: Sequence[Row]) -> float | None:
    """How much longer `best` takes than the quickest policy, as a part of that; None: `best` was not run."""
    if not of_budget or BUDGETED not in of_budget[0]["policies"]:
        return None
    return 1 / min(r["over_best"][0] for r in of_budget) - 1


def budgets(all_rows: Sequence[Row]) -> list[list[Row]]:
    """The rows of each net and budget."""
    found: dict[tuple[Any, ...], list[Row]] = {}
    for r in all_rows:
        found.setdefault((r["network"], r["batch"], r["percent"], r["costs"]), []).append(r)
    return list(found.values())


def summary(all_rows: Sequence[Row]) -> list[str]:
    lines, gaps = [], []
    for group in budgets(all_rows):
        gap, first = behind(group), group[0]
        if gap is None:
            continue
        gaps.append(gap)
        quickest = min(group, key=lambda r: r["over_best"][0])
        noise = " (less than the noise)" if gap and quickest["over_best"][2] >= 1 else ""
        lines.append(
            f"{first['network']} b{first['batch']}, {first['percent']} %: the quickest is "
            f"{', '.join(quickest['policies'])}; best takes {gap:.1%} longer{noise}"
        )
    close = [abs(r["foreseen_seconds"] / r["seconds"] - 1) <= CLOSE for r in all_rows]
    lines.append(
        f"best within {NEAR:.0%} of the quickest: {sum(gap <= NEAR for gap in gaps)} of {len(gaps)} budgets; "
        f"foreseen within {CLOSE:.0%}: {sum(close)} of {len(close)} plans"
    )
    busy = [r["other_processors"] for r in all_rows if (r["other_processors"] or 0) > BUSY]
    if busy:
        lines.append(f"The machine was busy: other programs kept up to {max(busy):.1f} processors at work.")
    return lines


def earlier(measured: Sequence[Row], folder: Path) -> list[Row]:
    """The rows of this machine's file for what was not measured now."""
    m = machine.described()
    path = folder / f"{NAME}-{machine.slug(m['cpu'])}-{m['cores']}.json"
    now = {(r["network"], r["batch"], r["percent"]) for r in measured}
    known = json.loads(path.read_text(encoding="utf-8"))["rows"] if path.exists() else []
    return [r for r in known if (r["network"], r["batch"], r["percent"]) not in now]


# ---- the command


def main(argv: Sequence[str] | None = None) -> int:
    args = _parser().parse_args(argv)
    all_rows: list[Row] = []
    try:
        check_policies(args.policies)
        with watched() as (console, tell):
            for name in args.networks:
                network, batch = asked(name)

                def told(done: int, of: int, text: str, network: str = network) -> None:
                    tell(done, of, f"{network}: {text}")

                def run(cases: Sequence[Case], device: Device, told: Tell = told) -> None:
                    take_turns(cases, device, args.rounds, args.sittings, told)

                for found in rows(network, batch, args.budgets, args.policies, args.costs, run, told):
                    all_rows += found
                    for row in found:
                        console.print("  ".join(cells(row)))
    except (Wrong, BadInput, OSError) as error:
        print(f"benchmarks/real_runs.py: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("benchmarks/real_runs.py: interrupted; what was run until then follows", file=sys.stderr)
    if args.save:
        RESULTS.mkdir(exist_ok=True)
        all_rows = [*earlier(all_rows, RESULTS), *all_rows]
    document: Row = {
        "rows": all_rows, "machine": machine.described(), "date": date.today().isoformat(), "commit": commit(),
    }  # fmt: skip
    if args.json:
        table.dump(document)
    else:
        table.plain(HEADINGS, [cells(r) for r in all_rows], "Steps on this CPU under budgets")
        print("\n".join(summary(all_rows)))
    if args.save:
        save(NAME, HEADINGS, [cells(r) for r in all_rows], summary(all_rows), document)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("benchmarks/real_runs.py", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--networks", type=names, default=names(NETWORKS), metavar="NET:BATCH,...", help=NETWORKS)
    parser.add_argument("--budgets", type=counts, default=counts(BUDGETS), metavar="P,Q", help=BUDGETS)
    parser.add_argument("--policies", type=names, default=names(POLICIES), metavar="A,B", help=POLICIES)
    parser.add_argument("--costs", choices=COSTS, default="measured", help="(default: %(default)s)")
    parser.add_argument("--rounds", type=positive, default=ROUNDS, metavar="N", help=f"of turns (default: {ROUNDS})")
    parser.add_argument("--sittings", type=positive, default=SITTINGS, metavar="N", help=f"(default: {SITTINGS})")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument("--save", action="store_true", help=f"write into {RESULTS.parent.name}/{RESULTS.name}")
    return parser


if __name__ == "__main__":
    sys.exit(main())
