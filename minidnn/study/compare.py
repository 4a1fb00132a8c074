"""A comparison of policies on one net: planned and simulated here, or run on a device (study/run.py).

A policy that cannot keep the budget still has a row: `fits` is false, and `why` gives the reason. The numbers of such a
row are those under the smallest budget that the policy can keep.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median_low
from typing import Any

from minidnn.costs import Costs
from minidnn.measuring.spread import Spread
from minidnn.memory.budget import BudgetError, DiskError, RingError
from minidnn.memory.execution.simulator import simulate
from minidnn.memory.execution.trace import Trace, copied
from minidnn.memory.joint.family import Family
from minidnn.memory.joint.linear import NoSolver
from minidnn.memory.moment import by_role
from minidnn.memory.planning import arrange
from minidnn.memory.policies.papers.vdnn import feature_extraction
from minidnn.memory.schedule import Arrangement, Compute, Schedule
from minidnn.program import Algorithm, Op, Program, Role, nbytes
from minidnn.results.policies import PolicyRow
from minidnn.visible import say_once


@dataclass(eq=False)
class Result:
    """The result of one policy. `trace` is simulated or measured; `arrangement` holds the planned schedules."""

    policy: str
    arrangement: Arrangement
    trace: Trace
    name: str = "TRAIN"  # the program that is compared
    refused: BudgetError | None = None
    steps: Sequence[float] = ()  # seconds of each timed step, of a policy that was run
    slowdown: float | None = None  # time over baseline's; None: there is no baseline
    slowdowns: Spread | None = None  # of a policy that was run: the slowdown with its interval
    identical: bool | None = None  # whether it ended with the same bytes as baseline; None: not compared
    bound: float | None = None  # seconds that no plan of whole ops on the device within the budget is below
    gap: float | None = None  # the simulated seconds beyond the bound, as a part of it
    more: dict[str, Any] = field(default_factory=dict)  # further columns of the row

    @property
    def schedule(self) -> Schedule:
        return self.arrangement.schedules[self.name]

    @property
    def fits(self) -> bool:
        return self.refused is None

    @property
    def seconds(self) -> float:
        """Seconds of one step: those of the median step (of two, the quicker), or the simulator's if none was run."""
        return median_low(self.steps) if self.steps else self.trace.seconds

    def _intervals(self) -> dict[str, Any]:
        """95 % confidence intervals of the medians, as columns of the row; empty if the policy was not run."""
        if not self.steps:
            return {}
        found: dict[str, Any] = {"timed_steps": len(self.steps)}
        for name, spread in (("step_seconds", Spread.in_turn(self.steps)), ("slowdown", self.slowdowns)):
            if spread is not None:
                found |= {f"{name}_low": spread.low, f"{name}_high": spread.high}
        return found

    def _smallest_host(self) -> int | None:
        return self.refused.smallest if type(self.refused) is BudgetError and self.refused.host else None

    def _smallest_device(self) -> int | None:
        return self.refused.smallest if type(self.refused) is BudgetError and not self.refused.host else None

    def row(self) -> PolicyRow:
        schedule = self.schedule
        moved = copied(schedule.instructions, schedule)
        return PolicyRow(
            policy=self.policy,
            algorithms=describe(schedule.plan.algorithm),
            fits=self.fits,
            peak_bytes=self.arrangement.arena,
            live_peak_bytes=schedule.live_peak,
            arena_bytes=schedule.arena,
            average_bytes=self.trace.average_bytes,
            **moved,
            host_bytes=self.arrangement.off_device,
            recomputed_ops=sum(isinstance(x, Compute) and x.run > 0 for x in schedule.instructions),
            step_seconds=self.seconds,
            slowdown=self.slowdown,
            bound_seconds=self.bound,
            gap=self.gap,
            stall_seconds=self.trace.stall_seconds,
            identical=self.identical,
            role_bytes=by_role(schedule),
            pinned_bytes=self.arrangement.host,
            pageable_bytes=self.arrangement.store,
            undo_bytes=self.arrangement.undo,
            on_disk_bytes=self.arrangement.on_disk,
            smallest_budget_bytes=self._smallest_device(),
            smallest_host_budget_bytes=self._smallest_host(),
            smallest_host_ring_bytes=self.refused.smallest if isinstance(self.refused, RingError) else None,
            **self.more,
            **self._intervals(),
            why=str(self.refused) if self.refused else None,
        )


CHOSEN = (
    "convolution.forward", "convolution.forward_relu", "convolution.backward_filter", "convolution.backward_data",
)  # fmt: skip


def describe(algorithm: Mapping[Op, Algorithm]) -> str:
    """How many passes of convolutions use each algorithm: "fast 40, implicit_gemm 7"."""
    counts = Counter(a.name for op, a in algorithm.items() if op.kind in CHOSEN)
    if set(counts) <= {"default"}:
        return "default"
    return ", ".join(f"{name} {counts[name]}" for name in sorted(counts))


