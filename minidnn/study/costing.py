"""The costs that a subject is planned with: a profile's, measured ones, or estimates; of ranks, with their link."""

from __future__ import annotations

import sys
from dataclasses import replace

from minidnn.costs import Costs, Measurements, disks
from minidnn.costs.net import among
from minidnn.costs.parts import JOINS
from minidnn.study import gpus
from minidnn.study.subject import Subject
from minidnn.training.setting import Setting
from minidnn.visible import say, status


def staged(costs: Costs, setting: Setting) -> Costs:
    """The costs with the setting's staging, and with the speed of its disk if that was measured."""
    staging = setting.staging
    if staging is not None and staging.disk is not None and setting.disk is not None:
        staging = replace(staging, disk=disks.measured(staging.disk, setting.disk))
    return replace(costs, staging=staging)


def costs_of(subject: Subject, sizes: bool = False) -> Costs:
    """The costs to plan with: the profile of the subject's GPU if it has one, else the device's.

    A device's costs are the measured ones if every op of the programs was measured, else estimates.

    sizes: the net will be planned at many sizes; then they are estimates, since measurements hold one size's ops"""
    found = _alone(subject, sizes)
    return found if subject.setting.ranks is None else among(found, subject.network(found))


def _alone(subject: Subject, sizes: bool) -> Costs:
    """The costs of one rank."""
    from minidnn.backends import open_device
    from minidnn.costs import estimate, measured, measurements

    if subject.gpu is not None:
        return gpus.gpu(subject.gpu).costs(subject.gpu)
    device = open_device(subject.setting.device)
    if sizes:
        return estimate(device)
    known = measurements(device)
    if known.problem:
        say(f"minidnn: {known.problem}", file=sys.stderr)
    ops = [*JOINS.values(), *(op for program in subject.programs for op in program.ops)]
    return measured(device, known) if known.covers(ops, device.algorithms) else estimate(device)


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
        say(f"minidnn: {known.problem}", file=sys.stderr)
    before = 0 if again else len(known.seconds)

    def tell(done: int, of: int, name: str) -> None:
        status(f"measuring {done + 1} of {of}: {name}")

    one = about.varied(ranks=1).programs if (about.setting.ranks or 1) > 1 else ()
    costs = measure(device, [*one, *about.programs], known, again, tell)
    status()
    linked = costs if about.setting.ranks is None else among(costs, about.network(costs))
    return linked, known, len(known.seconds) - before
