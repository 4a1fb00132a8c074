"""`minidnn frontier MODEL`: time against bytes, from the least budget to all that a plan can use, with the bound."""

from __future__ import annotations

import argparse
from pathlib import Path

from minidnn.cli import subject
from minidnn.cli.options import positive, size
from minidnn.files.replace import replacing, unwritable
from minidnn.visible import say, status

POINTS = 12


def arguments(parser: argparse.ArgumentParser) -> None:
    subject.arguments(parser, "policies", "budget", "device", "format", "state", "gpu", "facts", "json")
    parser.add_argument(
        "--step", type=size, metavar="SIZE",
        help="ask three budgets only: --budget, this much less and this much more",
    )  # fmt: skip
    parser.add_argument(
        "--points", type=positive, default=POINTS, metavar="N", help=f"budgets that are tried (default: {POINTS})"
    )
    parser.add_argument("--report", metavar="FILE.svg", help="write a picture")


def run(args: argparse.Namespace) -> int:
    from minidnn.errors import InvalidInput
    from minidnn.memory.joint.linear import NoSolver
    from minidnn.report import frontier as report
    from minidnn.report import table
    from minidnn.results.budgets import BoundRow, Frontier
    from minidnn.study.frontier import frontier

    if args.report and (problem := unwritable(Path(args.report), ".svg")):
        raise InvalidInput(f"--report {args.report}: {problem}")
    if args.points < 2:
        raise InvalidInput("--points: a frontier has two or more")
    policies = args.policies or []
    subject.check_policies(policies)
    about = subject.read(args)
    costs = subject.costs_of(about, args.gpu)
    budgets: list[int] = []
    budget = about.setting.budget
    if args.step:
        if budget is None or args.step >= budget:
            raise InvalidInput("--step: needs a larger --budget, which it is taken from and added to")
        budgets = [budget - args.step, budget, budget + args.step]
    elif args.budget is not None:
        raise InvalidInput("--budget: a frontier asks many budgets; with --step SIZE, this one and two beside it")
    try:
        found = frontier(about.programs, policies, costs, args.points, about.train.name, status, budgets)
    except NoSolver as reason:
        raise InvalidInput(f"a frontier {reason}") from None
    finally:
        status()
    rows = [p.row() for p in found.points]
    notes = subject.notes(costs, about.setting.format)
    if args.report:
        with replacing(Path(args.report)) as file:
            title = f"{about.titled()}: seconds of a step against its bytes"
            file.write(report.picture(rows, found.bounds, title, notes))
    if args.json:
        bounds = [BoundRow(budget_bytes=b, bound_seconds=s) for b, s in found.bounds]
        known = about.simulated(costs)
        table.dump(Frontier(rows=rows, bounds=bounds, least_bytes=found.least, reached_bytes=found.reached, **known))
    else:
        report.show(rows, f"{about.titled()}. {notes}", found.least, found.reached)
        if args.report:
            say(f"report: {args.report}")
    return 0
