"""`minidnn cards MODEL`: which of the known GPUs is enough for a network, and at what loss of time."""

from __future__ import annotations

import argparse

from minidnn.cli import subject
from minidnn.visible import status


def arguments(parser: argparse.ArgumentParser) -> None:
    subject.arguments(parser, "format", "state", "facts", "json")


def run(args: argparse.Namespace) -> int:
    from minidnn.report import cards as report
    from minidnn.report import table
    from minidnn.results.budgets import Cards
    from minidnn.study.cards import cards

    about = subject.read(argparse.Namespace(**{**vars(args), "gpu": "any"}))  # its ops are fused as for any GPU
    try:
        found = cards(about.programs, about.train.name, status)
    finally:
        status()
    rows = [card.row(about.batch) for card in found]
    if args.json:
        table.dump(Cards(rows=rows, net=about.name, batch=about.batch, format=about.setting.format))
    else:
        report.show(rows, about.titled())
    return 0
