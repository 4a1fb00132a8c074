"""The seconds of each layer of a net, and of each algorithm of its convolutions."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import TYPE_CHECKING, Any

from minidnn.api import header
from minidnn.api.answer import Answer
from minidnn.api.steps import Steps
from minidnn.backends import open_device
from minidnn.costs import Costs
from minidnn.jobs.job import Job, Source, read
from minidnn.jobs.outcome import of_job
from minidnn.jobs.profile import profiled
from minidnn.memory.execution.trace import Trace
from minidnn.memory.plan import Plan
from minidnn.memory.policies.check import check_policies, no_effort
from minidnn.memory.schedule import Compute, Schedule
from minidnn.program import Op, Pass, Program
from minidnn.report import time as report
from minidnn.report.step import Step
from minidnn.results.times import AlgorithmSum, AlgorithmTime, LayerTime
from minidnn.results.times import AlgorithmTimes as AlgorithmDocument
from minidnn.results.times import LayerTimes as LayerDocument
from minidnn.spoken import many
from minidnn.training.runners import runner

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from minidnn.jobs.setting import Given

STEPS = 10
# an op's pass -> the column that its seconds are added to; a recomputed op counts as backward, since it runs then
COLUMNS = {
    "forward": "forward_seconds",
    "loss": "forward_seconds",
    "backward": "backward_seconds",
    "update": "update_seconds",
}


class LayerTimes(Answer[LayerDocument, LayerTime]):
    """The result of `minidnn.time`: a row per layer, in forward order."""

    look = report.LAYERS

    def __init__(self, document: LayerDocument, title: str, steps: Steps) -> None:
        super().__init__(document, title)
        self._steps = steps

    def steps(self) -> Steps:
        """The median step, to be written for other programs."""
        return self._steps


class AlgorithmTimes(Answer[AlgorithmDocument, AlgorithmTime]):
    """The result of `minidnn.algorithms`: a row per algorithm of each convolution pass."""

    look = report.ALGORITHMS


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
    iterations: steps to time, after one step to warm up; None: 10
    keywords:   as of `minidnn.plan`

    Raises NoSuchModel, NoSuchPolicy, InvalidFile, InvalidInput, and BudgetError if the policy cannot keep the budget.
    """
    return of(read(net, given, batch, gpu, ignore_unknown), iterations)


