"""Seconds of a training iteration against the bytes that it may use: planned, predicted, and run on this CPU.

    python benchmarks/budgets.py                            vgg16, batch 8, the policies of vDNN
    python benchmarks/budgets.py --network vgg16:16 --policies vdnn_all:m,vdnn_all:p,liveness:p --json
    python benchmarks/budgets.py --network resnet50:8 --policies best,liveness:p    the frontier, run for real
    python benchmarks/budgets.py --save                     also writes benchmarks/results/budgets-<net>-<machine>.*
    python benchmarks/budgets.py --network resnet50:8 --parts 80,60,45 --policies best,vdnn_pp,accudnn,superneurons

Each policy is asked for plans at budgets from the smallest that any of them can keep to more than any needs; with
--parts at these percents of the arena of liveness:p, and the table says which policy is the quickest within each. Plans
that are the same under several budgets are run once. The plans take turns in rounds, and medians count.

Each plan has a twin: liveness with the same algorithms, run just before or after it. A plan's predicted seconds are the
simulator's, with each op's seconds as measured in the twin. Other programs use this machine, too, so within seconds it
can become half or twice as fast. So a turn is compared with its neighbour, and medians are not compared with each
other. Plans are made with costs that are measured first, unless they are known. The picture has the bound by these
costs, too.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from functools import cached_property
from pathlib import Path
from statistics import fmean, median
from time import perf_counter
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # so that it can also be run as a file

from benchmarks import machine, nets
from benchmarks.cpu import RESULTS, Wrong, asked
from benchmarks.curves import picture
from benchmarks.gpu_check.journal import commit
from benchmarks.progress import watched
from benchmarks.turns import Tell, costs_of, opened, shut, train
from minidnn import sizes
from minidnn.backends.cpu import CpuDevice
from minidnn.cli.options import names, positive
from minidnn.cli.values import counts
from minidnn.costs import Choice, Costs, key, remembering
from minidnn.errors import BadInput
from minidnn.files.replace import replacing
from minidnn.measuring.steps import Steps, with_algorithms
from minidnn.memory.budget import BudgetError
from minidnn.memory.execution.simulator import simulate
from minidnn.memory.execution.trace import copied
from minidnn.memory.joint.variants import ProgramVariants, least_budget
from minidnn.memory.planning import arrange
from minidnn.memory.policies.check import check_policies
from minidnn.memory.schedule import Arrangement, Compute
from minidnn.program import Program
from minidnn.programs.build import programs
from minidnn.report import table
from minidnn.training.session import Session

POLICIES = "vdnn_all:m,vdnn_all:p,vdnn_conv:m,vdnn_conv:p,vdnn_dyn,liveness:p"
POINTS = 16  # evenly spaced budgets
ROUNDS = 6
SITTING = 2  # rounds, after which all sessions are opened anew: one whose memory lies badly stays 10 % slower
WARM = 1  # steps
TURN = 3.0  # seconds that the steps of a turn take at least; their mean counts
CLOSE = 0.10  # how near the prediction should be, as a part of the measured seconds

Row = dict[str, Any]


@dataclass(eq=False)
class Case:
    """A policy's plan, the budgets under which the policy makes it, and its measurements."""

    policy: str
    arrangement: Arrangement
    costs: Costs
    budgets: list[int] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)  # of an iteration, by rounds
    foreseen: list[float] = field(default_factory=list)  # predicted, by rounds
    twin: list[float] = field(default_factory=list)  # of liveness with the same algorithms, by rounds

    @cached_property
    def chosen(self) -> tuple[Choice, ...]:
        """The algorithm that each op of the program uses, with the seconds that the costs give for it."""
        schedule = self.arrangement.schedules["TRAIN"]
        took = {x.op: x.algorithm for x in schedule.instructions if isinstance(x, Compute)}
        return tuple(next(c for c in self.costs.choices(op) if c.algorithm == took[op]) for op in schedule.program.ops)

    def row(self) -> Row:
        schedule = self.arrangement.schedules["TRAIN"]
        moved = copied(schedule.instructions, schedule)

        def over(mine: Sequence[float], its: Sequence[float]) -> float:
            return median(a / b for a, b in zip(mine, its, strict=True))

        return {
            "policy": self.policy, "budget_bytes": min(self.budgets), "budgets_bytes": self.budgets,
            "peak_bytes": self.arrangement.arena, **moved,
            "seconds": median(self.seconds), "predicted_seconds": median(self.foreseen),
            "predicted_ratio": over(self.foreseen, self.seconds), "over_liveness": over(self.seconds, self.twin),
            "rounds": self.seconds, "predicted_rounds": self.foreseen, "liveness_rounds": self.twin,
        }  # fmt: skip


