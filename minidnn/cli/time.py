"""`minidnn time FILE`: seconds of each layer, forward and backward, as `caffe time` prints them.

With `--algorithms`: seconds of each convolution pass by each of its algorithms.
"""

from __future__ import annotations

import argparse

from minidnn.cli import subject
from minidnn.cli.help import examples
from minidnn.cli.values import positive

STEPS = 10


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = examples(
        "minidnn time lenet --iterations 20",
        "minidnn time vgg16 --gpu titan_x --algorithms",
    )
    subject.arguments(
        parser, "policy", "budget", "host_budget", "device", "costs", "format", "state", "gpu", "ranks", "json",
        "trace", "arena",
    )  # fmt: skip
    parser.add_argument("--iterations", type=positive, metavar="N", help=f"steps to time (default: {STEPS})")
    parser.add_argument(
        "--algorithms",
        action="store_true",
        help="list each algorithm of each convolution pass, with its workspace and seconds, and mark the policy's "
        "choice; measure those that `minidnn profile` has not measured yet",
    )
    subject.report(parser, "a page (.html), the rows")


def run(args: argparse.Namespace) -> int:
    from minidnn.api import time
    from minidnn.errors import InvalidInput

    subject.check_report(args, time.LayerTimes)
    subject.check_steps(args)
    if args.algorithms and args.iterations is not None:
        raise InvalidInput("--algorithms measures each algorithm as `minidnn profile` does: leave out --iterations")
    if args.algorithms and (flags := subject.step_options(args)):
        raise InvalidInput(f"--algorithms runs no step: leave out {flags[0]}")
    job = subject.read(args)
    if args.algorithms:
        subject.deliver(args, time.algorithms_of(job))
        return 0
    result = time.of(job, args.iterations)
    subject.deliver(args, result, steps=result)
    return 0
