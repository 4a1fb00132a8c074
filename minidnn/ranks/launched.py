"""The engine of the ranks that a launcher has started: mpiexec, or Slurm's srun."""

from __future__ import annotations

import os
from collections.abc import Mapping

from minidnn.ranks.engine import Engine

# What a launcher of MPI tells each process: how many there are.
SIZES = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_SIZE", "MPI_LOCALNRANKS")


def started(environment: Mapping[str, str] = os.environ) -> int:
    """The ranks that a launcher has started; 1 without one."""
    found = (environment.get(name, "") for name in SIZES)
    sizes = [int(text) for text in found if text.isdecimal()]
    if "SLURM_STEP_NUM_TASKS" in environment:
        sizes.append(int(environment["SLURM_STEP_NUM_TASKS"]))
    return max(sizes, default=1)


def engine() -> Engine | None:
    """The engine of this rank; None if it is the only one. Raises NoMpi."""
    if started() < 2:
        return None
    from minidnn.ranks.mpi import Mpi

    return Mpi()
