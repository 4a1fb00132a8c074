"""N ranks by the simulator: an iteration's seconds with its communication, what of that shows, and what one rank takes.

An iteration is all micro-batches up to an update. Each of its programs is simulated as it is planned and proved, on one
rank: all ranks do the same at the same time. No plan is made anew to find the cost of a link. The same schedules are
simulated with a link without latency, with one of endless bandwidth, and without any communication.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from minidnn.costs import Costs
from minidnn.costs.net import Link, Network, among, sent, unhindered
from minidnn.jobs.job import Job
from minidnn.jobs.outcome import of_job
from minidnn.jobs.plannable import Plannable, Ranked
from minidnn.memory.execution.simulator import simulate
from minidnn.memory.policies.plan_file import SUFFIX
from minidnn.memory.schedule import Arrangement, Schedule
from minidnn.results.ranks import ScalingRow
from minidnn.spoken import many

ENDLESS = 1e30  # bytes per second

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Iteration:
    """One rank's iteration among `ranks`.

    samples: of all ranks
    seconds: of the iteration
    free:    its seconds if communications took no time
    busy:    seconds in which communications are under way
    sent:    bytes of the first rank, which has most (costs/net.py)
    """

    ranks: int
    samples: int
    seconds: float
    free: float
    busy: float
    sent: int

    @property
    def rate(self) -> float:
        """Samples per second of all ranks."""
        return self.samples / self.seconds

    @property
    def exposed(self) -> float:
        """Seconds of the iteration that are due to communication: compute does not hide them."""
        return max(0.0, self.seconds - self.free)

    def efficiency(self, alone: Iteration) -> float:
        """The speed of these ranks over as many times that of one alone."""
        return self.rate / (self.ranks * alone.rate)


def iteration(found: Arrangement, parts: Sequence[str], ranks: int, batch: int, costs: Costs) -> Iteration:
    """The iteration of these programs, in the order of its micro-batches. batch: samples of each"""
    schedules = [found.schedules[name] for name in parts]
    busy = sum(span.end - span.start for s in schedules for span in simulate(s, costs).spans if span.stream == "net")
    bytes_sent = sum(sent(op) for s in schedules for op in s.plan.order if op.on_net)
    free = _seconds(schedules, unhindered(costs))
    return Iteration(ranks, ranks * len(parts) * batch, _seconds(schedules, costs), free, busy, bytes_sent)


def _seconds(schedules: Sequence[Schedule], costs: Costs) -> float:
    taken = {s: simulate(s, costs).seconds for s in dict.fromkeys(schedules)}
    return sum(taken[s] for s in schedules)


def alone(job: Ranked, policy: str, costs: Costs) -> Iteration | None:
    """The iteration of one rank with the same batch, under the same policy and budgets; None: these refuse it."""
    if policy.endswith(SUFFIX):  # its plan is of several ranks
        return None
    one = job.among(1)
    single = of_job(one, policy, costs)
    return iteration(single.arrangement, one.parts, 1, one.batch or 1, costs) if single.fits else None


def columns(job: Plannable, policy: str, found: Arrangement, costs: Costs) -> dict[str, float | int | None]:
    """What a row of results says of a policy's ranks; empty if nobody has asked for ranks."""
    ranks, ranked = job.setting.ranks, job.ranked
    if ranks is None or ranked is None:
        return {}
    among_all = iteration(found, ranked.parts, ranks, job.batch or 1, costs)
    single = among_all if ranks == 1 else alone(ranked, policy, costs)
    return {
        "samples_per_second": among_all.rate,
        "tokens": job.tokens,
        "efficiency": None if single is None else among_all.efficiency(single),
        "exposed_seconds": among_all.exposed,
        "net_seconds": among_all.busy,
        "sent_bytes": among_all.sent,
    }


def curve(
    job: Job,
    policies: Sequence[str],
    counts: Sequence[int],
    costs: Costs,
    tell: Tell = lambda text: None,
) -> Iterator[ScalingRow]:
    """A row for each policy and each number of ranks, in rising order. costs: those of one rank's ops and copies"""
    for policy in policies:
        singles: dict[int | None, Iteration | None] = {}  # by batch
        for ranks in sorted(set(counts)):
            tell(f"{policy}: {many(ranks, 'rank')}")
            one = job.among(ranks, job.batch_of(ranks))
            if one.batch not in singles:
                singles[one.batch] = alone(one, policy, costs)
            yield _row(one, policy, costs, singles[one.batch])


def _row(job: Job, policy: str, costs: Costs, single: Iteration | None) -> ScalingRow:
    ranks, batch = job.setting.ranks or 1, job.batch or 1
    network = job.network(costs)
    costs = among(costs, network)
    all_ranks = of_job(job, policy, costs)
    if not all_ranks.fits:
        return ScalingRow(policy=policy, ranks=ranks, batch=batch, fits=False, why=all_ranks.why)
    plan = all_ranks.arrangement
    it = iteration(plan, job.parts, ranks, batch, costs)
    schedules = [plan.schedules[name] for name in job.parts]

    def saved(other: Network) -> float:
        return max(0.0, it.seconds - _seconds(schedules, among(costs, other)))

    return ScalingRow(
        policy=policy, ranks=ranks, batch=batch, fits=True,
        iteration_seconds=it.seconds, samples_per_second=it.rate,
        efficiency=None if single is None else it.efficiency(single),
        exposed_seconds=it.exposed, net_seconds=it.busy, compute_seconds=it.free, sent_bytes=it.sent,
        saved_without_latency_seconds=saved(_each(network, lambda link: replace(link, latency=0.0, gap=0.0))),
        saved_without_bytes_seconds=saved(_each(network, lambda link: replace(link, bandwidth=ENDLESS))),
        peak_bytes=plan.arena, host_bytes=plan.off_device,
    )  # fmt: skip


def _each(network: Network, change: Callable[[Link], Link]) -> Network:
    """The network with each link changed."""
    if isinstance(network, Link):
        return change(network)
    return replace(network, within=change(network.within), between=change(network.between))
