"""`minidnn profile FILE`: measure the seconds of each op by each algorithm on this machine, and store them."""

from __future__ import annotations

import argparse

from minidnn.cli import subject
from minidnn.cli.help import examples


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = examples(
        "minidnn profile resnet18 --batch 8",
        "minidnn profile models/digits_solver.yaml --device cuda --again",
    )
    subject.arguments(parser, "device", "format", "ranks", "json")
    parser.add_argument("--again", action="store_true", help="measure ops again that were measured before")


def run(args: argparse.Namespace) -> int:
    from minidnn.api import header
    from minidnn.costs import geometry, key
    from minidnn.jobs.profile import profiled
    from minidnn.report import profile as report
    from minidnn.report import table
    from minidnn.results.times import Beside, MeasuredOp, Profile

    job = subject.read(args)
    costs, known, count = profiled(job, args.again)
    rows: list[MeasuredOp] = []
    for program in job.programs:
        for op in (op for op in program.ops if not op.on_net):
            for choice in costs.choices(op):
                rows.append(
                    MeasuredOp(
                        program=program.name,
                        op=op.name,
                        op_kind=op.kind,
                        algorithm=choice.algorithm.name,
                        workspace_bytes=choice.algorithm.workspace,
                        op_seconds=choice.seconds,
                        flops=op.flops,
                        operand_bytes=op.nbytes,
                        key=key(op, choice.algorithm),
                    )
                )
    mine = {geometry(op) for program in job.programs for op in program.ops}
    document = Profile(
        rows=rows,
        **header.of_plan(job, costs),
        bandwidth_out=known.bandwidth_out,
        bandwidth_in=known.bandwidth_in,
        latency_seconds=known.latency,
        beside_compute=[Beside(**one) for one in known.beside],
        cache=str(known.path),
        measured_now=count,
        refused_algorithms={k: why for k, why in known.refused.items() if k.rpartition(" [")[0] in mine},
    )
    if args.json:
        table.dump(document)
        return 0
    shown = [row for row in rows if row.program == job.train.name]
    report.show(document, shown, len(known.seconds), f"{header.title(job)} on {known.device}")
    return 0
