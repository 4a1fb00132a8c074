"""`minidnn compare FILE`: policies side by side, run on a device, or simulated on a GPU's profile."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import minidnn
from minidnn import sizes
from minidnn.cli import subject
from minidnn.cli.options import positive
from minidnn.cli.refused import pointer
from minidnn.files.replace import replacing, unwritable
from minidnn.visible import say, status

# The policies that are compared without --policies: one or more of each system. A simulated GPU offers several
# algorithms per op, and the papers measure against baseline with the fastest ones (":p"). With a budget, minidnn's own
# policy is one more.
RUN = ["baseline", "liveness", "vdnn_all", "vdnn_dyn", "vdnn_pp", "superneurons", "layrub", "accudnn"]
SIMULATED = ["baseline:p", "liveness:p", "vdnn_all:p", "vdnn_dyn", "vdnn_pp:p", "superneurons", "layrub:p", "accudnn:p"]


def arguments(parser: argparse.ArgumentParser) -> None:
    subject.arguments(
        parser, "policies", "budget", "host_budget", "ring", "device", "format", "state", "gpu", "facts", "seed", "json"
    )
    parser.add_argument(
        "--steps", type=positive, metavar="N", help="steps to run (default: 8 to 60; more if a step is short)"
    )
    parser.add_argument(
        "--report", metavar="FILE", help="write a page (.html), or the timelines alone as a picture (.svg)"
    )


def run(args: argparse.Namespace) -> int:
    from minidnn.backends import open_device
    from minidnn.errors import InvalidInput
    from minidnn.memory.policies import BUDGETED
    from minidnn.report import policies as report
    from minidnn.report import table
    from minidnn.results.policies import Comparison
    from minidnn.study.compare import simulated
    from minidnn.training.card import beside_arena

    if args.report and (problem := unwritable(Path(args.report), ".html", ".svg")):
        raise InvalidInput(f"--report {args.report}: {problem}")
    about = subject.read(args)
    budgeted = [BUDGETED] if about.setting.budget is not None else []
    policies = args.policies or [*(RUN if args.gpu is None else SIMULATED), *budgeted]
    subject.check_policies(policies)
    costs = replace(subject.costs_of(about, args.gpu), staging=about.setting.staging)
    setting = about.setting
    budget, host_budget = setting.budget, setting.host_budget
    device = None  # what ran
    if args.gpu is not None or setting.facts.planning_only():
        results = simulated(about.programs, policies, costs, budget, host_budget, setting.facts.name, about.train.name)
        notes, header = subject.notes(costs, setting.format), about.simulated(costs)
    else:
        results = _ran(about, policies, costs, budget, host_budget, args)
        device = open_device(setting.device)
        header = about.run()
        timed = max(len(r.steps) for r in results)
        notes = f"{timed} timed steps each, in turn; medians, with 95 % intervals. On {subject.described(about)}."
    rows = [r.row() for r in results]
    limit = budget if budget is not None else costs.memory if args.gpu else None
    if args.report:
        _write(Path(args.report), results, rows, limit, about, notes)
    if args.json:
        taken = device.beside() if device else None
        table.dump(Comparison(rows=rows, **header, beside_arena_bytes=taken))
    else:
        allowed = f", budget {sizes.text(budget)}" if budget else ""
        report.show(rows, f"{about.titled()}{allowed}. {notes}")
        if any(r.refused for r in results):
            say(pointer(args))
        if device and (line := beside_arena(device)):
            say(f"{line} after the steps")
        if args.report:
            say(f"report: {args.report}")
    return 1 if any(r.identical is False for r in results) else 0


def _ran(about: subject.Subject, policies: list[str], costs, budget, host_budget, args: argparse.Namespace):
    from minidnn.study.run import ran

    def tell(text: str) -> None:
        if not args.json:
            status(text)

    try:
        return ran(
            about.runner(), about.programs, policies, costs, budget, host_budget, args.steps, about.train.name, tell
        )
    finally:
        tell("")


def _write(path: Path, results, rows, budget: int | None, about: subject.Subject, notes: str) -> None:
    """Write the report. If the disk is full, an older report of that name stays as it was."""
    from minidnn.report.compare import page
    from minidnn.report.draw import picture
    from minidnn.report.panel import panel

    panels = [panel(r.policy, row, r.schedule, r.trace) for r, row in zip(results, rows, strict=True)]
    heading = about.titled() + (f", in {sizes.text(budget)}" if budget is not None else "")
    if path.suffix == ".svg":
        text = picture(panels, budget, heading, notes)
    else:
        text = page(panels, budget, heading, notes, minidnn.__version__)
    with replacing(path) as file:
        file.write(text)
