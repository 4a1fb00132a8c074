"""A refused command, changes of it, and what came of each (study/remedies.py)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field

from minidnn.memory.budget import BudgetError
from minidnn.results.policies import Refusal, Remedy, Worst


@dataclass(frozen=True)
class Change:
    """The differences from the command that was refused; None: no difference. Fields are named like options."""

    policy: str | None = None
    format: str | None = None
    no_fusion: bool | None = None
    batch: int | None = None
    budget: int | None = None
    host_budget: int | None = None
    host_ring: int | None = None
    state: str | None = None

    @property
    def differs(self) -> dict[str, object]:
        return {name: value for name, value in asdict(self).items() if value is not None}

    def __str__(self) -> str:
        """The options to add to the command. Added behind an option of the same name, they replace it."""
        found = []
        for name, value in self.differs.items():
            flag = "--" + name.replace("_", "-")
            found.append(flag if value is True else f"{flag} {value}")
        return " ".join(found)


@dataclass(frozen=True)
class Tried:
    """A change, and what came of it.

    needs:   bytes of the plan's arena; of a change that was not planned, bytes that no plan of whole ops is below
    planned: False: the bound excludes the change
    """

    change: Change
    fits: bool
    needs: int
    planned: bool = True
    batch: int | None = None
    seconds: float | None = None  # of a step, foreseen
    host: int | None = None  # bytes off the device
    note: str = ""  # what else is to be said of it

    def row(self) -> Remedy:
        return Remedy(
            options=str(self.change), change=self.change.differs, fits=self.fits, planned=self.planned,
            peak_bytes=self.needs, host_bytes=self.host, batch=self.batch, step_seconds=self.seconds, note=self.note,
        )  # fmt: skip


@dataclass(frozen=True)
class Asked:
    """The command that was refused. Its budgets are bytes, None where it names none.

    batch:   samples of its batch; None if the net has none
    formats: narrower number formats that its device has
    fuses:   whether ops are fused
    states:  the values of --state that send more to the host than the command does
    """

    policy: str
    budget: int | None
    host_budget: int | None
    batch: int | None
    formats: Sequence[str]
    fuses: bool
    states: Sequence[str] = ()


@dataclass
class Answer:
    """The answer to a refused budget, without its worst moment.

    limit:         bytes of the device that were allowed
    reached:       bytes of the least budget that the policy can keep: of the host if `host`, else of the device
    least:         bytes that no plan of whole ops is below; None without the package highspy, and if `host`
    carried:       bytes of weights and what belongs to them, which no batch changes
    largest_batch: no larger batch has a plan of ops as a whole within the limit, by the bound; 0: not even a batch of
                   one has; None: the bound does not say
    tried:         all that was tried, in order
    """

    limit: int
    reached: int
    host: bool
    least: int | None
    carried: int
    largest_batch: int | None = None
    tried: list[Tried] = field(default_factory=list)

    def told(self, policy: str, refused: BudgetError) -> Refusal:
        """As a record: what fits in the order of the tries, what does not with the nearest first."""
        vain = sorted((t for t in self.tried if not t.fits), key=lambda t: t.needs)
        worst = None if refused.worst is None else Worst(**refused.worst.row())
        return Refusal(
            policy=policy, why=str(refused), worst=worst, limit_bytes=self.limit, host=self.host,
            reached_bytes=self.reached, least_bytes=self.least, carried_bytes=self.carried,
            largest_batch=self.largest_batch, remedies=[t.row() for t in self.tried if t.fits],
            in_vain=[t.row() for t in vain],
        )  # fmt: skip
