"""A comparison of policies on one net: planned and simulated here, or run on a device (training/comparison.py).

A policy that cannot keep the budget still has a row: `fits` is false, and `why` gives the reason. The numbers of such a
row are those under the smallest budget that the policy can keep.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from statistics import median_low
from typing import Any

from minidnn.costs import Costs
from minidnn.jobs.outcome import Outcome, add_bound, nearest
from minidnn.measuring.spread import Spread
from minidnn.memory.budget import BudgetError, RingError
from minidnn.memory.moment import by_role
from minidnn.memory.policies.papers.vdnn import feature_extraction
from minidnn.memory.policies.shared.lacking import Lacking
from minidnn.memory.schedule import Schedule
from minidnn.program import Algorithm, Op, Program, Role, nbytes
from minidnn.results.policies import PolicyRow
from minidnn.visible import say_once


@dataclass(eq=False)
class Result(Outcome):
    """The outcome of a policy that is compared with others. Of one that was run, `trace` is measured.

    steps:     seconds of each timed step, of a policy that was run
    slowdown:  the time over baseline's; None: there is no baseline
    slowdowns: of a policy that was run: the slowdown with its interval
    identical: whether it ended with the same bytes as baseline; None: not compared
    more:      further columns of the row
    """

    steps: Sequence[float] = ()
    slowdown: float | None = None
    slowdowns: Spread | None = None
    identical: bool | None = None
    more: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, outcome: Outcome) -> Result:
        """The outcome as a result. Its step is simulated now: a run may change the plan."""
        result = cls(**{one.name: getattr(outcome, one.name) for one in fields(Outcome)})
        result.trace = outcome.trace
        return result

    @property
    def seconds(self) -> float:
        """Seconds of one step: those of the median step (of two, the quicker), or the simulator's if none was run."""
        return median_low(self.steps) if self.steps else self.trace.seconds

    def _intervals(self) -> dict[str, Any]:
        """95 % confidence intervals of the medians, as columns of the row; empty if the policy was not run."""
        if not self.steps:
            return {}
        result: dict[str, Any] = {"timed_steps": len(self.steps)}
        for name, spread in (("step_seconds", Spread.in_turn(self.steps)), ("slowdown", self.slowdowns)):
            if spread is not None:
                result |= {f"{name}_low": spread.low, f"{name}_high": spread.high}
        return result

    def _smallest_host(self) -> int | None:
        return self.refused.smallest if type(self.refused) is BudgetError and self.refused.host else None

    def _smallest_device(self) -> int | None:
        return self.refused.smallest if type(self.refused) is BudgetError and not self.refused.host else None

    def row(self) -> PolicyRow:
        schedule = self.schedule
        return PolicyRow(
            policy=self.policy,
            algorithms=describe(schedule.plan.algorithm),
            fits=self.fits,
            peak_bytes=self.arrangement.arena,
            live_peak_bytes=schedule.live_peak,
            arena_bytes=schedule.arena,
            average_bytes=self.trace.average_bytes,
            **self.copies,
            host_bytes=self.arrangement.off_device,
            recomputed_ops=self.recomputed,
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
            peer_bytes=self.arrangement.on_peers,
            smallest_budget_bytes=self._smallest_device(),
            smallest_host_budget_bytes=self._smallest_host(),
            smallest_host_ring_bytes=self.refused.smallest if isinstance(self.refused, RingError) else None,
            **self.more,
            **self._intervals(),
            why=self.why,
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
    weights = [t for t in schedule.program.persistent if t.role is Role.PARAM]
    if policy.startswith("vdnn"):
        features = {layer.name for layer in feature_extraction(schedule.program)}
        owner = {t: op.layer for op in schedule.program.ops for t in op.reads if t.role is Role.PARAM}
        weights = [t for t in weights if owner.get(t) in features]
    return int(maps.max()) + nbytes(weights)


def simulated(
    programs: Sequence[Program],
    policies: Iterable[str],
    costs: Costs,
    budget: int | None = None,
    host_budget: int | None = None,
    facts: str = "default",
    name: str = "TRAIN",
    plan: Callable[[str], Outcome] | None = None,
) -> list[Result]:
    """A Result per policy, planned and run on the simulator.

    plan: plans a policy, as `nearest` does, which is the default

    Slowdowns are relative to the first baseline among the policies, even if that is refused. A policy that finds
    nothing in the net to work on is left out, and named on stderr. Raises Lacking if all are."""
    train = next(program for program in programs if program.name == name)
    results: list[Result] = []
    lacking: list[Lacking] = []
    for policy in policies:
        try:
            result = Result.of(plan(policy) if plan else nearest(programs, policy, costs, budget, host_budget, name))
        except Lacking as error:
            lacking.append(error)
            continue
        add_bound(result, train, budget, host_budget)
        if facts == "vdnn2016":
            result.more["paper_peak_bytes"] = paper_peak(result.schedule, policy)
        results.append(result)
    if lacking and not results:
        raise lacking[0]
    for without in lacking:
        say_once(f"minidnn: left out: {without}")
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
