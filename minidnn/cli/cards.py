"""`minidnn cards MODEL`: which of the known GPUs is enough for a network, and at what loss of time."""

from __future__ import annotations

import argparse

from minidnn.cli import subject
from minidnn.cli.help import examples
from minidnn.visible import status


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = examples(
        "minidnn cards resnet50 --batch 64",
        "minidnn cards vgg16 --format bfloat16 --report cards.csv",
    )
    subject.arguments(parser, "format", "state", "facts", "json")
    subject.report(parser, "the rows")


def run(args: argparse.Namespace) -> int:
    from minidnn.api import cards
    from minidnn.report import cards as report
    from minidnn.report import table

    subject.check_report(args, cards.Cards)
    found = cards.of(subject.read(argparse.Namespace(**{**vars(args), "gpu": cards.ANY})), status)
    subject.write_report(args, found)
    if args.json:
        table.dump(found.document)
    else:
        report.show(found.rows, found.title)
        subject.tell_report(args)
    return 0
