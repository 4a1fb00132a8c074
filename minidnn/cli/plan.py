"""`minidnn plan FILE`: show what a policy does with memory, without running; `--listing` prints the schedule."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from minidnn import sizes
from minidnn.cli import subject
from minidnn.cli.help import examples
from minidnn.cli.options import PLANNED
from minidnn.cli.refused import pointer
from minidnn.files.replace import unwritable
from minidnn.visible import say, status

if TYPE_CHECKING:
    from minidnn.api.plan import Plans
    from minidnn.jobs.plannable import Plannable

REFUSED = 2  # the exit code if no policy keeps the budget; if some policies keep it and others do not, it is 0


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = examples(
        "minidnn plan resnet50 --batch 64 --budget 4GiB --gpu titan_x",
        "minidnn plan vgg16 --policies vdnn_all,vdnn_conv:m --gpu titan_x --report vgg16.html",
        "minidnn plan lenet --policy best --budget 6MiB --gpu k40 --save lenet.plan",
        "minidnn plan net.yaml --import far.py --policy far --listing",
        "minidnn plan resnet50 --gpu rtx3060 --budget 4GiB --trace step.json --arena arena.html",
        "minidnn plan train.py:make --torch --gpu rtx4090 --policies liveness,best --budget 12GiB",
        "minidnn plan resnet50 --gpu h100 --ranks 1,2,4,...,1024 --link 8xnvlink4+ib100 --report scaling.svg",
    )
    subject.arguments(parser, *PLANNED, "json", "trace", "arena")
    parser.add_argument("--listing", action="store_true", help="list the instructions of the schedule")
    parser.add_argument(
        "--save",
        metavar="FILE.plan",
        help="write the plan as text, to compare it, or to run it on any machine with --policy FILE.plan",
    )
    subject.report(parser, "a page (.html), a picture (.svg, .png), the rows")


def run(args: argparse.Namespace) -> int:
    from minidnn.api import plan
    from minidnn.memory.budget import of_budget
    from minidnn.report import table

    subject.check_report(args, plan.Plans)
    subject.check_steps(args)
    if args.ranks is not None and len(args.ranks) > 1:
        return _scaling(args)
    job = subject.planned(args)
    policies = subject.policies_of(args) or [job.setting.policy]
    if args.save:
        return _save(args, job, policies)
    result = plan.of(job, policies)
    text = None if args.policies or args.listing else result.explain(status)
    subject.write_report(args, result)
    subject.write_steps(args, result)
    if args.json:
        table.dump(result.document)
    elif args.listing:
        _list(result)
    else:
        _show(args, result)
        if text is None and any(r.refused is not None and of_budget(r.refused) for r in result.results):
            say(pointer(args))
        subject.tell_report(args)
    return 0 if any(r.fits for r in result.results) else REFUSED


def _scaling(args: argparse.Namespace) -> int:
    """The speed on several numbers of ranks."""
    from minidnn.api import scaling
    from minidnn.errors import InvalidInput

    subject.check_nets(args, "--ranks")
    taken = {
        "--save": args.save,
        "--listing": args.listing,
        "--trace": args.trace,
        "--effort": args.effort,
        "--arena": args.arena,
    }
    if flag := next((flag for flag, value in taken.items() if value), None):
        raise InvalidInput(f"{flag} takes one plan, and --ranks asks for {len(args.ranks)}: name one number of ranks")
    scaling.checked(args.ranks)
    job = subject.read(args)
    result = scaling.of(job, subject.policies_of(args) or [job.setting.policy], args.ranks, status)
    subject.deliver(args, result)
    return 0 if any(row.fits for row in result.rows) else REFUSED


def _show(args: argparse.Namespace, plans: Plans) -> None:
    """Print the table, the live bytes at each policy's peak, and remedies for a refusal."""
    from minidnn.backends import open_device
    from minidnn.report import policies as report
    from minidnn.report import refusal
    from minidnn.report.table import prose
    from minidnn.training.card import beside_arena

    text = plans.document.refused
    pictured = text is not None and text.worst is not None
    report.show(plans.rows, f"{plans.title}. {plans.notes}", why=not pictured)
    if args.gpu is None and (card := beside_arena(open_device(plans.job.setting.device))):
        say(card)
    plans.show_peaks()
    for r in plans.results:
        if r.refused is None and plans.document.peaks is None:
            report.show_peak(r.policy, r.schedule)
        if r.refused is None and r.policy in plans.rams:
            prose(f"{r.policy}: a run takes RAM of about {plans.rams[r.policy]}")
            if args.gpu is None and (refused := plans.rams[r.policy].refusal(r.policy)):
                say(f"minidnn: a run here would be refused: {refused}", file=sys.stderr)
    if plans.document.pytorch:
        report.show_pytorch(plans.document.pytorch)
    if text is not None:
        refusal.show(text)


def _list(plans: Plans) -> None:
    from minidnn.memory.schedule import listing

    for r in plans.results:
        if r.refused is not None:
            say(f"minidnn: {r.refused}; the listing is for its smallest budget", file=sys.stderr)
        for schedule in r.arrangement.schedules.values():
            say(f"# {r.policy}")
            for line in listing(schedule):
                say(line)


def _save(args: argparse.Namespace, job: Plannable, policies: list[str]) -> int:
    """Make the plan, prove it and write it. A plan that does not keep the budget is not written."""
    from minidnn.api import header
    from minidnn.errors import InvalidInput
    from minidnn.memory.planning import arrange
    from minidnn.memory.policies import plan_file
    from minidnn.memory.policies.check import check_policies, looking_longer
    from minidnn.report import table
    from minidnn.results.policies import SavedPlan

    path = Path(args.save)
    if len(policies) > 1 or args.listing:
        raise InvalidInput("--save writes the plan of one policy: name one policy, and leave out --listing")
    if flags := subject.step_options(args):
        raise InvalidInput(f"--save makes a plan and simulates no step: leave out {flags[0]}")
    if problem := unwritable(path, plan_file.SUFFIX):
        raise InvalidInput(f"--save {args.save}: {problem}")
    check_policies(policies)
    costs = job.costs()
    with looking_longer(policies, job.setting.effort):
        arrangement = arrange(job.programs, policies[0], costs, job.setting.budget, job.setting.host_budget)
    plan_file.save(path, arrangement, costs)
    if args.json:
        table.dump(SavedPlan(file=str(path), policy=arrangement.policy, peak_bytes=arrangement.arena))
    else:
        size = sizes.text(arrangement.arena)
        say(f"{path}: {arrangement.policy} for {header.title(job)} on {costs.device}, {size}, proved")
    return 0
