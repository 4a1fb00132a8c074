"""Speed against the number of ranks: a net on 1, 2, 4 ... devices that train together, simulated."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from minidnn.api import header
from minidnn.api.answer import Answer, Tell, silent
from minidnn.api.plan import listed
from minidnn.errors import InvalidInput
from minidnn.jobs.job import Job, Source, read
from minidnn.jobs.ranks import curve
from minidnn.memory.policies.check import check_policies, no_effort
from minidnn.report.ranks import LOOK
from minidnn.results.ranks import Scaling as Document
from minidnn.results.ranks import ScalingRow

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from minidnn.jobs.setting import Given

MOST = 1 << 16  # ranks


class Scaling(Answer[Document, ScalingRow]):
    """The result of `minidnn.scaling`: a row for each policy on each number of ranks."""

    look = LOOK


def scaling(
    net: Source,
    counts: Sequence[int],
    policies: Sequence[str] | str | None = None,
    *,
    batch: int | None = None,
    gpu: str | None = None,
    ignore_unknown: bool = False,
    **given: Unpack[Given],
) -> Scaling:
    """Plan a net on several numbers of ranks, and simulate an iteration of each.

    net:      a Net, a solver's parameters, a file, or the name of a model
    counts:   the numbers of ranks, such as (1, 2, 4, 8)
    policies: their names; None: `policy`, else the solver file's, else the default
    keywords: as of `minidnn.plan`, without `ranks`

    Raises NoSuchModel, NoSuchPolicy, InvalidFile and InvalidInput.
    """
    checked(counts)
    given["ranks"] = min(counts)
    job = read(net, given, batch, gpu, ignore_unknown)
    return of(job, listed(policies) or [job.setting.policy], counts)


def checked(counts: Sequence[int]) -> None:
    """Raise InvalidInput for numbers of ranks that cannot be."""
    if not counts or not all(isinstance(n, int) and 1 <= n <= MOST for n in counts):
        raise InvalidInput(f"ranks: expected whole numbers from 1 to {MOST}, not {list(counts)!r}")


def of(job: Job, policies: Sequence[str], counts: Sequence[int], tell: Tell = silent) -> Scaling:
    """The speed of a job on these numbers of ranks."""
    check_policies(policies, sizes=True)
    no_effort(job.setting.effort, "scaling")
    for ranks in counts:
        job.batch_of(ranks)  # raises before anything is planned
    costs = job.costs_of_sizes() if len(set(counts)) > 1 else job.costs()
    try:
        rows = list(curve(job, policies, counts, costs, tell))
    finally:
        tell("")
    document = Document(
        rows=rows,
        budget_bytes=job.setting.budget,
        global_batch=job.setting.global_batch,
        **{**header.of_plan(job, costs), "ranks": None},
    )
    shared = job.setting.global_batch
    title = header.title(job) if shared is None else f"{job.name}, batch {shared} over all ranks"
    return Scaling(document, title, header.notes(job.varied(ranks=max(counts)), costs))
