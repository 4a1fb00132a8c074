"""The answer to a refused budget. `minidnn plan` gives the whole of it; other verbs name that command in a line."""

from __future__ import annotations

import argparse
import shlex
from dataclasses import replace
from typing import TYPE_CHECKING

from minidnn.cli import subject
from minidnn.cli.options import PLANNED, repeated
from minidnn.costs import Costs
from minidnn.program import Program
from minidnn.visible import status

if TYPE_CHECKING:
    from minidnn.memory.budget import BudgetError
    from minidnn.results.policies import Refusal
    from minidnn.study.change import Change


def answer(
    args: argparse.Namespace, about: subject.Subject, policy: str, refused: BudgetError, costs: Costs
) -> Refusal:
    """Why the policy was refused, and what would fit (study/remedies.py, report/refusal.py).

    Shows progress on a terminal."""
    from minidnn.study.change import Asked
    from minidnn.study.remedies import remedies

    setting = about.setting
    formats = subject.narrower(about, args.gpu)
    state = about.solver is not None and setting.state == "device" and any(about.varied(state="host").train.hosted)
    fuses = about.fuses is not None
    asked = Asked(policy, setting.budget, setting.host_budget, about.batch, formats, fuses, state)

    def varied(change: Change, sizes: bool = False) -> tuple[tuple[Program, ...], Costs]:
        other = about.varied(change.batch, change.format, not change.no_fusion, state=change.state)
        known = costs if args.gpu is not None else subject.costs_of(other, None, sizes)
        staging = setting.staging
        if change.host_ring is not None and staging is not None:
            staging = replace(staging, ring=change.host_ring)
        return other.programs, replace(known, staging=staging)

    try:
        found = remedies(asked, refused, varied, about.train.name, status)
    finally:
        status()
    return found.told(policy, refused)


def of_budget(error: Exception) -> bool:
    """Whether a budget was refused, and not for want of this machine's memory."""
    from minidnn.memory.budget import BudgetError, RamError

    return isinstance(error, BudgetError) and not isinstance(error, RamError)


PLANS = {"train": "solver", "compare": "file", "time": "file", "plan": "file"}  # {verb: its argument that `plan` takes}


def pointer(args: argparse.Namespace) -> str:
    """A sentence that names the command which says what would fit; `args` are of a verb of PLANS."""
    options = [name for name in PLANNED if name != "policies"]
    words = ["minidnn", "plan", getattr(args, PLANS[args.verb]), *repeated(args, *options)]
    several = args.verb == "compare" or getattr(args, "policies", None)
    return f"`{shlex.join(words)}{' --policy NAME' if several else ''}` says what would fit"
