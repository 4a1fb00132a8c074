"""Planning where the device computes in the host's memory, as a CPU does: one budget for the arena and the host's part.

A copy to the host's part saves nothing there. So that part gets what every plan takes, and the arena all the rest: what
does not fit runs again, runs in parts, or takes a leaner algorithm. With a disk, a plan whose tensors pass through a
ring is made, too, and the quicker one of both is taken. A GPU's budget limits the arena alone, so that the same budget
gives the same plan on every machine.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from minidnn.costs import Costs, Staging
from minidnn.memory.budget import BudgetError
from minidnn.memory.execution.simulator import simulate
from minidnn.memory.lowering.host import fixed_together
from minidnn.memory.planning import arrange
from minidnn.memory.schedule import BLOCK, Arrangement, Schedule, aligned
from minidnn.program import Program, Role, Tensor
from minidnn.sizes import text

ATTEMPTS = 4  # plans of a policy that sends tensors to the host all the same
# of the largest tensor that may travel, in a ring that nobody gave a size: one comes while another one leaves
STAGING_SLOTS = 2


class TotalError(BudgetError):
    """A policy cannot keep a budget for the arena and the host's part together.

    `needed` and `smallest`: bytes of both.
    """


def arrange_unified(
    programs: Sequence[Program],
    policy: str,
    costs: Costs,
    total: int,
    budget: int | None = None,
    host_budget: int | None = None,
) -> Arrangement:
    """Like `arrange` (memory/planning.py), with at most `total` bytes for the arena and the host's part together.

    budget, host_budget: bytes of each of them, as for `arrange`

    Raises TotalError if no plan of the policy keeps the total, and what `arrange` raises.
    """
    result: list[Arrangement] = []
    refused: list[BudgetError] = []
    for staging in _stagings(programs, costs.staging):
        try:
            result.append(_within(programs, policy, replace(costs, staging=staging), total, budget, host_budget))
        except BudgetError as error:
            refused.append(error)
    if not result:
        raise min(refused, key=lambda error: error.smallest)
    return min(result, key=lambda arrangement: _seconds(arrangement.schedules[programs[0].name], costs))


def _seconds(schedule: Schedule, costs: Costs) -> float:
    return simulate(schedule, replace(costs, staging=schedule.staging)).seconds


def _within(
    programs: Sequence[Program], policy: str, costs: Costs, total: int, budget: int | None, host_budget: int | None
) -> Arrangement:
    host = least_host(programs, costs.staging)
    room: int | None = host if host_budget is None else min(host, host_budget)
    for _ in range(ATTEMPTS):
        limit = max(0, total - host)
        try:
            result = arrange(programs, policy, costs, limit if budget is None else min(limit, budget), room)
        except BudgetError as error:
            larger = [device for device, beside in error.kept if device is not None and beside == room]
            if error.host and larger and budget is None:
                raise _refusal(policy, min(larger) + host, total, f": {error}") from None
            if error.host and room != host_budget:  # the policy sends tensors to the host all the same
                room = host_budget
                continue
            if error.host or (budget is not None and budget < limit):
                raise
            raise _refusal(policy, error.smallest + host, total, f": {error}") from None
        if result.arena + result.off_device <= total:
            return replace(result, budget=budget)
        host = result.off_device
    raise _refusal(policy, result.arena + result.off_device, total)


def _refusal(policy: str, smallest: int, total: int, why: str = "") -> TotalError:
    return TotalError(
        f"{policy} needs {text(smallest)} for the arena and the host's part, but {text(total)} are left for both{why}",
        smallest,
        smallest,
    )


def least_host(programs: Sequence[Program], staging: Staging | None) -> int:
    """Bytes of the host's part that every plan of these programs takes, its ring included."""
    least = fixed_together(programs)
    return least if staging is None else aligned(least, BLOCK) + aligned(staging.ring, BLOCK)


def _stagings(programs: Sequence[Program], staging: Staging | None) -> Iterator[Staging | None]:
    """Without a disk a ring takes bytes of the same memory, and saves none."""
    yield None
    if staging is not None and staging.disk is not None:
        yield (
            staging
            if staging.ring
            else replace(staging, ring=STAGING_SLOTS * aligned(max(map(_largest, programs)), BLOCK), on_demand=False)
        )


def _largest(program: Program) -> int:
    """Bytes of the largest tensor that may leave for the disk."""
    return max((t.nbytes for t in program.tensors if _leaves(t, program)), default=0)


def _leaves(t: Tensor, program: Program) -> bool:
    return t.role in (Role.ACTIVATION, Role.GRADIENT) and t not in program.persistent
