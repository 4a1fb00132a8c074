"""The costs that a subject is planned with: a profile's, measured ones, or estimates; of ranks, with their link."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from minidnn.costs import Costs, Measurements
from minidnn.costs.net import among
from minidnn.errors import InvalidInput
from minidnn.jobs.costs import device_costs, staged
from minidnn.program import Program
from minidnn.study import gpus
from minidnn.study.subject import Subject
from minidnn.visible import say, status


def costs_of(subject: Subject, sizes: bool = False) -> Costs:
    """The costs to plan with: the profile of the subject's GPU if it has one, else the device's (jobs/costs.py).

    sizes: the net will be planned at many sizes; then they are estimates, since measurements hold one size's ops"""
    found = staged(_alone(subject, sizes), subject.setting)
    return found if subject.setting.ranks is None else among(found, subject.network(found))


def costs_of_sizes(subject: Subject) -> Costs:
    """`costs_of` for many sizes. Raises InvalidInput if measured costs are asked for."""
    if subject.setting.measured:
        raise InvalidInput("costs measured are of one size, and here many are planned: leave them out")
    return costs_of(subject, sizes=True)


def _alone(subject: Subject, sizes: bool) -> Costs:
    """The costs of one rank."""
    from minidnn.backends import open_device
    from minidnn.costs import estimate

    if subject.gpu is not None:
        if subject.setting.measured:
            raise InvalidInput(f"costs measured are this machine's: leave out --gpu {subject.gpu}")
        return gpus.gpu(subject.gpu).costs(subject.gpu)
    device = open_device(subject.setting.device)
    if sizes:
        return estimate(device)
    return device_costs(device, [*subject.programs, *_of_one(subject)], subject.setting, _warn)


def _of_one(subject: Subject) -> Sequence[Program]:
    """The programs of one rank alone, beside which several are seen."""
    return subject.varied(ranks=1).programs if (subject.setting.ranks or 1) > 1 else ()


def _warn(problem: str) -> None:
    say(f"minidnn: {problem}", file=sys.stderr)


def measured_costs(about: Subject, again: bool = False) -> tuple[Costs, Measurements, int]:
    """The costs of the subject's programs on its device, all its measurements, and how many were made now.

    Measures the ops that were never measured, or all of them if `again`. Shows progress on a terminal. Ops of several
    ranks are those of one, which are measured within steps, and some more, which are measured alone."""
    from minidnn.backends import open_device
    from minidnn.costs import measurements
    from minidnn.formats import usable
    from minidnn.measuring.ops import measure

    usable(about.setting.format)
    device = open_device(about.setting.device)
    known = measurements(device)
    if known.problem:
        _warn(known.problem)
    before = 0 if again else len(known.seconds)

    def tell(done: int, of: int, name: str) -> None:
        status(f"measuring {done + 1} of {of}: {name}")

    costs = measure(device, [*_of_one(about), *about.programs], known, again, tell)
    status()
    linked = costs if about.setting.ranks is None else among(costs, about.network(costs))
    return linked, known, len(known.seconds) - before
