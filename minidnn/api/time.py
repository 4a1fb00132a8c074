"""The seconds of each layer of a net, and of each algorithm of its convolutions."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, Any

from minidnn.api import header
from minidnn.api.answer import Answer
from minidnn.api.steps import Steps
from minidnn.jobs.job import Job, Source, read
from minidnn.jobs.profile import profiled
from minidnn.memory.execution.simulator import simulate
from minidnn.memory.policies.check import check_policies
from minidnn.report import time as report
from minidnn.report.step import Step
from minidnn.report.table import duration
from minidnn.results.times import AlgorithmTime, LayerTime
from minidnn.results.times import AlgorithmTimes as AlgorithmDocument
from minidnn.results.times import LayerTimes as LayerDocument
from minidnn.study.algorithms import algorithms as rows_of
from minidnn.study.algorithms import sums
from minidnn.study.compare import planned
from minidnn.study.runners import runner
from minidnn.study.time import layers

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from minidnn.jobs.setting import Given

STEPS = 10


class LayerTimes(Answer[LayerDocument, LayerTime]):
    """The result of `minidnn.time`: a row per layer, in forward order."""

    def __init__(self, document: LayerDocument, title: str, steps: Steps) -> None:
        super().__init__(document, title)
        self._steps = steps

    def steps(self) -> Steps:
        """The median step, to be written for other programs."""
        return self._steps

    def cells(self) -> tuple[list[str], list[list[str]]]:
        return report.layer_cells(self.rows)

    def says(self) -> list[str]:
        return [f"one step: {duration(self.document.step_seconds)}"]


class AlgorithmTimes(Answer[AlgorithmDocument, AlgorithmTime]):
    """The result of `minidnn.algorithms`: a row per algorithm of each convolution pass."""

    @property
    def sums(self) -> dict[str, Any]:
        """Over all ops, with the algorithms that the policy chose, the fastest ones, and those of least workspace."""
        document = self.document
        return {"chosen": document.chosen_sum, "fastest": document.fastest_sum, "least": document.least_sum}

    def cells(self) -> tuple[list[str], list[list[str]]]:
        return report.algorithm_cells(self.rows, self.document.policy)

    def says(self) -> list[str]:
        return report.sum_sentences(self.sums, self.document.policy)


def time(
    net: Source,
    *,
    iterations: int | None = None,
    batch: int | None = None,
    gpu: str | None = None,
    ignore_unknown: bool = False,
    **given: Unpack[Given],
) -> LayerTimes:
    """Run a net and measure the seconds of each layer; with `gpu`, simulate it.

    net:        a Net, a solver's parameters, a file, or the name of a model
    iterations: steps that are timed, after one that is not; None: 10
    keywords:   as of `minidnn.plan`

    Raises NoSuchModel, NoSuchPolicy, InvalidFile, InvalidInput, and BudgetError if the policy cannot keep the budget.
    """
    return of(read(net, given, batch, gpu, ignore_unknown), iterations)


def of(about: Job, iterations: int | None = None) -> LayerTimes:
    """The seconds of each layer."""
    policy = about.setting.policy
    check_policies([policy])
    costs = about.costs()
    budget, host_budget = about.setting.budget, about.setting.host_budget
    simulated = about.gpu is not None or about.setting.ranks is not None
    if simulated:
        arrangement, refused = planned(about.programs, policy, costs, budget, host_budget)
        if refused is not None:
            raise refused
        schedule = arrangement.schedules[about.train.name]
        traces = [simulate(schedule, costs)]
        notes, fields = header.notes(about, costs), header.of_plan(about, costs)
    else:
        running = runner(about)(policy, costs, budget)
        try:
            schedule = running.arrangement.schedules[about.train.name]
            running.step()
            traces = [trace for _ in range(iterations or STEPS) if (trace := running.step(trace=True)) is not None]
        finally:
            running.close()
        fields = header.of_run(about)
        notes = f"Median of {len(traces)} steps. Run on {header.device_of(about)}."
    seconds = median(t.seconds for t in traces)
    document = LayerDocument(
        rows=layers(schedule, traces), **fields, policy=policy, step_seconds=seconds, timed_steps=len(traces)
    )
    trace = sorted(traces, key=lambda t: t.seconds)[len(traces) // 2]
    step = Step(policy, schedule, trace, not simulated, document.device)
    steps = Steps([step], fields, header.title(about), notes, budget)
    return LayerTimes(document, f"{header.title(about)}, {policy}. {notes}", steps)


def algorithms(
    net: Source,
    *,
    batch: int | None = None,
    gpu: str | None = None,
    ignore_unknown: bool = False,
    **given: Unpack[Given],
) -> AlgorithmTimes:
    """Measure each convolution pass by each of its algorithms, as far as `minidnn profile` has not; or by a profile.

    The arguments and errors are those of `minidnn.time`."""
    return algorithms_of(read(net, given, batch, gpu, ignore_unknown))


def algorithms_of(about: Job) -> AlgorithmTimes:
    """Each convolution pass by each of its algorithms."""
    policy = about.setting.policy
    check_policies([policy])
    if about.gpu is not None:
        costs = about.costs()
        notes = header.notes(about, costs)
    else:
        costs, _, _ = profiled(about)
        notes = f"Measured on {header.device_of(about)}."
    setting = about.setting
    arrangement, refused = planned(about.programs, policy, costs, setting.budget, setting.host_budget)
    if refused is not None:
        raise refused
    rows = rows_of(about.train, arrangement.schedules[about.train.name].plan, costs)
    total = sums(rows)
    document = AlgorithmDocument(
        rows=rows, **header.of_plan(about, costs), policy=policy,
        chosen_sum=total["chosen"], fastest_sum=total["fastest"], least_sum=total["least"],
    )  # fmt: skip
    return AlgorithmTimes(document, f"{header.title(about)}. {notes}")
