"""The smallest changes that make a refused command fit, each planned and proved.

A change that the bound excludes (memory/joint/bound.py) is not planned: no plan of the family keeps the budget. The
bound costs a tenth of a second, a plan some seconds. All limits are counts, so that equal calls give equal answers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from minidnn.costs import Costs
from minidnn.errors import BadInput, few
from minidnn.jobs.change import Asked, Change
from minidnn.jobs.outcome import outcome
from minidnn.jobs.search import largest
from minidnn.jobs.series import Series
from minidnn.memory.budget import BudgetError, RingError
from minidnn.memory.joint.variants import least_budget
from minidnn.memory.lowering.placement import persistent_layout
from minidnn.memory.moment import placed
from minidnn.memory.plan import Plan
from minidnn.memory.planning import synchronous
from minidnn.memory.policies import BUDGETED, STAYING, parts
from minidnn.memory.policies.plan_file import SUFFIX
from minidnn.program import Program, Role
from minidnn.results.policies import Refusal, Remedy, Worst

SHARES = 0.95, 0.85  # parts of the largest batch that may fit, tried where a rough answer is enough
Tell = Callable[[str], None]


class Varied(Protocol):
    """The programs of a changed command, and its costs; `sizes`: costs that hold for any batch."""

    def __call__(self, change: Change, sizes: bool = False) -> tuple[Sequence[Program], Costs]: ...


def remedies(
    asked: Asked,
    refused: BudgetError,
    varied: Varied,
    name: str = "TRAIN",
    tell: Tell = lambda text: None,
    places: Mapping[str, str] | None = None,
) -> Refusal:
    """Try the changes that could make the refused command fit. What fits is in the order of the tries; what does not,
    the nearest first.

    name:   the program whose steps are predicted
    tell:   is called with what is being tried
    places: the lines of the user's source that ops and tensors come from, by name
    """
    search = _Search(asked, refused, varied, name, tell)
    if isinstance(refused, RingError):
        search.plan(Change(host_ring=refused.smallest))
    elif refused.host:
        search.on_host()
    else:
        search.on_device()
    fits = [one for one in search.tried if one.fits]
    vain = sorted((one for one in search.tried if not one.fits), key=lambda one: one.peak_bytes)
    return Refusal(
        policy=asked.policy, why=str(refused),
        worst=None if refused.worst is None else Worst(**placed(refused.worst.row(), places or {})),
        limit_bytes=search.limit, host=refused.host, reached_bytes=refused.smallest, least_bytes=search.known,
        carried_bytes=search.persistent, carried_stays=search.stays, largest_batch=search.largest_batch,
        remedies=fits, in_vain=vain,
    )  # fmt: skip


class _Search:
    def __init__(self, asked: Asked, refused: BudgetError, varied: Varied, name: str, tell: Tell) -> None:
        self.asked, self.refused, self.varied, self.name, self.tell = asked, refused, varied, name, tell
        programs, self.costs = varied(Change())
        self.limit = self.costs.memory if asked.budget is None else asked.budget
        self.known = None if refused.host else self.least(programs, self.costs)  # bytes
        batch = sum(t.nbytes for t in {t for p in programs for t in p.held if t.role is Role.INPUT})
        self.persistent = persistent_layout(*synchronous(programs)).nbytes - batch
        self.stays = any(program.held for program in programs)
        self.largest_batch: int | None = None
        self.tried: list[Remedy] = []
        self.better = BUDGETED if asked.policy != BUDGETED else None
        self.sized = not asked.policy.endswith(SUFFIX)  # else the plan is one net's at one size

    # ---- what is tried

    def on_device(self) -> None:
        """The device's budget is too small: another policy, what makes tensors smaller, a batch, a larger budget."""
        asked = self.asked
        if self.persistent > self.limit:
            if self.sized:
                any(self.attempt(Change(state=state)) for state in asked.states)
            if self.better:
                self.attempt(Change(policy=self.better))
        else:
            fits = [self.attempt(change) for change in self._whole()]
            if self.sized:
                result = self.batches(Change())
                if self.better and not any(fits):
                    result = self.batches(Change(policy=self.better))
                if result is not None and not any(fits):
                    for change in (Change(no_fusion=True), *(Change(format=format) for format in asked.formats)):
                        if str(change) in {one.options for one in self.tried}:
                            self.roughly(replace(change, policy=self.better), result)
        if asked.budget is not None:
            self._larger()

    def _whole(self) -> list[Change]:
        """The changes that leave the batch as it is."""
        base, _, algorithms = self.asked.policy.partition(":")
        result = [Change(policy=base)] if algorithms == "p" else []
        if self.better:
            result.append(Change(policy=self.better))
        if self.sized:
            result += [Change(no_fusion=True)] if self.asked.fuses else []
            result += [Change(format=format) for format in self.asked.formats]
            result += [Change(state=state) for state in self.asked.states]
        return result

    def on_host(self) -> None:
        """The host's budget is too small: more of it, a policy that copies less, or a smaller batch."""
        asked = self.asked
        self._larger()
        base = asked.policy.partition(":")[0]
        before = len(self.tried)
        for policy in (*STAYING, BUDGETED):
            if policy != base:
                self.attempt(Change(policy=policy))
        fit = sorted((one for one in self.tried[before:] if one.fits), key=lambda one: one.step_seconds or 0.0)
        for slower in fit[1:]:
            self.tried.remove(slower)
        if self.sized:
            self.batches(Change())

    def _larger(self) -> None:
        """Larger budgets, which the refusal names."""
        for device, host in self.refused.kept:
            if device is None or device <= self.costs.memory:
                more = device if device != self.asked.budget else None
                self.plan(Change(budget=more, host_budget=host if host != self.asked.host_budget else None))

    # ---- how

    def least(self, programs: Sequence[Program], costs: Costs, enough: int = 0, parts: bool = True) -> int:
        """Bytes: no plan of the bound's family keeps a budget below this, and the host's, whatever the policy.
        `enough`, `parts`: as there."""
        return least_budget(synchronous(programs), replace(costs, host=self.asked.host_budget), enough, parts)

    def attempt(self, change: Change) -> bool:
        """Whether the change makes the command fit; it is planned unless the bound excludes it."""
        programs, costs = self.varied(change)
        needs = self.least(programs, costs, enough=self.limit)
        if needs > self.limit:
            self.tried.append(_remedy(change, False, needs, planned=False))
            return False
        return self.plan(change)

    def plan(self, change: Change, note: str = "") -> bool:
        """Plan the changed command; whether it fits."""
        self.tell(f"trying {change}")
        asked = self.asked
        budget = change.budget or asked.budget
        host_budget = change.host_budget or asked.host_budget
        programs, costs = self.varied(change)
        one = outcome(programs, change.policy or asked.policy, costs, budget, host_budget, self.name)
        if one.refused is not None:
            self.tried.append(_remedy(change, False, one.refused.needed))
            return False
        if change.policy and asked.policy == f"{change.policy}:p":
            note = _leaner(one.schedule.plan, costs)
        if costs.origin != self.costs.origin:
            note = "; ".join(filter(None, (note, f"by {costs.origin} costs")))
        self.tried.append(
            _remedy(
                change, True, one.arrangement.arena, host_bytes=one.arrangement.off_device,
                batch=change.batch or asked.batch, step_seconds=one.seconds, note=note,
            )
        )  # fmt: skip
        return True

    def batches(self, change: Change) -> int | None:
        """Find the largest batch that fits after the change; None if none does."""
        asked = self.asked
        if asked.batch is None or asked.batch == 1 or not self._exists(replace(change, batch=1)):
            return None
        top = self._top(change)
        if change == Change() and self.known is not None and self.known > self.limit:
            self.largest_batch = top
        if top == 0:
            return None
        most = asked.batch - 1 if top is None else top
        result = largest(
            lambda batch: synchronous(self.varied(replace(change, batch=batch))[0]), Series(1, 1, most, batches=True),
            change.policy or asked.policy, self.varied(replace(change, batch=most), sizes=True)[1], self.limit,
            (max(1, most // 2), most), asked.host_budget,
            watch=lambda t: self.tell(f"trying {replace(change, batch=t.size)}"),
        )  # fmt: skip
        if result.size is None:
            return None
        above = "" if result.refused is None else f"{result.refused.size} was tried and does not fit"
        self.plan(replace(change, batch=result.size), above)
        return result.size

    def roughly(self, change: Change, found: int) -> None:
        """Find a batch that fits after the change, and is larger than those before; not the largest, which takes long.

        found: the largest batch that was found without it. Where the bound asks for fewer bytes, more may fit."""
        assert self.asked.batch is not None and self.known is not None
        before = max((one.batch or 0 for one in self.tried if one.fits), default=0)
        about = min(self.asked.batch, found * self.known / self.least(*self.varied(change)))
        for size in (int(about * share) for share in SHARES):
            if size > before and self.plan(replace(change, batch=size), "larger ones were not tried"):
                return

    def _exists(self, change: Change) -> bool:
        """Whether there is such a net: its shapes may ask for the batch that it has."""
        try:
            self.varied(change)
        except BadInput:
            return False
        return True

    def _top(self, change: Change) -> int | None:
        """The largest batch below the asked one that the bound does not exclude, by halving; None under a policy of
        parts, for which larger ones may fit where smaller ones do not."""
        assert self.asked.batch is not None
        if parts(change.policy or self.asked.policy) != 1:
            return None
        low, high = 0, self.asked.batch
        while high - low > 1:
            middle = (low + high) // 2
            needs = self.least(*self.varied(replace(change, batch=middle)), enough=self.limit, parts=False)
            low, high = (middle, high) if needs <= self.limit else (low, middle)
        return low


def _remedy(change: Change, fits: bool, needs: int, planned: bool = True, note: str = "", **more: Any) -> Remedy:
    """A change, and what came of it. needs: bytes of the plan's arena, or of the bound"""
    return Remedy(
        options=str(change), change=change.differs, fits=fits, planned=planned, peak_bytes=needs, note=note, **more
    )


def _leaner(plan: Plan, costs: Costs) -> str:
    """Which ops do not have their fastest algorithm, in a few words."""
    names = [op.name for op, algorithm in plan.algorithm.items() if algorithm != costs.fastest(op)]
    return f"a leaner algorithm for {few(names, 1)}" if names else ""