def paper_peak(schedule: Schedule, policy: str) -> int:
    """The peak in bytes as the vDNN paper counts it (its section IV, Figures 2 and 11).

    It counts weights and the most bytes of feature and gradient maps that live at once. It does not count weight
    gradients, workspaces, labels and the softmax's own output. For baseline it counts every weight, for vDNN only those
    of the feature-extraction layers.
    """
    maps = schedule.curve(frozenset({Role.INPUT, Role.ACTIVATION, Role.GRADIENT}))
    weights = [t for t in schedule.program.carried if t.role is Role.PARAM]
    if policy.startswith("vdnn"):
        features = {layer.name for layer in feature_extraction(schedule.program)}
        owner = {t: op.layer for op in schedule.program.ops for t in op.reads if t.role is Role.PARAM}
        weights = [t for t in weights if owner.get(t) in features]
    return int(maps.max()) + nbytes(weights)


def planned(
    programs: Sequence[Program],
    policy: str,
    costs: Costs,
    budget: int | None = None,
    host_budget: int | None = None,
) -> tuple[Arrangement, BudgetError | None]:
    """The policy's arrangement, and the refusal if it cannot keep a budget (else None).

    A refused policy is planned again under the smallest budget that it can keep, with the smallest ring, or with as
    much of the disk as it wants."""
    try:
        return arrange(programs, policy, costs, budget, host_budget), None
    except RingError as error:
        assert costs.staging is not None
        larger = replace(costs, staging=replace(costs.staging, ring=error.smallest))
        return planned(programs, policy, larger, budget, host_budget)[0], error
    except DiskError as error:
        assert costs.staging is not None and costs.staging.disk is not None
        larger = replace(costs, staging=replace(costs.staging, disk=replace(costs.staging.disk, most=None)))
        return planned(programs, policy, larger, budget, host_budget)[0], error
    except BudgetError as error:
        refused = error
    # If only the host budget was exceeded, the plan is the one that the device's budget allows.
    allowed = *refused.kept[:1], (budget if refused.host else refused.needed, None)
    for device, host in allowed:
        try:
            return arrange(programs, policy, costs, device, host), refused
        except BudgetError:
            continue
    raise refused


class Bounds:
    """The bounds of the seconds of a step within the budgets (memory/joint/family.py), for results that were
    simulated."""

    def __init__(self, program: Program, costs: Costs, budget: int | None, host_budget: int | None = None) -> None:
        self.program, self.costs, self.budget = program, replace(costs, host=host_budget), budget
        self.known: dict[bool, float | None] = {}  # {whether inputs are early: the bound}

    def told(self, result: Result) -> Result:
        """The result with its bound and gap, if there is a budget and the result keeps it. The bound is not for a plan
        of which the host runs ops."""
        if self.budget is None or result.refused is not None or result.schedule.plan.beside:
            return result
        early = bool(result.schedule.program.early)
        if early not in self.known:
            self.known[early] = self._of(self.program if early else self.program.late(), self.budget)
        result.bound = self.known[early]
        result.gap = None if not result.bound else result.trace.seconds / result.bound - 1
        return result

    def _of(self, program: Program, budget: int) -> float | None:
        try:
            found = Family(program, self.costs).closest(budget)
        except NoSolver as reason:
            say_once(f"minidnn: there is no bound, since it {reason}")
            return None
        return None if found is None else found.seconds


def simulated(
    programs: Sequence[Program],
    policies: Iterable[str],
    costs: Costs,
    budget: int | None = None,
    host_budget: int | None = None,
    facts: str = "default",
    name: str = "TRAIN",
    plan: Callable[[str], tuple[Arrangement, BudgetError | None]] | None = None,
) -> list[Result]:
    """A Result per policy, planned and run on the simulator.

    plan: plans a policy, as `planned` does, which is the default

    Slowdowns are relative to the first baseline among the policies, even if that is refused."""
    train = next(program for program in programs if program.name == name)
    results, bounds = [], Bounds(train, costs, budget, host_budget)
    for policy in policies:
        arrangement, refused = plan(policy) if plan else planned(programs, policy, costs, budget, host_budget)
        trace = simulate(arrangement.schedules[name], costs)
        result = bounds.told(Result(policy, arrangement, trace, name, refused))
        if facts == "vdnn2016":
            result.more["paper_peak_bytes"] = paper_peak(result.schedule, policy)
        results.append(result)
    against_baseline(results)
    return results


def against_baseline(results: Sequence[Result], interleaved: bool = False) -> None:
    """Set each result's slowdown relative to the first baseline, if there is one.

    If the policies' steps were interleaved, the slowdown is the median over rounds of the ratio within a round. A load
    that slows a whole round does not change that ratio."""
    base = next((r for r in results if r.policy.split(":")[0] == "baseline"), None)
    if base is None or not base.seconds:
        return
    for r in results:
        if interleaved and r.steps and base.steps:
            r.slowdowns = Spread.in_turn([a / b for a, b in zip(r.steps, base.steps, strict=True)])
        elif r.steps and base.steps:
            mine, theirs = Spread.in_turn(r.steps), Spread.in_turn(base.steps)
            r.slowdowns = Spread(mine.median / theirs.median, mine.low / theirs.high, mine.high / theirs.low)
        r.slowdown = r.seconds / base.seconds if r.slowdowns is None else r.slowdowns.median
