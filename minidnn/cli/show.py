"""`minidnn show NET`: the layers of a net, with their shapes, parameters, operations and bytes."""

from __future__ import annotations

import argparse

from minidnn.cli import subject
from minidnn.cli.help import examples
from minidnn.cli.options import common


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = examples(
        "minidnn show googlenet",
        "minidnn show deploy.prototxt --phase TEST --batch 1",
    )
    subject.arguments(parser)
    parser.add_argument("--phase", choices=("TRAIN", "TEST"), default="TRAIN", help="the phase (default: TRAIN)")
    common(parser, "json")
    subject.report(parser, "a page (.html), the rows")


def run(args: argparse.Namespace) -> int:
    from minidnn.api import show

    subject.check_report(args, show.Shown)
    subject.deliver(args, show.of(subject.understood(args.file, args, simulated=True), args.phase))
    return 0
