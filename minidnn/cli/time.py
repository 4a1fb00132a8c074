"""`minidnn time FILE.yaml`: seconds of each layer, forward and backward, as `caffe time` prints them."""

from __future__ import annotations

import argparse
from statistics import median

from minidnn.cli import subject
from minidnn.cli.options import positive


def arguments(parser: argparse.ArgumentParser) -> None:
    subject.arguments(parser, "policy", "budget", "device", "format", "gpu", "json")
    parser.set_defaults(device=None)
    parser.add_argument("--iterations", type=positive, default=10, metavar="N", help="steps (default: %(default)s)")


def run(args: argparse.Namespace) -> int:
    from minidnn.report import table
    from minidnn.study.compare import planned
    from minidnn.study.runners import net_runner, solver_runner
    from minidnn.study.time import layers

    about = subject.read(args)
    policy = args.policy or (about.solver is not None and about.solver.minidnn.policy) or "liveness"
    subject.check_policies([policy])
    costs = subject.costs_of(about, args.gpu)
    budget, _ = subject.budgets(about, args)
    if args.gpu is not None:
        from minidnn.memory.simulator import simulate

        arrangement, refused = planned(about.programs, policy, costs, budget)
        if refused is not None:
            raise refused
        schedule = arrangement.schedules[about.train.name]
        traces = [simulate(schedule, costs)]
        notes, where = subject.notes(costs, about.format), f"simulated {costs.device}"
    else:
        if about.solver is not None:
            open_runner = solver_runner(about.path, about.device, args.batch, about.seed, about.format, fuse=about.fuse)
        else:
            open_runner = net_runner(about.net, about.device, about.seed, about.format, fuse=about.fuse)
        runner = open_runner(policy, costs, budget)
        try:
            schedule = runner.arrangement.schedules[about.train.name]
            runner.step()
            traces = [trace for _ in range(args.iterations) if (trace := runner.step(trace=True)) is not None]
        finally:
            runner.close()
        where = subject.described(about)
        notes = f"Median of {len(traces)} steps. Run on {where}."
    rows = layers(schedule, traces)
    seconds = median(t.seconds for t in traces)
    if args.json:
        total = {"step_seconds": seconds, "iterations": len(traces), "policy": policy}
        total |= {"device": where, "format": about.format}
        table.dump({"rows": rows, **total})
        return 0
    lines = [
        [
            row["layer"],
            *(
                table.duration(row[k]) if row[k] else "–"
                for k in ("forward_seconds", "backward_seconds", "update_seconds")
            ),
            f"{100 * row['share']:.1f} %",
        ]
        for row in rows
    ]
    sums = [sum(row[k] for row in rows) for k in ("forward_seconds", "backward_seconds", "update_seconds")]
    lines.append(["all layers", *(table.duration(s) for s in sums), "100 %"])
    table.plain(["layer", "forward", "backward", "update", "share"], lines, f"{about.titled()}, {policy}. {notes}")
    print(f"one step: {table.duration(seconds)}")
    return 0