def of(job: Job, iterations: int | None = None) -> LayerTimes:
    """The seconds of each layer."""
    policy = job.setting.policy
    check_policies([policy])
    no_effort(job.setting.effort, "time")
    costs = job.costs()
    simulated = job.gpu is not None or job.setting.ranks is not None
    if simulated:
        one = of_job(job, policy, costs)
        schedule, traces = one.schedule, [one.trace]
        notes, fields = header.notes(job, costs), header.of_plan(job, costs)
    else:
        running = runner(job)(policy, costs, job.setting.budget)
        try:
            schedule = running.arrangement.schedules[job.train.name]
            running.step()
            traces = [trace for _ in range(iterations or STEPS) if (trace := running.step(trace=True)) is not None]
        finally:
            running.close()
        device = open_device(job.setting.device)
        fields = header.of_run(job, device)
        notes = f"Median of {many(len(traces), 'step')}. Run on {header.device_of(device)}."
    seconds = median(t.seconds for t in traces)
    document = LayerDocument(
        rows=layer_rows(schedule, traces), **fields, policy=policy, step_seconds=seconds, timed_steps=len(traces)
    )
    trace = sorted(traces, key=lambda t: t.seconds)[len(traces) // 2]
    step = Step(policy, schedule, trace, not simulated, document.device)
    steps = Steps([step], fields, header.title(job), notes, job.setting.budget)
    return LayerTimes(document, f"{header.title(job)}, {policy}. {notes}", steps)


def algorithms(
    net: Source,
    *,
    batch: int | None = None,
    gpu: str | None = None,
    ignore_unknown: bool = False,
    **given: Unpack[Given],
) -> AlgorithmTimes:
    """List the time of each convolution pass with each of its algorithms, measured here or, with `gpu`, from a
    profile. Measurements of `minidnn profile` are used again.

    The arguments and errors are those of `minidnn.time`."""
    return algorithms_of(read(net, given, batch, gpu, ignore_unknown))


def algorithms_of(job: Job) -> AlgorithmTimes:
    """Each convolution pass by each of its algorithms."""
    policy = job.setting.policy
    check_policies([policy])
    if job.gpu is not None:
        costs = job.costs()
        notes = header.notes(job, costs)
    else:
        costs, _, _ = profiled(job)
        notes = f"Measured on {header.device_of(open_device(job.setting.device))}."
    one = of_job(job, policy, costs)
    rows = algorithm_rows(job.train, one.schedule.plan, costs)
    total = sums(rows)
    document = AlgorithmDocument(
        rows=rows, **header.of_plan(job, costs), policy=policy,
        chosen_sum=total["chosen"], fastest_sum=total["fastest"], least_sum=total["least"],
    )  # fmt: skip
    return AlgorithmTimes(document, f"{header.title(job)}. {notes}")


def layer_rows(schedule: Schedule, traces: Sequence[Trace]) -> list[LayerTime]:
    """A row per layer in forward order. A layer's seconds are the sum over its ops of their medians over the traces."""
    taken: dict[int, list[float]] = {}
    for trace in traces:
        for span in trace.spans:
            taken.setdefault(span.index, []).append(span.end - span.start)
    rows: dict[str, dict[str, Any]] = {
        layer: {"layer": layer, **dict.fromkeys(COLUMNS.values(), 0.0)} for layer in schedule.program.layers
    }
    for index, seconds in taken.items():
        x = schedule.instructions[index]
        if isinstance(x, Compute):
            layer = x.op.whole.layer
            row = rows.setdefault(layer, {"layer": layer, **dict.fromkeys(COLUMNS.values(), 0.0)})
            row["backward_seconds" if x.run else COLUMNS[x.op.during.value]] += median(seconds)
    total = sum(row[c] for row in rows.values() for c in dict.fromkeys(COLUMNS.values())) or 1.0
    for row in rows.values():
        row["share"] = sum(row[c] for c in dict.fromkeys(COLUMNS.values())) / total
    return [LayerTime(**row) for row in rows.values()]


def algorithm_rows(program: Program, plan: Plan, costs: Costs) -> list[AlgorithmTime]:
    """A row per algorithm of each convolution pass, and of every other op with more than one algorithm.

    The rows are sorted by layer, in the order of forward."""
    place = {layer: k for k, layer in enumerate(program.layers)}
    rows = []
    for op in sorted(program.ops, key=lambda op: place.get(op.whole.layer, len(place))):
        choices = costs.choices(op)
        for c in choices if len(choices) > 1 or _convolves(op) else ():
            rows.append(
                AlgorithmTime(
                    layer=op.layer,
                    part=_part(op),
                    op=op.name,
                    algorithm=c.algorithm.name,
                    workspace_bytes=c.algorithm.workspace,
                    op_seconds=c.seconds,
                    chosen=c.algorithm == plan.algorithm[op],
                )
            )
    return rows


def _part(op: Op) -> str:
    """The verb of the op's kind; of its name, where the kind is another pass's, as in a Deconvolution."""
    verb = op.kind.split(".", 1)[1]
    return verb if verb.startswith("backward") == (op.during is Pass.BACKWARD) else op.name.rsplit(".", 1)[1]


def _convolves(op: Op) -> bool:
    return op.family == "convolution" and op.kind != "convolution.backward_bias"


def sums(rows: Sequence[AlgorithmTime]) -> dict[str, AlgorithmSum]:
    """The sum of seconds over all ops and the largest workspace, for three choices of algorithms.

    These are the plan's ("chosen"), the fastest ("fastest"), and those of least workspace ("least")."""
    ops: dict[str, list[AlgorithmTime]] = {}
    for row in rows:
        ops.setdefault(row.op, []).append(row)
    taken = {
        "chosen": [row for row in rows if row.chosen],
        "fastest": [min(of, key=lambda row: (row.op_seconds, row.workspace_bytes)) for of in ops.values()],
        "least": [min(of, key=lambda row: (row.workspace_bytes, row.op_seconds)) for of in ops.values()],
    }
    return {
        which: AlgorithmSum(
            op_seconds=sum(row.op_seconds for row in of),
            workspace_bytes=max((row.workspace_bytes for row in of), default=0),
        )
        for which, of in taken.items()
    }
