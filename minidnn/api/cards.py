"""Which of the known GPUs is enough for a net, and at what loss of time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from minidnn import sizes
from minidnn.api import header
from minidnn.api.answer import Answer, Tell, silent
from minidnn.api.plan import listed
from minidnn.costs import gpus as known
from minidnn.jobs.gpus import HOST, gpu, host_memory, named
from minidnn.jobs.job import Source, read
from minidnn.jobs.outcome import free, nearest
from minidnn.jobs.plannable import Plannable
from minidnn.memory.planning import synchronous
from minidnn.memory.policies import BUDGETED
from minidnn.memory.policies.check import no_effort
from minidnn.report.cards import LOOK
from minidnn.results.budgets import CardRow
from minidnn.results.budgets import Cards as Document
from minidnn.spoken import option

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from minidnn.jobs.setting import Given

ANY = "a100"  # a GPU whose ops are fused as those of any other
SLOWER = 0.01  # a card is enough without loss if a step takes at most so much more, as a part of it


class Cards(Answer[Document, CardRow]):
    """The result of `minidnn.cards`: a row for each GPU with a profile, the least memory first."""

    look = LOOK


def cards(
    net: Source,
    gpus: Sequence[str] | str | None = None,
    *,
    batch: int | None = None,
    ignore_unknown: bool = False,
    **given: Unpack[Given],
) -> Cards:
    """Plan a net within the memory of each GPU that has a profile, and simulate a step there.

    net:      a Net, a solver's parameters, a file, or the name of a model
    gpus:     any names of GPUs, or files; None: all that have a profile
    keywords: as of `minidnn.plan`

    Raises NoSuchModel, ProfileError, InvalidFile and InvalidInput.
    """
    return of(read(net, given, batch, ANY, ignore_unknown), listed(gpus) or None)


def of(job: Plannable, gpus: Sequence[str] | None = None, tell: Tell = silent) -> Cards:
    """The cards of a job that was read for the GPU `ANY`, the least memory first."""
    no_effort(job.setting.effort, "cards")
    host_budget = None if job.host_assumed else job.setting.host_budget
    names = list(dict.fromkeys(map(named, known() if gpus is None else gpus)))
    rows = []
    try:
        for number, name in enumerate(names):
            tell(f"{name}: GPU {number + 1} of {len(names)}")
            rows.append(_row(job, name, host_memory(name) if host_budget is None else host_budget))
    finally:
        tell("")
    rows.sort(key=lambda row: (row.memory_bytes, row.gpu))
    document = Document(rows=rows, net=job.name, batch=job.batch, tokens=job.tokens, format=job.format)
    title = f"{header.title(job)}. Simulated: the plans of best within each GPU's memory"
    if job.host_assumed:
        title += f", with an assumed {sizes.text(HOST)} of host memory ({option('host_budget')})"
    return Cards(document, title, job.assumed)


def _row(job: Plannable, name: str, host_budget: int) -> CardRow:
    """What a step takes on this GPU. Bytes of a plan that does not fit are those of the smallest that there is. A plan
    that fits is one for endless memory, too."""
    programs, costs = synchronous(job.programs_on(name)), job.costs_on(name)
    loose = free(programs, costs, job.train.name).seconds
    one = nearest(programs, BUDGETED, costs, costs.memory, host_budget, job.train.name)
    seconds = one.seconds if one.fits else None
    loose = loose if seconds is None else min(loose, seconds)
    return CardRow(
        gpu=name, title=gpu(name).title, memory_bytes=costs.memory, fits=one.fits, peak_bytes=one.arrangement.arena,
        host_bytes=one.arrangement.off_device, host_budget_bytes=host_budget, step_seconds=seconds,
        free_seconds=loose,
        samples_per_second=None if seconds is None or job.batch is None else job.batch / seconds,
        bound_seconds=one.schedule.plan.bound if one.fits else None,
        lossless=seconds is not None and seconds <= loose * (1 + SLOWER),
    )  # fmt: skip
