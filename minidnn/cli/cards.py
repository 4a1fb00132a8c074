"""`minidnn cards MODEL`: which of the known GPUs is enough for a network, and at what loss of time."""

from __future__ import annotations

import argparse

from minidnn.cli import subject
from minidnn.cli.help import examples
from minidnn.cli.values import names
from minidnn.visible import status


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = examples(
        "minidnn cards resnet50 --batch 64",
        "minidnn cards resnet50 --batch 64 --gpus 3060,4090",
        "minidnn cards vgg16 --format bfloat16 --report cards.csv",
        "minidnn cards train.py:make --torch",
    )
    subject.arguments(parser, "host_budget", "format", "state", "facts", "torch", "json")
    subject.report(parser, "a page (.html), the rows")

    parser.add_argument(
        "--gpus", type=names, metavar="A,B", help="only these GPUs, by any of their names (default: all)"
    )


def run(args: argparse.Namespace) -> int:
    from minidnn.api import cards

    subject.check_report(args, cards.Cards)
    result = cards.of(subject.planned(argparse.Namespace(**{**vars(args), "gpu": cards.ANY})), args.gpus, status)
    subject.deliver(args, result)
    return 0
