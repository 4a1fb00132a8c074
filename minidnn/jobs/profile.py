"""Measuring the costs of a job on its device (`minidnn profile`)."""

from __future__ import annotations

from minidnn.backends import open_device
from minidnn.costs import Costs, Measurements, measurements
from minidnn.formats import usable
from minidnn.jobs.job import Job, warn
from minidnn.measuring.ops import measure
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
