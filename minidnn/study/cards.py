"""Which of the known GPUs is enough for a network: a plan of `best` within the memory of each, by the simulator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from minidnn.costs import gpu, gpus, profile
from minidnn.memory.budget import BudgetError
from minidnn.memory.execution.simulator import simulate
from minidnn.memory.planning import arrange
from minidnn.memory.policies import BUDGETED
from minidnn.program import Program
from minidnn.results.budgets import CardRow

FREE = "liveness:p"  # what a step takes if memory is no matter
ENDLESS = 1 << 62  # bytes
SLOWER = 0.01  # a card is enough without loss if a step takes at most so much more, as a part of it


@dataclass(frozen=True)
class Card:
    """A GPU, and what a step takes on it.

    needs:   bytes of the plan's arena; of the smallest that there is, if it does not fit
    seconds: of a step within the card's memory; None: it does not fit
    free:    seconds of a step on this GPU if it had endless memory: of FREE's plan, or of the quicker one that fits
    bound:   seconds that no plan within the card's memory is below; None: not known
    """

    name: str
    title: str
    memory: int
    needs: int
    seconds: float | None
    free: float
    bound: float | None

    @property
    def lossless(self) -> bool:
        return self.seconds is not None and self.seconds <= self.free * (1 + SLOWER)

    def row(self, batch: int | None) -> CardRow:
        return CardRow(
            gpu=self.name, title=self.title, memory_bytes=self.memory, fits=self.seconds is not None,
            peak_bytes=self.needs, step_seconds=self.seconds, free_seconds=self.free,
            samples_per_second=None if self.seconds is None or batch is None else batch / self.seconds,
            bound_seconds=self.bound, lossless=self.lossless,
        )  # fmt: skip


def cards(
    programs: Sequence[Program], name: str = "TRAIN", tell: Callable[[str], None] = lambda text: None
) -> list[Card]:
    """A Card for each GPU with a profile, the least memory first. name: the program whose steps count"""
    programs = [program.late() for program in programs]
    found = []
    for number, which in enumerate(gpus()):
        tell(f"{which}: GPU {number + 1} of {len(gpus())}")
        costs = profile(which)
        free = arrange(programs, FREE, costs, ENDLESS, proof=False).schedules[name]
        seconds = bound = None
        try:
            fitting = arrange(programs, BUDGETED, costs, costs.memory)
            needs, schedule = fitting.arena, fitting.schedules[name]
            seconds, bound = simulate(schedule, costs).seconds, schedule.plan.bound
        except BudgetError as refused:
            needs = refused.smallest
        loose = simulate(free, costs).seconds
        loose = loose if seconds is None else min(loose, seconds)
        found.append(Card(which, gpu(which).title, costs.memory, needs, seconds, loose, bound))
    return sorted(found, key=lambda card: (card.memory, card.name))
