"""`minidnn plan FILE.yaml`: what a policy does with memory, without running; `--listing` prints the schedule."""

from __future__ import annotations

import argparse
import sys

from minidnn import sizes
from minidnn.cli import subject


def arguments(parser: argparse.ArgumentParser) -> None:
    subject.arguments(parser, "policy", "policies", "budget", "host_budget", "device", "format", "gpu", "facts", "json")
    parser.set_defaults(device=None)
    parser.add_argument("--listing", action="store_true", help="print the schedule, like a disassembly")


def run(args: argparse.Namespace) -> int:
    from minidnn.report import table
    from minidnn.study.compare import simulated

    about = subject.read(args)
    default = (about.solver is not None and about.solver.minidnn.policy) or "liveness"
    policies = args.policies or [args.policy or default]
    subject.check_policies(policies)
    costs = subject.costs_of(about, args.gpu)
    results = simulated(
        about.programs, policies, costs, *subject.budgets(about, args), args.facts or "default", about.train.name
    )
    rows = [r.row() for r in results]
    if args.json:
        table.dump({"rows": rows, "format": about.format})
    elif args.listing:
        for r in results:
            if r.refused is not None:
                print(f"minidnn: {r.refused}; listed as under its smallest budget", file=sys.stderr)
            for schedule in r.arrangement.schedules.values():
                print(f"# {r.policy}")
                print(schedule)
    else:
        table.show(rows, f"{about.titled()}. {subject.notes(costs, about.format)}")
        for r in results:
            _worst(r)
    return 0  # that a policy is refused is an answer, not a failure


def _worst(result) -> None:
    """The tensors that live when most bytes do."""
    from minidnn.report import table

    schedule = result.schedule
    live = schedule.live(schedule.peak_point)
    named, rest = live[:8], live[8:]
    lines = [[b.label, sizes.text(b.nbytes)] for b in named]
    if rest:
        lines.append([f"and {len(rest)} more", sizes.text(sum(b.nbytes for b in rest))])
    op = schedule.plan.order[schedule.peak_point]
    title = f"{result.policy}: most bytes live, {sizes.text(schedule.live_peak)}, at {op.name}"
    table.plain(["tensor", "bytes"], lines, title)
