"""`minidnn frontier MODEL`: time against bytes, from the least budget to all that a plan can use, with the bound."""

from __future__ import annotations

import argparse

from minidnn.cli import subject
from minidnn.cli.help import examples
from minidnn.cli.values import positive, size
from minidnn.visible import status

POINTS = 12


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = examples(
        "minidnn frontier resnet20 --batch 256 --gpu titan_x --report resnet20.svg",
        "minidnn frontier resnet20 --batch 256 --gpu titan_x --budget 300MiB --step 100MiB",
    )
    subject.arguments(
        parser, "policies", "budget", "host_budget", "device", "costs", "format", "state", "gpu", "ranks", "facts",
        "torch", "json",
    )  # fmt: skip
    parser.add_argument(
        "--step", type=size, metavar="SIZE",
        help="plan for three budgets only: --budget, and SIZE below and above it",
    )  # fmt: skip
    parser.add_argument(
        "--points", type=positive, default=POINTS, metavar="N", help=f"number of budgets to try (default: {POINTS})"
    )
    subject.report(parser, "a page (.html), a picture (.svg, .png), the rows")


def run(args: argparse.Namespace) -> int:
    from minidnn.api import frontier
    from minidnn.errors import InvalidInput

    subject.check_report(args, frontier.Frontier)
    if args.budget is not None and not args.step:
        raise InvalidInput(
            "--budget: a frontier tries many budgets; add --step SIZE to try this one and its two neighbours"
        )
    result = frontier.of(subject.planned(args), args.policies or (), args.points, args.step, status)
    subject.deliver(args, result)
    return 0
