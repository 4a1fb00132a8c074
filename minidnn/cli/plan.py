"""`minidnn plan FILE`: show what a policy does with memory, without running; `--listing` prints the schedule."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from minidnn import sizes
from minidnn.cli import subject
from minidnn.cli.options import PLANNED
from minidnn.cli.refused import answer, of_budget, pointer
from minidnn.costs import Costs
from minidnn.files.replace import unwritable
from minidnn.visible import say

if TYPE_CHECKING:
    from minidnn.study.compare import Result
    from minidnn.training.ram import Ram

REFUSED = 2  # the exit code if no policy keeps the budget; if some policies keep it and others do not, it is 0


def arguments(parser: argparse.ArgumentParser) -> None:
    subject.arguments(parser, *PLANNED, "json")
    parser.add_argument("--listing", action="store_true", help="print the schedule, like a disassembly")
    parser.add_argument(
        "--save", metavar="FILE.plan", help="write the plan: text to compare, and a --policy to run anywhere"
    )


def run(args: argparse.Namespace) -> int:
    from minidnn.backends import open_device
    from minidnn.memory.schedule import listing
    from minidnn.report import policies as report
    from minidnn.report import refusal, table
    from minidnn.study.compare import simulated
    from minidnn.training.card import beside_arena

    about = subject.read(args)
    setting = about.setting
    policies = subject.policies_of(args) or [setting.policy]
    subject.check_policies(policies)
    costs = replace(subject.costs_of(about, args.gpu), staging=about.setting.staging)
    if args.save:
        return _save(args, about, policies, costs)
    budgets = setting.budget, setting.host_budget
    results = simulated(about.programs, policies, costs, *budgets, setting.facts.name, about.train.name)
    own_memory = args.gpu is not None or open_device(setting.device).own_memory
    rams = {r.policy: _ram(about, r, own_memory) for r in results}
    if setting.ram is not None:  # else rows hold nothing of this process, and are the same each time
        for r in results:
            r.refused = r.refused or rams[r.policy].refusal(r.policy, setting.ram)
            r.more |= rams[r.policy].row()
    rows = [r.row() for r in results]
    told = None  # of the only policy, if a budget refused it
    if not args.policies and not args.listing and (error := results[0].refused) is not None and of_budget(error):
        told = answer(args, about, results[0].policy, error, costs)
    if args.json:
        table.dump({"rows": rows, "format": about.setting.format, "refused": told})
    elif args.listing:
        for r in results:
            if r.refused is not None:
                say(f"minidnn: {r.refused}; listed as under its smallest budget", file=sys.stderr)
            for schedule in r.arrangement.schedules.values():
                say(f"# {r.policy}")
                for line in listing(schedule):
                    say(line)
    else:
        pictured = told is not None and told["worst"] is not None
        title = f"{about.titled()}. {subject.notes(costs, about.setting.format)}"
        report.show(rows, title, why=not pictured)
        if args.gpu is None and (card := beside_arena(open_device(setting.device))):
            say(card)
        for r in results:
            if r.refused is None:
                report.show_peak(r.policy, r.schedule)
                say(f"{r.policy}: RAM in a run about {rams[r.policy]}")
        if told is not None:
            refusal.show(told)
        elif any(r.refused is not None and of_budget(r.refused) for r in results):
            say(pointer(args))
    return 0 if any(r.fits for r in results) else REFUSED


def _ram(about: subject.Subject, result: Result, own_memory: bool) -> Ram:
    """The bytes of this machine's memory that a run of this policy would take.

    own_memory: whether the device has memory of its own"""
    from minidnn.programs.build import named
    from minidnn.training.ram import Ram, staging_of

    programs = {program.name: program for program in about.programs}
    nets = named(about.net, ("TRAIN", "TEST"), about.tests)
    graphs = [net.graph(phase) for name, (net, phase) in nets.items() if name in programs]
    staging = staging_of(graphs, about.setting.workers)
    return Ram.of(result.arrangement, own_memory, programs, graphs, staging)


def _save(args: argparse.Namespace, about: subject.Subject, policies: list[str], costs: Costs) -> int:
    """Make the plan, prove it and write it. A plan that does not keep the budget is not written."""
    from minidnn.errors import InvalidInput
    from minidnn.memory.planning import arrange
    from minidnn.memory.policies import plan_file
    from minidnn.report import table

    path = Path(args.save)
    if len(policies) > 1 or args.listing:
        raise InvalidInput("--save writes one policy's plan, and no listing")
    if problem := unwritable(path, plan_file.SUFFIX):
        raise InvalidInput(f"--save {args.save}: {problem}")
    arrangement = arrange(about.programs, policies[0], costs, about.setting.budget, about.setting.host_budget)
    plan_file.save(path, arrangement, costs)
    if args.json:
        table.dump({"plan": str(path), "policy": arrangement.policy, "arena_bytes": arrangement.arena})
    else:
        size = sizes.text(arrangement.arena)
        say(f"{path}: {arrangement.policy} for {about.titled()} on {costs.device}, {size}, proved")
    return 0