def evenly(program: Program, wanted: Sequence[str], costs: Costs, points: int, tell: Tell) -> list[int]:
    """Each policy's smallest budget, and `points` evenly spaced ones from the least of them to more than any needs."""
    smallest, largest = set(), 0
    for i, policy in enumerate(wanted):
        tell(i, len(wanted), f"{policy}: its smallest budget")
        try:
            arrange([program], policy, costs, 1)
        except BudgetError as refused:
            smallest.add(refused.smallest)
        largest = max(largest, arrange([program], policy, costs).arena)
    least = min(smallest)
    return sorted({*smallest, *(least + (largest - least) * i // (points - 1) for i in range(points))})


def planned(program: Program, wanted: Sequence[str], costs: Costs, budgets: Sequence[int], tell: Tell) -> list[Case]:
    """A Case for each different plan of a policy at these budgets."""
    cases: dict[tuple[str, str], Case] = {}
    for i, budget in enumerate(budgets):
        for policy in wanted:
            tell(i, len(budgets), f"{policy} in {sizes.text(budget)}")
            try:
                arrangement = arrange([program], policy, costs, budget)
            except BudgetError:
                continue
            plan = policy, str(arrangement.schedules["TRAIN"])
            if plan not in cases:
                cases[plan] = Case(policy, arrangement, costs)
            cases[plan].budgets.append(budget)
    return list(cases.values())


def run(
    network: str,
    batch: int | None,
    wanted: Sequence[str],
    threads: int,
    points: int,
    parts: Sequence[int],
    rounds: int,
    tell: Tell,
) -> tuple[list[Case], Row]:
    """Plan the cases, and run them in turns. Returns the cases with their seconds, and facts for the document.

    parts: percents of the arena of liveness:p, for budgets; empty: `points` budgets
    """
    device = CpuDevice(threads)
    net = nets.remembering(nets.found(network, batch))
    program = programs(net, nets.TRAIN, ("TRAIN",), fuses=device.fuses)["TRAIN"]
    costs = costs_of(device, [program], False, tell)
    if parts:
        whole = arrange([program], "liveness:p", costs).arena
        budgets = sorted({whole * part // 100 for part in parts})
    else:
        budgets = evenly(program, wanted, costs, points, tell)
    cases = planned(program, wanted, costs, budgets, tell)
    room = device.memory * 3 // 4
    twins: dict[tuple[Choice, ...], Arrangement] = {}
    for case in cases:
        if case.chosen not in twins:
            twins[case.chosen] = with_algorithms(program, costs, dict(zip(program.ops, case.chosen, strict=True)))
    room -= sum(t.arena + t.host for t in twins.values())
    for first in range(0, rounds, SITTING):
        turns = range(first, min(first + SITTING, rounds))
        for group in _groups(cases if first % (2 * SITTING) == 0 else cases[::-1], room):
            sessions: list[Session] = []
            steps: dict[tuple[Choice, ...], Steps] = {}
            try:
                for i, case in enumerate(group):
                    tell(i, len(group), f"{case.policy}: warming up for round {first + 1}")
                    session, _ = opened(net, device, case.policy, costs, WARM, min(case.budgets))
                    sessions.append(session)
                    if case.chosen not in steps:
                        steps[case.chosen] = Steps(device, twins[case.chosen])
                for i in turns:
                    for case, session in zip(group, sessions, strict=True):
                        tell(i, rounds, f"round {i + 1}: {case.policy}")
                        _meet(case, session, steps[case.chosen], twin_first=i % 2 == 0)
            finally:
                for twin in steps.values():
                    twin.close()
                for session in sessions:
                    shut(session)
    facts = {
        "budgets_bytes": budgets, "least_bytes": least_budget([program], costs),
        "bounds": bounds(program, costs, max(case.arrangement.arena for case in cases)), "device": device.description,
    }  # fmt: skip
    return cases, facts


def bounds(program: Program, costs: Costs, most: int) -> list[tuple[int, float]]:
    """(bytes, the least seconds within them as a part of those of liveness:p) from the least budget to `most` bytes."""
    bound = ProgramVariants(program, costs)
    usual = simulate(arrange([program], "liveness:p", costs).schedules[program.name], costs).seconds
    least = bound.least()
    found = ((b, bound.at(b)) for b in (least + (most - least) * i // POINTS for i in range(POINTS + 1)))
    return [(b, at.seconds / usual) for b, at in found if at is not None]


def _meet(case: Case, session: Session, twin: Steps, twin_first: bool) -> None:
    """Run a turn of the case and one of its twin, one right after the other, and note seconds and prediction."""
    if twin_first:
        case.twin.append(_turn(twin.step))
    case.seconds.append(_turn(lambda: _step(session)))
    if not twin_first:
        case.twin.append(_turn(twin.step))
    schedule = case.arrangement.schedules["TRAIN"]
    now = twin.seconds(schedule.program.ops, fmean)
    twin.taken.clear()
    seconds = {op: fmean(now[key(op, c.algorithm)]) for op, c in zip(schedule.program.ops, case.chosen, strict=True)}
    choices = remembering(lambda op: tuple(replace(c, seconds=seconds[op]) for c in case.costs.choices(op)))
    case.foreseen.append(simulate(schedule, replace(case.costs, choices=choices)).seconds)


def _turn(step: Callable[[], float]) -> float:
    """Seconds of one step: the mean over as many steps as fill a turn."""
    taken = [step()]
    while sum(taken) < TURN:
        taken.append(step())
    return fmean(taken)


def _groups(cases: Sequence[Case], room: int) -> Iterator[list[Case]]:
    """Groups of cases that together need at most `room` bytes."""
    group: list[Case] = []
    taken = 0
    for case in cases:
        need = case.arrangement.arena + case.arrangement.host
        if group and taken + need > room:
            yield group
            group, taken = [], 0
        group.append(case)
        taken += need
    if group:
        yield group


def _step(session: Session) -> float:
    began = perf_counter()
    train(session)
    return perf_counter() - began


# ---- results


def show(document: Row) -> None:
    lines = [
        [
            r["policy"], table.size(r["budget_bytes"]), table.size(r["peak_bytes"]), table.size(r["offload_bytes"]),
            table.duration(r["seconds"]), table.duration(r["predicted_seconds"]),
            f"{r['predicted_ratio']:.2f}", f"{r['over_liveness']:.2f}",
        ]
        for r in document["rows"]
    ]  # fmt: skip
    headings = ["policy", "from budget", "peak", "moved out", "measured", "foreseen", "ratio", "over liveness"]
    table.plain(headings, lines, f"{document['network']}, batch {document['batch']}: an iteration under budgets")
    near = sum(abs(r["predicted_ratio"] - 1) <= CLOSE for r in document["rows"])
    rounds = f"{document['rounds']} rounds"
    print(f"{near} of {len(document['rows'])} foreseen within {CLOSE:.0%}. All are medians of {rounds},")
    print(f"ratios too. {document['device']}")
    for line in ranks(document) if document["parts"] else ():
        print(line)


def ranks(document: Row) -> Iterator[str]:
    """A sentence for each budget: which policy is the quickest within it, and which are as quick within the spread."""
    for budget in document["budgets_bytes"]:
        over = {  # liveness, round by round
            r["policy"]: [a / b for a, b in zip(r["rounds"], r["liveness_rounds"], strict=True)]
            for r in document["rows"]
            if budget in r["budgets_bytes"]
        }
        if not over:
            least = sizes.text(document["least_bytes"])
            yield f"{sizes.text(budget)}: no policy keeps it; the bound asks for {least}"
            continue
        first = min(over, key=lambda policy: median(over[policy]))
        alike = [policy for policy in over if policy != first and min(over[policy]) <= max(over[first])]
        yield (
            f"{sizes.text(budget)}: {first} is the quickest of {len(over)}, {median(over[first]):.3f} of liveness"
            + (f"; within the spread {', '.join(alike)}" if alike else "")
        )


def save(document: Row) -> list[Path]:
    """Write the .json and .svg files, each whole or not at all. Returns their paths."""
    m = document["machine"]
    kind = "parts" if document["parts"] else "budgets"
    stem = f"{kind}-{document['network']}-{machine.slug(m['cpu'])}-{m['cores']}"
    paths = []
    for ending in ("json", "svg"):
        path = RESULTS / f"{stem}.{ending}"
        with replacing(path) as file:
            if ending == "json":
                table.dump(document, file)
            else:
                file.write(picture(document))
        paths.append(path)
    return paths


# ---- the command


def main(argv: Sequence[str] | None = None) -> int:
    args = _parser().parse_args(argv)
    try:
        network, batch = asked(args.network)
        check_policies(args.policies)
        if args.save:
            RESULTS.mkdir(exist_ok=True)
        with watched() as (_, say):

            def tell(done: int, of: int, text: str) -> None:
                say(done, of, f"{network}: {text}")

            cases, facts = run(network, batch, args.policies, args.threads, args.points, args.parts, args.rounds, tell)
    except (Wrong, BadInput, OSError) as error:
        print(f"benchmarks/budgets.py: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("benchmarks/budgets.py: interrupted; the costs that were measured are kept", file=sys.stderr)
        return 130
    rows = [case.row() for case in cases]
    document = {
        "rows": rows, "network": network, "batch": batch, "threads": args.threads, "rounds": args.rounds,
        "parts": args.parts,
        **facts, "machine": machine.described(), "date": date.today().isoformat(), "commit": commit(),
    }  # fmt: skip
    if args.json:
        table.dump(document)
    else:
        show(document)
    if args.save:
        for path in save(document):
            print(path, file=sys.stderr)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("benchmarks/budgets.py", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--network", default="vgg16:8", metavar="NET:BATCH", help="(default: %(default)s)")
    parser.add_argument("--policies", type=names, default=names(POLICIES), metavar="A,B", help=POLICIES)
    parser.add_argument("--threads", type=positive, default=2, metavar="N", help="(default: 2)")
    parser.add_argument("--points", type=several, default=POINTS, metavar="N", help=f"budgets (default: {POINTS})")
    parser.add_argument(
        "--parts", type=counts, default=[], metavar="P,Q", help="budgets, in percent of the arena of liveness:p"
    )
    parser.add_argument("--rounds", type=positive, default=ROUNDS, metavar="N", help=f"of turns (default: {ROUNDS})")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument("--save", action="store_true", help=f"write into {RESULTS.parent.name}/{RESULTS.name}")
    return parser


def several(text: str) -> int:
    count = positive(text)
    if count < 2:
        raise argparse.ArgumentTypeError("at least 2")
    return count


if __name__ == "__main__":
    sys.exit(main())
