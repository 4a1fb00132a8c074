"""`minidnn reproduce [SYSTEM ...]`: the papers' tables and figures, compared with ours."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path

from minidnn.cli.completion import offer
from minidnn.cli.help import examples
from minidnn.cli.options import FILES, common, group
from minidnn.errors import InvalidInput, near
from minidnn.files.replace import replacing, unwritable
from minidnn.version import __version__
from minidnn.visible import say, status
from minidnn_papers import SYSTEMS, rows, verdicts
from minidnn_papers.records import ReproducedRow, Reproduction

NOTES = (
    "Memory and traffic are planned on the papers' own networks with their memory facts; seconds are simulated on "
    "profiles of their GPUs (titan_x and k40), calibrated once, as docs/costs.md says, and used for all."
)


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = examples(
        "minidnn reproduce vdnn",
        "minidnn reproduce --report papers.html",
    )
    what = f"{', '.join(SYSTEMS)}, or all (the default)"
    offer(parser.add_argument("systems", nargs="*", metavar="SYSTEM", help=what), lambda: [*SYSTEMS, "all"])
    common(parser, "json")
    group(parser, FILES).add_argument("--report", metavar="FILE.html", help="write one page with pictures")


def run(args: argparse.Namespace) -> int:
    """Print what could be computed, also if Ctrl-C ends it early. Raises InvalidInput, KeyboardInterrupt."""
    wanted = systems(args.systems)
    if args.report and (problem := unwritable(Path(args.report), ".html")):
        raise InvalidInput(f"--report {args.report}: {problem}")
    reproduced: list[ReproducedRow] = []
    interrupted = False
    try:
        _reproduce(wanted, reproduced)
    except KeyboardInterrupt:
        interrupted = True
    status()
    _publish(Reproduction(rows=reproduced, verdicts=verdicts(reproduced)), args)
    if interrupted:
        raise KeyboardInterrupt
    return 0


def systems(names: Sequence[str]) -> list[str]:
    """The systems of a command line, in their order; all if it names none. Raises InvalidInput for a name of none."""
    if unknown := [name for name in names if name not in (*SYSTEMS, "all")]:
        raise InvalidInput(
            f"there is no system {unknown[0]!r}{near(unknown[0], SYSTEMS)}; there are {', '.join(SYSTEMS)}, and all"
        )
    return [system for system in SYSTEMS if system in names or not names or "all" in names]


def _reproduce(wanted: Sequence[str], reproduced: list[ReproducedRow]) -> None:
    """Append the rows of these systems, each as soon as it is computed, and show what is being computed."""
    begin = time.perf_counter()
    for system in wanted:
        for row in rows(system, lambda what: status(f"{time.perf_counter() - begin:5.0f} s  {what}")):
            reproduced.append(row.row())


def _publish(document: Reproduction, args: argparse.Namespace) -> None:
    """Print the document as --json says, and write the page of --report."""
    from minidnn.report import table
    from minidnn_papers import report

    if args.report:
        with replacing(Path(args.report)) as file:
            file.write(report.page(document.rows, document.verdicts, NOTES, __version__))
    if args.json:
        table.dump(document)
        return
    report.show(document.rows)
    report.show_verdicts(document.verdicts)
    say(f"{report.summary(document.rows)}. {NOTES}")
    if args.report:
        say(f"report: {args.report}")
