"""This machine's memory: all bytes that a run takes of it, also those outside the plan, and plans within a limit of it.

A plan's budget covers the arena and the host's part. The process takes more: the interpreter, libraries and plans, the
data, batches on their way, generated kernels and buffers for saving. `Ram` counts each of them. `Residence` plans with
the rest. It does so in a fork (child.py), since memory that planning leaves behind would count against the limit.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import partial

from minidnn.child import in_child
from minidnn.costs import Costs
from minidnn.data import source_of, staged
from minidnn.jobs.setting import Setting
from minidnn.layers.rows import PIECE
from minidnn.memory.budget import BudgetError, RamError
from minidnn.memory.execution.host import physical_memory, release_freed, resident_memory, return_large
from minidnn.memory.planning import arrange
from minidnn.memory.policies import BUDGETED
from minidnn.memory.schedule import Arrangement, aligned
from minidnn.memory.unified import TotalError, arrange_unified
from minidnn.nets.graph import Graph
from minidnn.program import Program, Role
from minidnn.sizes import text
from minidnn.spoken import option

# Measured on the models (benchmarks/ram.py): the growth of a process after planning, without the counted parts.
BASE = 8 * 2**20  # bytes: threads, library buffers
PER_OP = 14 * 1024  # bytes: an op's binding and generated code
PLAN_PER_OP = 14 * 1024  # bytes: an op's plan, with its instructions
GRAIN = 2 * 2**20  # bytes; the process's own are rounded up to these, so that no plan depends on single pages
ATTEMPTS = 5  # plans for a limit: a plan takes memory itself, and ops in parts take more


@dataclass(frozen=True)
class Ram:
    """Bytes of this machine's memory, by their purpose."""

    plan: int  # the arena, where the device computes in this memory, and the host's part
    process: int  # interpreter, libraries, programs and plans
    data: int  # datasets that are held in memory and not in `process` yet
    batches: int  # two for each program: one that its loader has made ahead, and one in the making
    workers: int  # batches in the memory that worker processes share, and each process's own bytes
    working: int  # generated kernels, threads, and pieces of weights in a save
    closing: int  # persistent tensors, copied from a device's own memory at the end of the run

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
        return f"{text(self.total)}: {text(self.plan)} planned, {self.parts_outside}"

    @property
    def parts_outside(self) -> str:
        parts = f"process {text(self.process)}"
        parts += f", data {text(self.data)}" if self.data else ""
        parts += f", batches {text(self.batches)}"
        parts += f", workers {text(self.workers)}" if self.workers else ""
        parts += f", kernels and buffers {text(self.working)}"
        parts += f", weights at the end {text(self.closing)}" if self.closing else ""
        return f"{text(self.outside)} outside the plan ({parts})"

    def refusal(self, policy: str, limit: int | None = None) -> RamError | None:
        """The error if this is more than `limit` bytes; None as limit: than this machine, or its container, has."""
        allowed = physical_memory() if limit is None else limit
        if self.total <= allowed:
            return None
        what = "this machine, or its container, has" if limit is None else "the RAM limit is"
        advice = "a smaller batch, or another policy or budget, may take less"
        real = f"; if its memory can grow beyond this, give the real limit: {option('ram', 'SIZE')}"
        advice += real if limit is None else ""
        return RamError(f"{policy} would take about {self}; {what} {text(allowed)}; {advice}", self.total, self.total)


