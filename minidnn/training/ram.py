"""This machine's memory: all bytes that a run takes of it, also those outside the plan.

A plan's budget covers the arena and the host's part. The process takes more: the interpreter, libraries and plans, the
data, batches on their way, generated kernels and buffers for saving. `Ram` counts each of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass

from minidnn.data import source_of, staged
from minidnn.layers.rows import PIECE
from minidnn.memory.budget import RamError
from minidnn.memory.execution.host import physical_memory, resident_memory
from minidnn.memory.schedule import Arrangement
from minidnn.nets.graph import Graph
from minidnn.program import Program, Role
from minidnn.sizes import text

# Measured on the models (benchmarks/ram.py): what a process grows by once it is planned, the counted parts apart.
BASE = 8 * 2**20  # bytes: threads, library buffers
PER_OP = 8 * 1024  # bytes: an op's binding and generated code
HANDS = 2  # copies of a batch on its way: one that a loader makes ahead, one that is being written to the host's part


@dataclass(frozen=True)
class Ram:
    """Bytes of this machine's memory, by their purpose."""

    plan: int  # the arena, where the device computes in this memory, and the host's part
    process: int  # interpreter, libraries, programs and plans
    data: int  # datasets that are held in memory and not in `process` yet
    batches: int
    workers: int  # batches in the memory that worker processes share, and what each process has for itself
    working: int  # generated kernels, threads, and pieces of weights in a save

    @classmethod
    def of(
        cls,
        arrangement: Arrangement,
        own_memory: bool,
        programs: Mapping[str, Program],
        unread: Iterable[Graph] = (),
        staging: int = 0,
    ) -> Ram:
        """The bytes of a run under this arrangement, in a process that holds its plans but has not allocated yet.

        own_memory: whether the device has memory of its own, in which the arena lies
        unread:     graphs whose data have not been opened yet
        staging:    bytes of the workers that make samples (`staging_of`)
        """
        batches = sum(
            t.nbytes
            for name, p in programs.items()
            for t in p.inputs
            if t.role is Role.INPUT and name not in ("BEGIN", "ACCUMULATE")  # their batches are TRAIN's
        )
        largest = max((t.nbytes for p in programs.values() for t in p.late().carried), default=0)
        return cls(
            plan=arrangement.off_device + (0 if own_memory else arrangement.arena),
            process=resident_memory(),
            data=sum(_data(graph) for graph in unread),
            batches=HANDS * batches,
            workers=staging,
            working=BASE + PER_OP * sum(len(p.ops) for p in programs.values()) + 2 * min(PIECE, largest),
        )

    @property
    def outside(self) -> int:
        """All bytes that no budget of the plan covers."""
        return self.total - self.plan

    @property
    def total(self) -> int:
        return sum(asdict(self).values())

    def row(self) -> dict[str, int]:
        """As columns of a row of `--json`."""
        return {"ram_bytes": self.total, **{f"ram_{name}_bytes": value for name, value in asdict(self).items()}}

    def __str__(self) -> str:
        parts = f"process {text(self.process)}"
        parts += f", data {text(self.data)}" if self.data else ""
        parts += f", batches {text(self.batches)}"
        parts += f", workers {text(self.workers)}" if self.workers else ""
        parts += f", kernels and buffers {text(self.working)}"
        return f"{text(self.total)}: {text(self.plan)} planned, {text(self.outside)} outside the plan ({parts})"

    def refusal(self, policy: str, limit: int | None = None) -> RamError | None:
        """The error if this is more than `limit` bytes; None as limit: than this machine, or its container, has."""
        allowed = physical_memory() if limit is None else limit
        if self.total <= allowed:
            return None
        what = "this machine, or its container, has" if limit is None else "the limit of RAM is"
        advice = "a smaller batch, or another policy or budget, may take less"
        return RamError(f"{policy} would take about {self}; {what} {text(allowed)}; {advice}", self.total, self.total)


def staging_of(graphs: Iterable[Graph], workers: int | None = None) -> int:
    """Bytes that the workers of all Data layers of these graphs take, about. `workers`: instead of the files'."""
    return sum(
        staged(*source, graph.phase, workers)
        for graph in graphs
        for node in graph.layers
        for source in node.layer.sources
    )


def _data(graph: Graph) -> int:
    """Bytes of the datasets of this graph's layers."""
    return sum(source_of(*source, graph.phase).resident() for node in graph.layers for source in node.layer.sources)
