"""The minibatch of the highest throughput, and a learning rate to match.

It is AccUDNN-style: of the paper's own tuner little is known (jobs/tune.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Any

from minidnn import sizes
from minidnn.api import header
from minidnn.api.answer import Answer
from minidnn.backends import open_device
from minidnn.costs import Costs, measurements
from minidnn.data import DataError, source_of
from minidnn.errors import InvalidInput
from minidnn.jobs.job import Job, Source, read
from minidnn.jobs.ranks import curve
from minidnn.jobs.tune import Curve, ceiling, of_batch, sweep
from minidnn.measuring.ops import measure
from minidnn.memory.policies import BUDGETED
from minidnn.memory.policies.check import check_policies, no_effort
from minidnn.report import tune as report
from minidnn.results.budgets import FormatRow, MeasuredRow, TuneRow
from minidnn.results.budgets import Tuning as Document
from minidnn.results.ranks import ScalingRow
from minidnn.spoken import option
from minidnn.training.comparison import Open
from minidnn.training.linear_scaling import REFERENCE, SAMPLES, matched
from minidnn.training.runners import runner
from minidnn.version import __version__

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from minidnn.jobs.setting import Given

POLICY = BUDGETED  # the policy that batches are tuned under, where neither file nor option names one
COUNTS = ("max_iter", "stepsize", "stepvalue", "test_interval", "snapshot")  # solver fields that count iterations
Watch = Callable[[str, TuneRow], object]  # (policy, one batch)


class Tuning(Answer[Document, TuneRow]):
    """The result of `minidnn.tune`: a row per batch that was tried. sentences: the conclusions."""

    look = report.LOOK

    def __init__(self, document: Document, title: str, sentences: list[str]) -> None:
        super().__init__(document, title)
        self.sentences = sentences

    @property
    def best(self) -> TuneRow | None:
        """The batch size with the highest throughput; None if no batch size fits."""
        return next((row for row in self.rows if row.batch == self.document.best), None)

    def remarks(self) -> list[str]:
        return self.sentences

    def show(self) -> None:
        report.show(self.document, self.title, self.sentences)

    def page(self) -> str:
        return report.page(self.document, self.title, self.sentences, __version__)


def tune(
    net: Source,
    *,
    grid: int | None = None,
    samples: int | None = None,
    measure: bool = False,
    counts: Sequence[int] = (),
    batch: int | None = None,
    gpu: str | None = None,
    ignore_unknown: bool = False,
    **given: Unpack[Given],
) -> Tuning:
    """Find the batch size with the highest throughput under a budget, and solver fields to match.

    net:      a Net, a solver's parameters, a file, or the name of a model; the search starts at its batch size
    grid:     find batch sizes to within this many samples; None: an eighth of the batch size
    samples:  samples per epoch; None: those of the data, or ImageNet's for synthetic data
    measure:  whether to measure the ops at the batch sizes that were found, and to run them
    counts:   numbers of ranks: with `ranks`, the best batch size is also planned on each of these
    keywords: as of `minidnn.plan`

    Raises NoSuchModel, NoSuchPolicy, InvalidFile and InvalidInput.
    """
    job = read(net, given, batch, gpu, ignore_unknown)
    return of(job, given.get("policy"), grid, samples, measure, counts)


def of(
    job: Job,
    policy: str | None = None,
    grid: int | None = None,
    samples: int | None = None,
    measured: bool = False,
    counts: Sequence[int] = (),
    watch: Watch = lambda policy, row: None,
) -> Tuning:
    """Tune a subject: find its batch, learning rate and seconds of an epoch."""
    if measured and job.gpu:
        raise InvalidInput(f"{option('measure', True)} runs on {option('device')}: leave out {option('gpu', job.gpu)}")
    if job.forward:
        raise InvalidInput(f"tune looks for a batch to train with, and net {job.name} has no loss")
    ranks = job.setting.ranks or 1
    if measured and ranks > 1:
        raise InvalidInput(f"{option('measure', True)} runs one rank: leave out {option('ranks', ranks)}")
    policy = policy or (job.solver is not None and job.solver.minidnn.policy) or POLICY
    check_policies([policy], sizes=True)
    no_effort(job.setting.effort, "tune")
    costs = job.costs_of_sizes()
    epoch, said = _epoch(job, samples, measured)
    if job.batch is None:
        raise InvalidInput(f"{job.name} has no input with a first dimension of samples: nothing to tune")
    budgets = job.setting.budget, job.setting.host_budget
    result = sweep(
        job.at_batch, job.batch, policy, costs, *budgets, grid, job.train.name,
        partial(watch, policy),
    )  # fmt: skip
    result = _with_one(job, result, policy, costs)
    best, why = result.best, ""
    match = None
    largest = max(row.batch for row in result.rows)
    most = ranks * ceiling(job.at_batch(largest), largest, costs, job.train.name)
    if best is not None:
        match, why = _matched(job, best.batch * ranks, epoch, ranks)
    document = Document(
        rows=[
            row.model_copy(update={"epoch_seconds": epoch / row.samples_per_second if row.fits else None})
            for row in result.rows
        ],
        **header.of_plan(job, costs),
        policy=policy,
        budget_bytes=budgets[0],
        best=None if best is None else best.batch,
        largest_unswapped=None if result.unmoved is None else result.unmoved.batch,
        ratio=result.ratio,
        enough=None if result.enough is None else result.enough.batch,
        most_samples_per_second=most,
        behind=None if best is None else 1 - best.samples_per_second / most,
        formats=[] if best is None else _formats(job, best.batch, policy, costs),
        grid=result.grid,
        multiple_of=result.multiple,
        epoch_samples=epoch,
        solver=match,
        measured=_measured(job, result, policy) if measured else [],
        scaling=_scaling(job, best, policy, counts, costs),
    )
    says = [*report.sentences(document), said]
    if match is not None:
        says.append(f"Solver fields for this batch size{why}: {_fields(match)}.")
    says += [*report.checks(document), header.notes(job, costs)]
    limit = costs.memory if budgets[0] is None else budgets[0]
    return Tuning(document, f"{job.name}, {policy}, {sizes.text(limit)} of {costs.device}", says)


def _scaling(job: Job, best: TuneRow | None, policy: str, counts: Sequence[int], costs: Costs) -> list[ScalingRow]:
    """The best batch on these numbers of ranks."""
    return [] if best is None or not counts else [*curve(job.varied(batch=best.batch), [policy], counts, costs)]


def _with_one(job: Job, found: Curve, policy: str, costs: Costs) -> Curve:
    """The curve, with the efficiency of the batches that sentences tell of."""
    if (job.setting.ranks or 1) == 1:
        return found
    one, budgets = job.varied(ranks=1), (job.setting.budget, job.setting.host_budget)
    named = {row.batch for row in (found.best, found.unmoved) if row is not None}
    rows = []
    for row in found.rows:
        if row.batch in named:
            alone = of_batch(one.at_batch(row.batch), row.batch, policy, costs, *budgets, one.train.name)
            part = alone.step_seconds / row.step_seconds if alone.fits and row.step_seconds else None
            row = row.model_copy(update={"efficiency": part})
        rows.append(row)
    return replace(found, rows=tuple(rows))


def _formats(job: Job, batch: int, policy: str, costs: Costs) -> list[FormatRow]:
    """The best batch in the formats of 16 bits that the device has."""
    result = []
    for format in job.narrower():
        programs = job.varied(batch=batch, format=format).programs
        row = of_batch(programs, batch, policy, costs, job.setting.budget, job.setting.host_budget, job.train.name)
        if row.fits:
            speed = row.samples_per_second
            result.append(FormatRow(format=format, step_seconds=row.step_seconds, samples_per_second=speed))
    return result


def _epoch(job: Any, asked: int | None, runs: bool) -> tuple[int, str]:
    """The samples of an epoch, and a sentence that says so: `asked` (--samples), else as many as the data has.

    If the data is synthetic, or the net names no data, an epoch is ImageNet's. So it is if the data cannot be read,
    unless the net `runs` on it: then DataError is raised."""
    if asked is not None:
        return asked, f"An epoch has {asked} samples."
    layers = [node.layer for node in job.net.graph("TRAIN").layers]
    source = next((source_of(data, transform, "TRAIN") for x in layers for data, transform in x.sources), None)
    if source is None or source.made_up:
        return SAMPLES, f"An epoch has ImageNet's {SAMPLES} samples ({option('samples')} sets another number)."
    try:
        data = source.open()
    except DataError as error:
        if runs:
            raise
        imagenet = f"an epoch has ImageNet's {SAMPLES} samples ({option('samples')} sets another number)"
        return SAMPLES, f"{error}: {imagenet}."
    return len(data), f"An epoch has the {len(data)} samples of {data.name}."


def _matched(job: Any, minibatch: int, samples: int, devices: int) -> tuple[dict[str, Any], str]:
    """Solver fields for updates of `minibatch` samples, and a text that says where they come from."""
    p = job.solver
    if p is None:
        rate, reference = REFERENCE
        counts, why = (
            {},
            f", from a rate of {rate} for {reference} samples (Goyal et al. 2017; a solver file gives its own)",
        )
    else:
        rate, reference = p.base_lr, job.batch * p.iter_size
        counts = {name: _plain(getattr(p, name)) for name in COUNTS if p.has(name) and getattr(p, name)}
        why = f", from the file's {rate:g} for {reference} samples"
    fields = matched(rate, reference, minibatch, samples, counts).fields()
    if devices > 1 or (p is not None and p.iter_size > 1):
        fields["iter_size"] = devices  # if one device runs all minibatches in turn, the updates are the same
    return {"batch_size": minibatch // devices, **fields}, why


def _plain(value: Any) -> int | list[int]:
    return list(value) if isinstance(value, (list, tuple)) else value


def _fields(match: dict[str, Any]) -> str:
    return ", ".join(f"{k}: {v:g}" if isinstance(v, float) else f"{k}: {v}" for k, v in match.items())


def _measured(job: Job, found: Curve, policy: str) -> list[MeasuredRow]:
    """The best batch and the largest that does not swap, planned with measured costs, and run if they fit."""
    budgets = job.setting.budget, job.setting.host_budget
    checked = []
    for batch in dict.fromkeys(row.batch for row in (found.best, found.unmoved) if row is not None):
        device = open_device(job.setting.device)
        programs = job.at_batch(batch)
        costs = measure(device, programs, measurements(device))
        row = of_batch(programs, batch, policy, costs, *budgets, job.train.name)
        seconds = _run(runner(job, batch), policy, costs, budgets[0]) if row.fits else None
        checked.append(
            MeasuredRow(batch=batch, step_seconds=row.step_seconds, measured_step_seconds=seconds, why=row.why)
        )
    return checked


def _run(open_runner: Open, policy: str, costs: Costs, budget: int | None, steps: int = 4) -> float:
    """Seconds of a step: the median of so many that are run after a first one."""
    running = open_runner(policy, costs, budget)
    try:
        running.step()
        taken = []
        for _ in range(steps):
            began = perf_counter()
            running.step()
            taken.append(perf_counter() - began)
    finally:
        running.close()
    return median(taken)
