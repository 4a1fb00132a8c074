"""`minidnn time FILE`: seconds of each layer, forward and backward, as `caffe time` prints them.

With `--algorithms`: seconds of each convolution pass by each of its algorithms.
"""

from __future__ import annotations

import argparse
from statistics import median
from typing import Any

from minidnn.cli import subject
from minidnn.cli.options import positive

STEPS = 10


def arguments(parser: argparse.ArgumentParser) -> None:
    subject.arguments(parser, "policy", "budget", "device", "format", "state", "gpu", "json")
    parser.add_argument("--iterations", type=positive, metavar="N", help=f"steps (default: {STEPS})")
    parser.add_argument(
        "--algorithms",
        action="store_true",
        help="each convolution pass by each of its algorithms, with workspace and seconds, and which the policy takes; "
        "what `minidnn profile` has not measured yet is measured",
    )


def run(args: argparse.Namespace) -> int:
    from minidnn.report import table
    from minidnn.report import time as report
    from minidnn.results.times import LayerTimes
    from minidnn.study.compare import planned
    from minidnn.study.time import layers

    about = subject.read(args)
    if args.algorithms:
        return _algorithms(args, about)
    policy = about.setting.policy
    subject.check_policies([policy])
    costs = subject.costs_of(about, args.gpu)
    budget = about.setting.budget
    if args.gpu is not None:
        from minidnn.memory.execution.simulator import simulate

        arrangement, refused = planned(about.programs, policy, costs, budget)
        if refused is not None:
            raise refused
        schedule = arrangement.schedules[about.train.name]
        traces = [simulate(schedule, costs)]
        notes, header = subject.notes(costs, about.setting.format), about.simulated(costs)
    else:
        runner = about.runner()(policy, costs, budget)
        try:
            schedule = runner.arrangement.schedules[about.train.name]
            runner.step()
            traces = [trace for _ in range(args.iterations or STEPS) if (trace := runner.step(trace=True)) is not None]
        finally:
            runner.close()
        header = about.run()
        notes = f"Median of {len(traces)} steps. Run on {subject.described(about)}."
    rows = layers(schedule, traces)
    seconds = median(t.seconds for t in traces)
    if args.json:
        table.dump(LayerTimes(rows=rows, **header, policy=policy, step_seconds=seconds, timed_steps=len(traces)))
        return 0
    report.show_layers(rows, seconds, f"{about.titled()}, {policy}. {notes}")
    return 0


def _algorithms(args: argparse.Namespace, about: subject.Subject) -> int:
    from minidnn.costs import profile
    from minidnn.errors import InvalidInput
    from minidnn.report import table
    from minidnn.report import time as report
    from minidnn.results.times import AlgorithmTimes
    from minidnn.study.algorithms import algorithms, sums
    from minidnn.study.compare import planned

    if args.iterations is not None:
        raise InvalidInput("--algorithms measures each algorithm as `minidnn profile` does: leave out --iterations")
    policy = about.setting.policy
    subject.check_policies([policy])
    budget = about.setting.budget
    if args.gpu is not None:
        costs = profile(args.gpu)
        notes = subject.notes(costs, about.setting.format)
    else:
        costs, _, _ = subject.measured_costs(about)
        notes = f"Measured on {subject.described(about)}."
    arrangement, refused = planned(about.programs, policy, costs, budget)
    if refused is not None:
        raise refused
    rows = algorithms(about.train, arrangement.schedules[about.train.name].plan, costs)
    totals = sums(rows)
    sums_of: dict[str, Any] = {f"{which}_sum": value for which, value in totals.items()}
    if args.json:
        table.dump(AlgorithmTimes(rows=rows, **about.simulated(costs), policy=policy, **sums_of))
        return 0
    report.show_algorithms(rows, totals, policy, f"{about.titled()}. {notes}")
    return 0
