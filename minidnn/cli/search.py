"""`minidnn search --max batch MODEL`: the largest batch that a policy places within a budget; `--max size MODEL`: the
largest images; `--max depth FAMILY`: the largest depth."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import Any

from minidnn import sizes
from minidnn.cli import subject
from minidnn.cli.options import positive
from minidnn.program import Program
from minidnn.results.budgets import Excluded, Search, SearchRow
from minidnn.visible import say, status

SECONDS = 600
SIDE = 32  # pixels: most nets halve their images five times
WIDEST = 1 << 16  # pixels a side


def arguments(parser: argparse.ArgumentParser) -> None:
    subject.arguments(
        parser, "policy_searched", "policies", "budget", "host_budget", "device", "format", "state", "gpu", "facts",
        "json",
    )  # fmt: skip
    parser.add_argument(
        "--max", required=True, choices=tuple(KINDS),
        help="find the largest batch of a net, the largest side of its images in pixels, or the largest depth (then "
        "FILE is {families})",
    )  # fmt: skip
    parser.add_argument(
        "--step", type=positive, metavar="N",
        help=f"try multiples of N only (default: every batch and depth, every {SIDE}th side)",
    )  # fmt: skip
    parser.add_argument(
        "--seconds", type=positive, default=SECONDS, metavar="S",
        help=f"time limit per policy, after which no further size is tried (default: {SECONDS})",
    )  # fmt: skip


def run(args: argparse.Namespace) -> int:
    from minidnn.memory.policies import names
    from minidnn.report import search as report
    from minidnn.report import table
    from minidnn.study.search import largest

    policies = subject.policies_of(args) or names()
    subject.check_policies(policies, sizes=True)
    make, series, probes, about, model = KINDS[args.max](args)
    costs = subject.costs_of(about, args.gpu, sizes=True)
    budget, host_budget = about.setting.budget, about.setting.host_budget
    budget = costs.memory if budget is None else budget
    rows: list[SearchRow] = []
    beyond = None

    def say() -> None:
        header = {**about.simulated(costs), "net": model, "batch": None if args.max == "batch" else about.batch}
        document = Search(rows=rows, budget_bytes=budget, host_budget_bytes=host_budget, excluded=beyond, **header)
        if args.json:
            table.dump(document)
        else:
            title = model if args.max == "batch" else f"{model}, batch {about.batch}"
            title += ", pixels a side" if args.max == "size" else ""
            title = f"{title}, {sizes.text(budget)}. {subject.notes(costs, about.setting.format)}"
            report.show(document, args.max, title)

    try:
        for policy in policies:
            watch = _progress(args.max, policy, budget)
            found = largest(make, series, policy, costs, budget, probes, host_budget, args.seconds, watch)
            rows.append(_row(found, args.max, model, about, costs, budget))
        beyond = _excluded(make, series, costs, budget, rows, args.max)
    except BaseException:  # mostly Ctrl-C: show the rows found so far, since they took long to find
        if rows:
            say()
        raise
    say()
    return 0  # also if nothing fits: that is a result, not a failure


Make = Callable[[int], Sequence[Program]]


def _excluded(make: Make, series: Any, costs: Any, budget: int, rows: Any, what: str) -> Excluded | None:
    """The smallest size that the bound excludes; None if there is none, or no solver."""
    from minidnn.memory.joint.linear import NoSolver
    from minidnn.study.search import excluded

    most = max((row[what] for row in rows if row[what] is not None), default=None)
    try:
        found = excluded(make, series, costs, budget, most, lambda size: status(f"the bound of {what} {size}"))
    except NoSolver as reason:
        say(f"minidnn: no bound, since that {reason}", file=sys.stderr)
        return None
    finally:
        status()
    return None if found is None else Excluded(**{what: found.size}, least_bytes=found.least)


def _batch(args: argparse.Namespace) -> tuple[Make, Any, tuple[int, int], subject.Subject, str]:
    from minidnn.errors import InvalidInput
    from minidnn.schema.message import LARGEST
    from minidnn.study.search import Series

    if args.batch:
        raise InvalidInput("--max batch looks for the batch: leave out --batch")
    about = subject.read(args)
    step = args.step or 1
    if step > LARGEST:
        raise InvalidInput(f"--step {step}: there is no batch of more than {LARGEST}")
    series = Series(step, step, LARGEST // step * step)
    start = series[series.number(about.batch or 1)]
    return lambda batch: _late(about.at_batch(batch)), series, (start, 4 * start), about, about.name


def _size(args: argparse.Namespace) -> tuple[Make, Any, tuple[int, int], subject.Subject, str]:
    from minidnn.errors import InvalidInput
    from minidnn.study.search import Series

    about = subject.read(args)
    side = next((t.shape[-1] for t in about.train.inputs if len(t.shape) == 4), None)
    step = args.step or SIDE
    if side is None:
        raise InvalidInput(f"--max size: no input of {about.name} is a batch of images, (N, C, H, W)")
    if step > WIDEST:
        raise InvalidInput(f"--step {step}: no image has a side of more than {WIDEST} pixels here")
    first = _smallest(about, range(step, max(side, step) + 1, step))
    series = Series(first, step, WIDEST // step * step)
    start = series[series.number(side)]
    return lambda size: _late(about.at_images(size)), series, (start, 2 * start), about, about.name


def _smallest(about: subject.Subject, sides: Sequence[int]) -> int:
    """The smallest of these sides at which the net can be made: images must not end before its layers do."""
    from minidnn.errors import BadInput

    for side in sides:
        try:
            about.at_images(side)
        except BadInput:
            if side == sides[-1]:
                raise
        else:
            return side
    raise AssertionError("there is a side to try")


def _depth(args: argparse.Namespace) -> tuple[Make, Any, tuple[int, int], subject.Subject, str]:
    from minidnn import zoo
    from minidnn.errors import InvalidInput
    from minidnn.study.search import Series

    family = zoo.family(args.file)
    _, first, step = zoo.DEPTHS[family]
    if args.step and args.step % step:
        raise InvalidInput(
            f"--step {args.step}: the depths of {family} are {step} apart, so a multiple of that is needed"
        )
    series = Series(first, args.step or step, 99_999)

    def at(depth: int) -> subject.Subject:
        return subject.read(argparse.Namespace(**{**vars(args), "file": f"{family}{depth}"}))

    about = at(first)
    return lambda depth: _late(at(depth).programs), series, (first, first + 16 * step), about, family


KINDS = {"batch": _batch, "size": _size, "depth": _depth}


def _late(programs: Sequence[Program]) -> list[Program]:
    """The programs as `arrange` makes them where early inputs do not fit: the search is for the largest size of all."""
    return [program.late() for program in programs]


def _progress(what: str, policy: str, budget: int) -> Callable[[Any], None]:
    def tell(t: Any) -> None:
        if not t.budget:
            said = f"takes {sizes.text(t.arena)} at its leanest"
        elif t.arena > budget:
            said = f"needs {sizes.text(t.arena)}, {sizes.text(t.arena - budget)} too many"
        elif not t.fits:
            said = f"needs {sizes.text(t.host)} on the host, too many"
        else:
            said = f"fits into {sizes.text(t.arena)}, {sizes.text(budget - t.arena)} to spare"
        say(f"{policy}: {what} {t.size} {said} ({t.seconds:.1f} s)", file=sys.stderr, flush=True)

    return tell


def _row(found: Any, what: str, model: str, about: subject.Subject, costs: Any, budget: int) -> SearchRow:
    from minidnn.memory.execution.simulator import simulate

    arrangement = found.arrangement
    schedule = arrangement and arrangement.schedules[about.train.name]
    size = {"batch": None if what == "batch" else about.batch, "size": None, "depth": None, what: found.size}
    return SearchRow(
        policy=found.policy,
        net=model,
        **size,
        peak_bytes=arrangement and arrangement.arena,
        live_peak_bytes=schedule and schedule.live_peak,
        arena_bytes=schedule and schedule.arena,
        host_bytes=arrangement and arrangement.off_device,
        step_seconds=schedule and simulate(schedule, costs).seconds,
        budget_bytes=budget,
        next=found.refused and found.refused.size,
        next_peak_bytes=found.refused and found.refused.arena,
        next_host_bytes=found.refused and found.refused.host,
        plans=len(found.tried),
        ended=found.ended,
        search_seconds=found.seconds,
    )