@dataclass(frozen=True)
class Residence:
    """A process that is to run plans: its bytes of this machine's memory beside them, and the room left for them.

    own_memory: whether the device has memory of its own, in which the arena lies
    unread:     graphs whose data have not been opened yet
    staging:    bytes of the workers that make samples (`staging_of`)
    """

    own_memory: bool
    unread: Sequence[Graph] = ()
    staging: int = 0

    def ram(self, arrangement: Arrangement) -> Ram:
        """The bytes of a run under this arrangement, in this process, which has not allocated them yet."""
        plan = arrangement.off_device + (0 if self.own_memory else arrangement.arena)
        return self._ram([schedule.program for schedule in arrangement.schedules.values()], plan)

    def _ram(self, programs: Sequence[Program], plan: int = 0) -> Ram:
        """The bytes of a run of these programs, whose plan takes `plan` bytes."""
        batches = [
            sum(t.nbytes for t in p.inputs if t.role is Role.INPUT)
            for p in programs
            if p.name not in ("BEGIN", "ACCUMULATE")  # their batches are TRAIN's
        ]
        lasting = {t: t.nbytes for p in programs for t in p.synchronous_inputs().lasting}
        piece = min(PIECE, max(lasting.values(), default=0))
        return Ram(
            plan=plan,
            process=aligned(resident_memory(), GRAIN),
            data=sum(_data(graph) for graph in self.unread),
            batches=sum(batches) + max(batches, default=0),
            workers=self.staging,
            working=BASE + PER_OP * sum(len(p.ops) for p in programs) + piece,
            closing=sum(lasting.values()) if self.own_memory else 0,
        )

    def arranged(self, programs: Sequence[Program], policy: str, costs: Costs, setting: Setting) -> Arrangement:
        """The policy's plan under the setting's budgets, and within its limit of this machine's memory.

        Without a limit, a policy that the user has not named may not exceed the machine's memory either: else the net
        is planned by BUDGETED within it. Raises BudgetError."""
        if setting.ram is not None:
            return self._within(programs, policy, costs, setting, setting.ram)
        try:
            result = arrange(programs, policy, costs, setting.budget, setting.host_budget)
        except BudgetError as refused:
            if setting.named or self.own_memory or not refused.host:
                raise
            return self._within(programs, BUDGETED, costs, setting, physical_memory())
        release_freed()
        if (too_much := self.ram(result).refusal(policy)) is None:
            return result
        if setting.named or self.own_memory:
            raise too_much
        return self._within(programs, BUDGETED, costs, setting, physical_memory())

    def _within(
        self, programs: Sequence[Program], policy: str, costs: Costs, setting: Setting, limit: int
    ) -> Arrangement:
        """The policy's plan that takes at most `limit` bytes of this machine's memory, with all that is beside it."""
        return_large()
        ram = self._ram(programs)
        room = limit - ram.total
        spare = max(0, min(room, PLAN_PER_OP * sum(len(p.ops) for p in programs)))
        for _ in range(ATTEMPTS):
            try:
                result = self._arranged(programs, policy, costs, setting, max(0, room - spare))
            except TotalError as error:
                if spare and error.smallest <= room:  # it may do without
                    spare = 0
                    continue
                needed = limit - room + error.smallest
                raise RamError(
                    f"{policy} would take about {text(needed)} of RAM, and {text(limit)} are allowed: "
                    f"{ram.parts_outside}, and at least {text(error.smallest)} for the plan; a smaller batch, another "
                    f"policy, or a disk ({option('disk')}) may take less",
                    needed,
                    needed,
                ) from error
            ram = self.ram(result)
            if ram.total <= limit:
                return result
            room, spare = room - spare - (ram.total - limit), GRAIN
            del result  # before the next one comes
            release_freed()
        refused = ram.refusal(policy, limit)
        assert refused is not None
        raise refused

    def _arranged(
        self, programs: Sequence[Program], policy: str, costs: Costs, setting: Setting, room: int
    ) -> Arrangement:
        """The policy's plan that takes at most `room` bytes of the host's memory."""
        if not self.own_memory:  # what planning leaves in memory would count, too
            return in_child(
                partial(arrange_unified, programs, policy, costs, room, setting.budget, setting.host_budget)
            )
        host = room if setting.host_budget is None else min(room, setting.host_budget)
        return arrange(programs, policy, costs, setting.budget, host)


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
