"""`minidnn reproduce [SYSTEM ...]`: the papers' tables and figures, compared with ours."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence

from minidnn.cli import subject
from minidnn.cli.completion import offer
from minidnn.cli.help import examples
from minidnn.cli.options import common
from minidnn.errors import InvalidInput, near
from minidnn.visible import status
from minidnn_papers import SYSTEMS, figures, parts, rows, verdicts
from minidnn_papers.records import ReproducedRow, Reproduction

NOTES = (
    "Memory and traffic are planned on the papers' own networks with their memory facts; seconds are simulated on "
    "profiles of their GPUs (titan_x and k40), calibrated once, as docs/costs.md says, and used for all. Accuracies "
    "are those of trainings on cpu."
)


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = examples(
        "minidnn reproduce vdnn",
        'minidnn reproduce superneurons --figure "Figure 10" --report series.svg',
        "minidnn reproduce --report papers.html",
    )
    what = f"{', '.join(SYSTEMS)}, or all (the default)"
    offer(parser.add_argument("systems", nargs="*", metavar="SYSTEM", help=what), lambda: [*SYSTEMS, "all"])
    parser.add_argument(
        "--figure", action="append", default=[], metavar="NAME",
        help='only this figure or table of the papers, such as "Figure 11", abstract, or with a quantity, "Figure 11, '
        'average"; may be given several times',
    )  # fmt: skip
    common(parser, "json")
    subject.report(parser, "one page with pictures (.html), the pictures alone (.svg, .png), the rows")


def run(args: argparse.Namespace) -> int:
    """Print what could be computed, also if Ctrl-C ends it early. Raises InvalidInput, KeyboardInterrupt."""
    from minidnn_papers.report import Reproduced

    wanted = having(systems(args.systems), args.figure)
    subject.check_report(args, Reproduced)
    reproduced: list[ReproducedRow] = []
    interrupted = False
    try:
        _reproduce(wanted, args.figure, reproduced)
    except KeyboardInterrupt:
        interrupted = True
    status()
    document = Reproduction(rows=reproduced, verdicts=verdicts(reproduced))
    subject.deliver(args, Reproduced(document, title(wanted, args.figure), NOTES))
    if interrupted:
        raise KeyboardInterrupt
    return 0


def title(wanted: Sequence[str], names: Sequence[str]) -> str:
    """The title of these figures of these systems; of all, without names."""
    whose = SYSTEMS[wanted[0]] if len(wanted) == 1 else "The papers' figures, theirs and ours"
    return f"{whose}: {' and '.join(names)}" if names else whose


def having(wanted: Sequence[str], names: Sequence[str]) -> list[str]:
    """The systems that have one of these figures. Raises InvalidInput for a figure that none has."""
    for name in names:
        if not any(part.concerns([name]) for system in wanted for part in parts(system)):
            known = list(dict.fromkeys(figure for system in wanted for figure in figures(system)))
            raise InvalidInput(
                f"--figure: {', '.join(wanted)} {'have' if len(wanted) > 1 else 'has'} no {name!r}{near(name, known)}; "
                f"there are {', '.join(known)}"
            )
    return [system for system in wanted if any(part.concerns(names) for part in parts(system))]


def systems(names: Sequence[str]) -> list[str]:
    """The systems of a command line, in their order; all if it names none. Raises InvalidInput for a name of none."""
    if unknown := [name for name in names if name not in (*SYSTEMS, "all")]:
        raise InvalidInput(
            f"there is no system {unknown[0]!r}{near(unknown[0], SYSTEMS)}; there are {', '.join(SYSTEMS)}, and all"
        )
    return [system for system in SYSTEMS if system in names or not names or "all" in names]


def _reproduce(wanted: Sequence[str], names: Sequence[str], reproduced: list[ReproducedRow]) -> None:
    """Append the rows of these systems, each as soon as it is computed, and show what is being computed."""
    begin = time.perf_counter()
    for system in wanted:
        for row in rows(system, lambda what: status(f"{time.perf_counter() - begin:5.0f} s  {what}"), names):
            reproduced.append(row.row())
