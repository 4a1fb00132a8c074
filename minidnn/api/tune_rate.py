"""A learning rate by a range test: real training, in which the rate grows from step to step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from minidnn.api import header
from minidnn.api.answer import Answer, Tell, silent
from minidnn.errors import InvalidInput
from minidnn.jobs.job import Job, Source, read
from minidnn.jobs.keywords import SolverFields, apart
from minidnn.jobs.solver_file import understand
from minidnn.report import rates as report
from minidnn.results.runs import RateRange as Document
from minidnn.results.runs import RateRow
from minidnn.spoken import option
from minidnn.training import rate_range
from minidnn.training.given import Samples
from minidnn.training.rate_range import HIGHEST, ITERATIONS, LOWEST, found, ranging
from minidnn.training.solver import Solver

if TYPE_CHECKING:
    from typing_extensions import Unpack

Weights = str | Path | Mapping[str, np.ndarray]


class RateRange(Answer[Document, RateRow]):
    """The result of `minidnn.tune_rate`: a row per iteration."""

    look = report.LOOK

    @property
    def suggested(self) -> float | None:
        """The rate to train with, as base_lr; None: no rate of the range lowers the loss."""
        return self.document.suggested_lr


def tune_rate(
    solver: Source,
    *,
    iterations: int = ITERATIONS,
    lowest: float = LOWEST,
    highest: float = HIGHEST,
    batch: int | None = None,
    data: Samples | None = None,
    weights: Weights | None = None,
    ignore_unknown: bool = False,
    **keywords: Unpack[SolverFields],
) -> RateRange:
    """Find a learning rate: train for some iterations, in which the rate grows from `lowest` to `highest`, and look
    where the loss falls.

    The weights are those that the solver would begin with, and the data, the batch and the optimizer are its own.
    No file is written, and nothing is tested.

    solver:     a Net, a solver's parameters, a file, or the name of a model; a net is trained by SGD, without momentum
                unless a keyword says so
    iterations: of the test; each has a rate that is the same multiple of the one before
    lowest, highest: the first rate and the last
    data, weights: as of `Solver`
    keywords:   how the net is run, and solver fields, as of `Solver`

    Raises NoSuchModel, InvalidFile and InvalidInput; Diverged if the loss is not finite before any update.
    """
    given, fields = apart(keywords)
    job = read(solver, given, batch, None, ignore_unknown, fields=fields)
    return of(job, iterations, lowest, highest, data, weights)


def of(
    job: Job,
    iterations: int = ITERATIONS,
    lowest: float = LOWEST,
    highest: float = HIGHEST,
    data: Samples | None = None,
    weights: Weights | None = None,
    tell: Tell = silent,
) -> RateRange:
    """The range test of a job on its device."""
    if job.forward:
        raise InvalidInput(f"a rate is one to train with, and net {job.name} has no loss; {job.remedy}")
    if job.setting.ranks is not None:
        raise InvalidInput(f"a range test trains one rank: leave out {option('ranks', job.setting.ranks)}")
    own = job.solver
    nets = job.nets if own is not None else understand(job.net, {"base_lr": lowest, "lr_policy": "fixed"})
    assert nets.solver is not None
    nets = nets._replace(solver=ranging(nets.solver, lowest, highest, iterations), tests=())
    rows: list[tuple[float, float]] = []
    setting = replace(job.setting, global_batch=None)
    try:
        with Solver(nets, batch=job.asked, data=data, weights=weights, setting=setting) as solver:
            for rate, loss in rate_range.steps(solver):
                rows.append((rate, loss))
                tell(f"rate {rate:.3g}: loss {loss:.4g} ({len(rows)} of {iterations})")
            seed, arrangement, device = solver.seed, solver.arrangement, solver.session.device
    finally:
        tell("")
    result = found([loss for _, loss in rows], iterations)
    document = Document(
        rows=[
            RateRow(iteration=i, lr=rate, loss=loss, smoothed_loss=smoothed)
            for i, ((rate, loss), smoothed) in enumerate(zip(rows, result.smoothed, strict=True))
        ],
        **header.of_run(job, device),
        policy=arrangement.policy,
        peak_bytes=arrangement.arena,
        seed=seed,
        base_lr=own.base_lr if own is not None and not job.nets.made_up else None,
        suggested_lr=None if result.fallen is None else rows[result.fallen][0],
        least_loss_lr=None if result.least is None else rows[result.least][0],
        diverged_lr=rows[-1][0] if len(rows) < iterations else None,
    )
    return RateRange(document, f"{header.title(job)}: rates from {lowest:g} to {highest:g}", _noted(document))


def _noted(document: Document) -> str:
    return f"{len(document.rows)} iterations on {document.device}, policy {document.policy}, seed {document.seed}."
