"""Which of the known GPUs is enough for a network: a plan of `best` within the memory of each, by the simulator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from minidnn.costs import gpus
from minidnn.jobs.gpus import gpu, host_memory, named
from minidnn.memory.execution.simulator import simulate
from minidnn.memory.planning import arrange
from minidnn.memory.policies import BUDGETED
from minidnn.program import Program
from minidnn.results.budgets import CardRow
from minidnn.study.compare import planned

FREE = "liveness:p"  # what a step takes if memory is no matter
ENDLESS = 1 << 62  # bytes
SLOWER = 0.01  # a card is enough without loss if a step takes at most so much more, as a part of it


@dataclass(frozen=True)
class Card:
    """A GPU, and what a step takes on it.

    needs:   bytes of the plan's arena; of the smallest that there is, if it does not fit
    allowed: bytes of the host that the plan may use
    host:    bytes that it uses there
    seconds: of a step within the card's memory; None: it does not fit
    free:    seconds of a step on this GPU if it had endless memory: of FREE's plan, or of the quicker one that fits
    bound:   seconds that no plan of whole ops within the card's memory is below; None: not known
    """

    name: str
    title: str
    memory: int
    allowed: int
    needs: int
    host: int
    seconds: float | None
    free: float
    bound: float | None

    @property
    def lossless(self) -> bool:
        return self.seconds is not None and self.seconds <= self.free * (1 + SLOWER)

    def row(self, batch: int | None) -> CardRow:
        return CardRow(
            gpu=self.name, title=self.title, memory_bytes=self.memory, fits=self.seconds is not None,
            peak_bytes=self.needs, host_bytes=self.host, host_budget_bytes=self.allowed,
            step_seconds=self.seconds, free_seconds=self.free,
            samples_per_second=None if self.seconds is None or batch is None else batch / self.seconds,
            bound_seconds=self.bound, lossless=self.lossless,
        )  # fmt: skip


def cards(
    programs: Sequence[Program],
    name: str = "TRAIN",
    tell: Callable[[str], None] = lambda text: None,
    host_budget: int | None = None,
    chosen: Sequence[str] | None = None,
) -> list[Card]:
    """A Card for each of the GPUs, the least memory first.

    name:        the program whose steps count
    host_budget: bytes on the host; None: what is assumed beside each GPU (jobs/gpus.py)
    chosen:      names of GPUs; None: all that have a profile
    """
    programs = [program.late() for program in programs]
    found = []
    asked = list(dict.fromkeys(map(named, gpus() if chosen is None else chosen)))
    for number, which in enumerate(asked):
        tell(f"{which}: GPU {number + 1} of {len(asked)}")
        card = gpu(which)
        costs = card.costs(which)
        free = arrange(programs, FREE, costs, ENDLESS, proof=False).schedules[name]
        host = host_memory(which) if host_budget is None else host_budget
        seconds = bound = None
        fitting, refused = planned(programs, BUDGETED, costs, costs.memory, host)
        if refused is None:
            schedule = fitting.schedules[name]
            seconds, bound = simulate(schedule, costs).seconds, schedule.plan.bound
        loose = simulate(free, costs).seconds
        loose = loose if seconds is None else min(loose, seconds)
        found.append(
            Card(which, card.title, costs.memory, host, fitting.arena, fitting.off_device, seconds, loose, bound)
        )
    return sorted(found, key=lambda card: (card.memory, card.name))
