"""`minidnn reproduce [SYSTEM ...]`: the papers' tables and figures, compared with ours."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import minidnn
from minidnn.cli.help import examples
from minidnn.cli.options import FILES, common, group
from minidnn.files.replace import replacing, unwritable
from minidnn.visible import say, status

NOTES = (
    "Memory and traffic are planned on the papers' own networks with their memory facts; seconds are simulated on "
    "profiles of their GPUs (titan_x and k40), calibrated once, as docs/costs.md says, and used for all."
)


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = examples(
        "minidnn reproduce vdnn",
        "minidnn reproduce --report papers.html",
    )
    parser.add_argument("systems", nargs="*", metavar="SYSTEM", help="{systems}, or all (the default)")
    common(parser, "json")
    group(parser, FILES).add_argument("--report", metavar="FILE.html", help="write one page with pictures")


def run(args: argparse.Namespace) -> int:
    from minidnn.errors import InvalidInput, near
    from minidnn.report import reproduce as report
    from minidnn.report import table
    from minidnn.results.others import ReproducedRow, Reproduction
    from minidnn.study.reproduce import SYSTEMS, rows, verdicts

    if unknown := [s for s in args.systems if s not in (*SYSTEMS, "all")]:
        raise InvalidInput(
            f"there is no system {unknown[0]!r}{near(unknown[0], SYSTEMS)}; there are {', '.join(SYSTEMS)}, and all"
        )
    if args.report and (problem := unwritable(Path(args.report), ".html")):
        raise InvalidInput(f"--report {args.report}: {problem}")
    wanted = [s for s in SYSTEMS if s in args.systems or not args.systems or "all" in args.systems]
    begun = time.perf_counter()

    def tell(what: str) -> None:
        status(f"{time.perf_counter() - begun:5.0f} s  {what}")

    found: list[ReproducedRow] = []
    interrupted = False
    try:
        for system in wanted:
            for row in rows(system, tell):
                found.append(row.row())
    except KeyboardInterrupt:  # show the rows found so far before the interrupt is raised again
        interrupted = True
    status()
    counted = verdicts(found)
    if args.report:
        with replacing(Path(args.report)) as file:
            file.write(report.page(found, counted, NOTES, minidnn.__version__))
    if args.json:
        table.dump(Reproduction(rows=found, verdicts=counted))
    else:
        report.show(found)
        report.show_verdicts(counted)
        say(f"{report.summary(found)}. {NOTES}")
        if args.report:
            say(f"report: {args.report}")
    if interrupted:
        raise KeyboardInterrupt
    return 0
