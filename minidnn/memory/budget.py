"""Errors for budgets that a policy cannot keep. They name the largest tensors, and a budget that would do."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from minidnn.costs import Costs
from minidnn.errors import BadInput
from minidnn.memory.schedule import Schedule
from minidnn.program import Tensor
from minidnn.sizes import text

NAMED = 6  # tensors that a refusal names at most


class BudgetError(BadInput):
    """A policy cannot keep a budget of bytes: on the host if `host`, else on the device.

    needed:   bytes that this plan takes
    smallest: bytes that the policy's leanest plan takes
    """

    def __init__(self, message: str, needed: int, smallest: int, host: bool = False) -> None:
        super().__init__(message)
        self.needed, self.smallest, self.host = needed, smallest, host


class RingError(BudgetError):
    """A ring is too small for a tensor that travels.

    `needed`: bytes of the ring; `smallest`: bytes of one that would do.
    """


class RamError(BudgetError):
    """A run would take more of this machine's memory than it may (training/ram.py).

    `needed` and `smallest`: bytes that it would take.
    """


def refusal(
    policy: str, schedules: Mapping[str, Schedule], limit: int, whole: bool, costs: Costs, smallest: int
) -> BudgetError:
    """The error for plans that take more than `limit` bytes of the device.

    whole:    nobody asked for a budget, so the limit is all of the device's memory
    smallest: bytes that the policy's leanest plans take
    """
    worst = max(schedules.values(), key=lambda s: s.arena)
    point = worst.peak_point
    live = worst.live(point)
    names = ", ".join(f"{b.label} {text(b.nbytes)}" for b in live[:NAMED])
    if len(live) > NAMED:
        names += f", and {len(live) - NAMED} more of {text(sum(b.nbytes for b in live[NAMED:]))} together"
    needs, allowed = _distinct(worst.arena, limit)
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
    """The error for plans that take `host` bytes of the host, more than `host_budget`."""
    sizes: dict[Tensor, int] = {}
    for s in schedules:
        for t in s.host_offset:
            sizes[t] = max(sizes.get(t, 0), t.nbytes)
    largest = sorted(sizes, key=lambda t: -t.nbytes)[:NAMED]
    names = ", ".join(f"{t.name} {text(t.nbytes)}" for t in largest)
    keeps, allowed = _distinct(host, host_budget)
    return BudgetError(
        f"{policy} keeps {keeps} on the host, the host budget is {allowed}; the largest tensors that travel: "
        f"{names}; the smallest host budget {policy} can keep is {host} bytes ({text(host)})",
        host,
        host,
        host=True,
    )


def _distinct(needed: int, allowed: int) -> tuple[str, str]:
    """Two sizes for people; in bytes if both would round to the same three figures."""
    short = text(needed), text(allowed)
    return short if short[0] != short[1] else (f"{needed} bytes", f"{allowed} bytes")
