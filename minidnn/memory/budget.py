"""Budgets that a policy cannot keep, and what to say of them: what takes the bytes, and what would work."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from minidnn.costs import Costs
from minidnn.errors import BadInput
from minidnn.memory.schedule import Schedule
from minidnn.program import Tensor
from minidnn.sizes import text

NAMED = 6  # tensors a refusal lists by name


class BudgetError(BadInput):
    """A policy cannot keep a budget. `needed` and `smallest` are bytes: what this plan takes, and what the policy
    would take at its leanest; on the host, if `host`, else on the device."""

    def __init__(self, message: str, needed: int, smallest: int, host: bool = False) -> None:
        super().__init__(message)
        self.needed, self.smallest, self.host = needed, smallest, host


class RingError(BudgetError):
    """A ring is too small for what a policy moves. `needed` is its size, `smallest` that of one that would do."""


def refusal(
    policy: str, schedules: Mapping[str, Schedule], limit: int, whole: bool, costs: Costs, smallest: int
) -> BudgetError:
    worst = max(schedules.values(), key=lambda s: s.arena)
    point = worst.peak_point
    live = worst.live(point)
    names = ", ".join(f"{b.label} {text(b.nbytes)}" for b in live[:NAMED])
    if len(live) > NAMED:
        names += f", and {len(live) - NAMED} more of {text(sum(b.nbytes for b in live[NAMED:]))} together"
    needs, allowed = _apart(worst.arena, limit)
    what = f"{costs.device} has {allowed}" if whole else f"the budget is {allowed}"
    fragments = ""
    if worst.live_peak <= limit:
        fragments = f" (its live bytes would fit, but no placement tried is lower than {needs})"
    if smallest <= limit:
        advice = f"the policy's leanest plan takes {text(smallest)}: ask for a budget of {text(worst.arena)} or more"
    else:
        advice = f"the smallest budget {policy} can keep is {smallest} bytes ({text(smallest)})"
    return BudgetError(
        f"{policy} needs {needs}, {what}{fragments}; at {worst.program.name} "
        f"{worst.plan.order[point].name} (instruction {worst.points[point]}) live: {names}; {advice}",
        worst.arena,
        smallest,
    )


def host_refusal(policy: str, schedules: Iterable[Schedule], host: int, host_budget: int) -> BudgetError:
    sizes: dict[Tensor, int] = {}
    for s in schedules:
        for t in s.host_offset:
            sizes[t] = max(sizes.get(t, 0), t.nbytes)
    largest = sorted(sizes, key=lambda t: -t.nbytes)[:NAMED]
    names = ", ".join(f"{t.name} {text(t.nbytes)}" for t in largest)
    keeps, allowed = _apart(host, host_budget)
    return BudgetError(
        f"{policy} keeps {keeps} on the host, the host budget is {allowed}; the largest that travel: "
        f"{names}; the smallest host budget {policy} can keep is {host} bytes ({text(host)})",
        host,
        host,
        host=True,
    )


def _apart(needed: int, allowed: int) -> tuple[str, str]:
    """Two sizes for people, in bytes where three figures would not tell them apart."""
    short = text(needed), text(allowed)
    return short if short[0] != short[1] else (f"{needed} bytes", f"{allowed} bytes")
