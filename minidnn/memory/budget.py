"""Errors for budgets that a policy cannot keep. They name the largest tensors, and a budget that would do."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from minidnn.costs import Costs
from minidnn.errors import BadInput
from minidnn.memory.moment import Moment, Why, worst
from minidnn.memory.schedule import Schedule
from minidnn.program import Tensor
from minidnn.sizes import text

Budgets = tuple[int | None, int | None]  # bytes of the device and of the host; None: no budget is named

NAMED = 3  # tensors that a refusal names at most, of those that are there for one reason


class BudgetError(BadInput):
    """A policy cannot keep a budget of bytes: on the host if `host`, else on the device.

    needed:   bytes that this plan takes
    smallest: bytes that the policy's leanest plan takes
    worst:    the moment that shows best why the device's budget is too low; None for other budgets
    kept:     budgets that the policy keeps, one larger than asked, or both
    """

    def __init__(
        self,
        message: str,
        needed: int,
        smallest: int,
        host: bool = False,
        worst: Moment | None = None,
        budgets: Sequence[Budgets] = (),
    ) -> None:
        super().__init__(message)
        self.needed, self.smallest, self.host, self.worst, self.kept = needed, smallest, host, worst, tuple(budgets)

    def __reduce__(self) -> tuple[type[BudgetError], tuple[object, ...]]:
        return type(self), (str(self), self.needed, self.smallest, self.host, self.worst, self.kept)


class RingError(BudgetError):
    """A ring is too small for a tensor that travels.

    `needed`: bytes of the ring; `smallest`: bytes of one that would do.
    """


class DiskError(BudgetError):
    """A plan puts more on the disk than may be used there.

    `needed` and `smallest`: bytes that it puts there.
    """


class RamError(BudgetError):
    """A run would take more of this machine's memory than it may (jobs/ram.py).

    `needed` and `smallest`: bytes that it would take.
    """


def refusal(
    policy: str, schedules: Mapping[str, Schedule], limit: int, whole: bool, costs: Costs, budgets: Budgets
) -> BudgetError:
    """The error for plans that take more than `limit` bytes of the device.

    whole: nobody asked for a budget, so the limit is all of the device's memory
    budgets: bytes of the device that the policy's leanest plans take, and a budget of the host that they keep
    """
    smallest, host = budgets
    assert smallest is not None
    largest = max(schedules.values(), key=lambda s: s.arena)
    then = worst(largest, limit, costs)
    needs, allowed = _distinct(largest.arena, limit)
    what = f"{costs.device} has {allowed}" if whole else f"the budget is {allowed}"
    fragments = ""
    if largest.live_peak <= limit:
        fragments = f" (its live bytes would fit, but no placement tried is lower than {needs})"
    if smallest <= limit:
        advice = f"the policy's leanest plan takes {text(smallest)}: give a budget of {text(largest.arena)} or more"
    else:
        advice = f"the smallest budget {policy} can keep is {_exact(smallest)}"
        advice += "" if host is None else f" with a host budget of {_exact(host)}"
    return BudgetError(
        f"{policy} needs {needs}, {what}{fragments}; at {then.program} {then.op} (instruction "
        f"{largest.points[then.point]}) live: {_reasons(then)}; {advice}",
        largest.arena,
        smallest,
        worst=then,
        budgets=[(largest.arena if smallest <= limit else smallest, host)],
    )


def _reasons(then: Moment) -> str:
    """The live bytes by the reason why they are there, with the largest tensors. Reasons of less than a hundredth of
    the bytes are left out."""
    result = []
    for why in Why:
        if (held := then.held(why)) * 100 <= then.live:
            continue
        there = [] if why in (Why.PERSISTENT, Why.WORKSPACE) else then.of(why)
        names = [f"{r.name} {text(r.nbytes)}" for r in there[:NAMED]] + ["..."] * (len(there) > NAMED)
        result.append(f"{why.value} {text(held)}" + (f" ({', '.join(names)})" if names else ""))
    return ", ".join(result)


def host_refusal(
    policy: str, schedules: Iterable[Schedule], host: int, host_budget: int, budgets: Budgets, larger: int | None = None
) -> BudgetError:
    """The error for plans that take `host` bytes of the host, more than `host_budget`.

    budgets: the budget of the device, and the smallest of the host that the policy keeps with it
    larger: the smallest budget of the device that the policy keeps with `host_budget`; None: there is none
    """
    device, smallest = budgets
    assert smallest is not None
    sizes: dict[Tensor, int] = {}
    for s in schedules:
        for t in s.host_offset:
            sizes[t] = max(sizes.get(t, 0), t.nbytes)
    largest = sorted(sizes, key=lambda t: -t.nbytes)[: 2 * NAMED]
    names = ", ".join(f"{t.name} {text(t.nbytes)}" for t in largest)
    keeps, allowed = _distinct(host, host_budget)
    advice = f"the smallest host budget {policy} can keep is {_exact(smallest)}"
    advice += "" if device is None else f" with a budget of {_exact(device)}"
    advice += "" if larger is None else f"; with this host budget it can keep a budget of {_exact(larger)}"
    return BudgetError(
        f"{policy} keeps {keeps} on the host, the host budget is {allowed}; the largest tensors that leave the "
        f"device: {names}; {advice}",
        host,
        smallest,
        host=True,
        budgets=[budgets] if larger is None else [budgets, (larger, host_budget)],
    )


def of_budget(error: BaseException) -> bool:
    """Whether a budget was refused, and not for want of this machine's memory or of bytes of a disk."""
    return isinstance(error, BudgetError) and not isinstance(error, (RamError, DiskError))


def _exact(nbytes: int) -> str:
    return f"{nbytes} bytes ({text(nbytes)})"


def _distinct(needed: int, allowed: int) -> tuple[str, str]:
    """Two sizes for people; in bytes if both would round to the same three figures."""
    short = text(needed), text(allowed)
    return short if short[0] != short[1] else (f"{needed} bytes", f"{allowed} bytes")
