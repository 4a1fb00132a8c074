"""Measuring the costs of a job on its device: for `minidnn profile`, and for what runs."""

from __future__ import annotations

from dataclasses import replace

from minidnn.backends import open_device
from minidnn.costs import Costs, Measurements, NotKept, measurements
from minidnn.formats import usable
from minidnn.jobs.job import Job, warn
from minidnn.jobs.target import Warn
from minidnn.measuring.load import BUSY, Load
from minidnn.measuring.ops import measure
from minidnn.spoken import option
from minidnn.visible import status


def profiled(job: Job, again: bool = False) -> tuple[Costs, Measurements, int]:
    """The costs of the job's programs on its device, all its measurements, and how many were made now.

    Measures the ops that were never measured, or all of them if `again`. Shows progress on a terminal. Ops of several
    ranks are those of one, which are measured within steps, and some more, which are measured alone."""
    usable(job.setting.format)
    device = open_device(job.setting.device)
    known = measurements(device)
    if known.problem:
        warn(known.problem)
    before = 0 if again else len(known.seconds)

    def tell(done: int, of: int, name: str) -> None:
        status(f"measuring {done + 1} of {of}: {name}")

    costs = measure(device, [*job.of_one_rank, *job.programs], known, again, tell)
    status()
    return job.linked(costs), known, len(known.seconds) - before


def run_here(job: Job) -> Costs:
    """The costs of a job that this machine is about to run under several policies. On a device in the host's memory
    they are measured first, unless the job asks for estimates: how quick a policy is depends on copies and small ops,
    of which estimates know little. On any device they are if the job asks for it. Says in a line what was measured, or
    why nothing was.

    A run that trains takes estimates, unless it is told otherwise: its algorithms, and so the last bits of its numbers,
    must be those of the next run, and of another machine."""
    setting, device = job.setting, open_device(job.setting.device)
    if setting.costs is not None or setting.estimated or (device.own_memory and not setting.measured):
        return job.costs()
    try:
        return _measured(replace(job, setting=replace(setting, measured=True)))
    except NotKept as error:
        if setting.measured:
            raise
        warn(f"{error}; plans are made with estimated costs")
        return job.costs()


def trains_here(job: Job, warn: Warn) -> Costs:
    """The costs of a job that this machine is about to run. Where it asks for measured ones, those that nobody has
    measured are measured first, unless several ranks train: each would measure others."""
    alone = job.setting.engine is None
    return _measured(job) if job.setting.measured and alone else job.costs(warn=warn)


def _measured(job: Job) -> Costs:
    """The measured costs of a job. Measures what is lacking, and says so in a line. Raises NotKept."""
    began, before = Load.now(), measurements(open_device(job.setting.device)).copies
    _, known, count = profiled(job)
    if count := count + len(known.copies.keys() - before):
        warn(_told(known.device.partition(":")[0], count, began, Load.now()))
    return job.costs()


def _told(device: str, count: int, began: Load, ended: Load) -> str:
    others = began.others_until(ended) or 0.0
    busy = f"; other programs kept {others:.1f} processors busy, so measure again (`minidnn profile --again`)"
    return (
        f"measured {count} costs of {device} in {ended.at - began.at:.1f} s, and kept them; plans use them "
        f"({option('costs', 'estimated')} does not){busy if others > BUSY else ''}"
    )
