"""`minidnn compare FILE`: policies side by side, run on a device, or simulated on a GPU's profile."""

from __future__ import annotations

import argparse

from minidnn import sizes
from minidnn.cli import subject
from minidnn.cli.help import examples
from minidnn.cli.refused import pointer
from minidnn.cli.values import positive
from minidnn.visible import say, status


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = examples(
        "minidnn compare models/digits_solver.yaml --steps 20",
        "minidnn compare vgg16 --gpu titan_x --budget 4GiB --report vgg16.html",
        "minidnn compare resnet50 --gpu a100 --batch 256 --budget 8GiB --policies liveness,best,vdnn_all:m",
    )
    subject.arguments(
        parser, "policies", "budget", "host_budget", "ring", "effort", "device", "costs", "format", "state", "gpu",
        "ranks", "facts", "seed", "torch", "json", "trace", "arena",
    )  # fmt: skip
    parser.add_argument(
        "--steps", type=positive, metavar="N", help="steps to run (default: 8 to 300; the shorter a step, the more)"
    )
    subject.report(parser, "a page (.html), the timelines alone as a picture (.svg, .png), the rows")


def run(args: argparse.Namespace) -> int:
    from minidnn.api import compare
    from minidnn.backends import open_device
    from minidnn.report import policies as report
    from minidnn.training.card import beside_arena

    subject.check_report(args, compare.Comparison)
    subject.check_steps(args)
    job = subject.planned(args)
    result = compare.of(job, args.policies or (), args.steps, lambda text: None if args.json else status(text))

    def show() -> None:
        budget = job.setting.budget
        allowed = f", budget {sizes.text(budget)}" if budget else ""
        report.show(result.rows, f"{result.title}{allowed}. {result.notes}")
        refused = [r for r in result.results if r.refused]
        if refused:
            measured = refused[0].costs.origin == "measured"  # asked for or not
            say(pointer(argparse.Namespace(**vars(args) | {"costs": "measured" if measured else args.costs})))
        if result.document.origin == "run" and (line := beside_arena(open_device(job.setting.device))):
            say(f"{line} after the steps")

    subject.deliver(args, result, show, result)
    return 0 if result.equal else 1
