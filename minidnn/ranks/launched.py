"""Launchers tell each process that they start which rank it is, of how many, here and in all. Ranks find each other so.

mpiexec of Open MPI and of MPICH (and of those made of it), Slurm's srun, and torchrun say so in the environment. Where
one has started another, the inner one counts, which stands first here.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import re
import socket
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from minidnn.errors import InvalidInput
from minidnn.ranks import sockets
from minidnn.ranks.engine import LIMIT, Channel, Engine
from minidnn.spoken import option

TORCHRUN = "torchrun"
# launcher -> its names for a rank, the number of ranks, the rank among those of this machine, and their number
LAUNCHERS = {
    TORCHRUN: ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"),
    "Open MPI": (
        "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE",
    ),
    "MPICH": ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
    "Slurm": ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "SLURM_STEP_TASKS_PER_NODE"),
}  # fmt: skip
TASKS = re.compile(r"(\d+)(?:\(x(\d+)\))?")  # Slurm's 4(x2): two nodes with four tasks each


@dataclass(frozen=True)
class Launch:
    """One of the processes that a launcher has started. Ranks count from 0."""

    by: str
    rank: int
    ranks: int
    local_rank: int  # among the ranks of this machine
    local_ranks: int

    def enter(self) -> None:
        """Let the launcher's MPI know of this process before anything can fail: then it ends the others with it."""
        if self.by != TORCHRUN and importlib.util.find_spec("mpi4py"):
            with contextlib.suppress(ImportError, RuntimeError):  # told once an engine needs it
                importlib.import_module("mpi4py.MPI")

    def gpu(self, name: str, count: int) -> str:
        """The name of this rank's GPU, of so many that it sees: each rank of a machine has its own.

        A rank that sees one GPU takes that: the launcher has chosen it (engines check that no other rank has it).
        Raises InvalidInput if there are too few GPUs, or if the name is that of one of them."""
        if name != "cuda":
            raise InvalidInput(
                f"{option('device', name)} is one GPU, and each of the {self.ranks} ranks takes its own: use "
                f"{option('device', 'cuda')} (CUDA_VISIBLE_DEVICES selects them)"
            )
        if count > 1 and self.local_ranks > count:
            raise InvalidInput(
                f"{self.by} has started {self.local_ranks} ranks on this machine, which shows {count} GPUs, and each "
                f"rank takes its own: start {count} ranks on it, or use {option('device', 'cpu')}"
            )
        return f"cuda:{self.local_rank if count > 1 else 0}"


def launch(environment: Mapping[str, str] = os.environ) -> Launch | None:
    """The launcher's facts about this process; None if it has started one process alone, or if there is no launcher.

    Raises InvalidInput if they make no sense."""
    for by, names in LAUNCHERS.items():
        said = [environment.get(name, "") for name in names]
        if not all(said):
            continue
        if by == "Slurm":
            said[3] = _tasks_here(said[3], environment.get("SLURM_NODEID", "0"))
        where = ", ".join(f"{name}={environment[name]}" for name in names)
        if not all(text.isdecimal() for text in said):
            raise InvalidInput(f"{by} says {where}: expected whole numbers")
        rank, ranks, local_rank, local_ranks = map(int, said)
        if not (rank < ranks and local_rank < local_ranks <= ranks):
            raise InvalidInput(f"{by} says {where}: a rank counts from 0 and is below the number of ranks")
        return Launch(by, rank, ranks, local_rank, local_ranks) if ranks > 1 else None
    return None


def restarts(environment: Mapping[str, str] = os.environ) -> int:
    """How often torchrun has restarted its ranks."""
    count = environment.get("TORCHELASTIC_RESTART_COUNT", "0")
    return int(count) if count.isdecimal() else 0


def _tasks_here(nodes: str, node: str) -> str:
    """The tasks on the node of that number, of Slurm's list of them: "4(x2),3"."""
    each = [tasks for tasks, times in TASKS.findall(nodes) for _ in range(int(times or 1))]
    return each[int(node)] if node.isdecimal() and int(node) < len(each) else nodes


def engine(launch: Launch, limit: float = LIMIT) -> Engine:
    """The engine of ranks that compute in the host's memory. Raises NoMpi.

    limit: the seconds that a rank waits for another"""
    from minidnn.ranks.mpi import Mpi, NoMpi

    if launch.by == TORCHRUN:
        raise NoMpi("torchrun starts ranks that compute on GPUs; start those of other devices with mpiexec, or srun")
    result = Mpi(limit)
    if result.ranks != launch.ranks:
        raise NoMpi(
            f"{launch.by} has started {launch.ranks} ranks, but mpi4py sees {result.ranks}: it belongs to another "
            "MPI; start the ranks with that MPI's mpiexec, or install mpi4py for this one"
        )
    return result


def channel(launch: Launch, limit: float = LIMIT) -> Channel:
    """How ranks that compute on GPUs find each other: at MASTER_ADDR and MASTER_PORT where the environment has them, as
    torchrun's does; else by MPI. Raises NoMpi, NotReached, and RankLost if a rank does not come."""
    if at := sockets.address():
        return sockets.Sockets(launch.rank, launch.ranks, at, limit)
    return engine(launch, limit)


def threads(channel: Channel) -> int:
    """The number of this rank's threads, if each CPU is divided among the ranks that may use it. All ranks call it."""
    host, mine = socket.gethostname(), sorted(os.sched_getaffinity(0))
    used = Counter((there, cpu) for there, cpus in channel.share((host, mine)) for cpu in cpus)
    return max(1, int(sum(Fraction(1, used[host, cpu]) for cpu in mine)))
