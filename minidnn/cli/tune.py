"""`minidnn tune MODEL --budget 12GB`: the minibatch of the highest throughput, and a learning rate to match.

It is AccUDNN-style: of the paper's own tuner little is known (jobs/tune.py).
"""

from __future__ import annotations

import argparse
import sys
from functools import partial
from typing import TYPE_CHECKING

from minidnn.cli import subject
from minidnn.cli.help import examples
from minidnn.cli.values import counts, positive
from minidnn.visible import say

if TYPE_CHECKING:
    from minidnn.results.budgets import TuneRow
    from minidnn.results.counted import Counted


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = examples(
        "minidnn tune resnet50 --gpu titan_x --budget 8GiB",
        "minidnn tune models/digits_solver.yaml --budget 32MiB --measure",
        "minidnn tune vgg16 --gpu k40 --ranks 4 --link 10GB,20us --samples 50000 --report vgg16.html",
    )
    subject.arguments(
        parser, "policy_tuned", "budget", "host_budget", "device", "format", "state", "gpu", "ranks_several",
        "facts", "json",
    )  # fmt: skip
    parser.add_argument(
        "--grid",
        type=positive,
        metavar="N",
        help="find the largest and the fastest batch size to within N (default: an eighth of it)",
    )
    parser.add_argument("--gpus", dest="ranks", type=counts, metavar="N", help="the same as --ranks")
    parser.add_argument(
        "--samples", type=positive, metavar="N",
        help="samples per epoch (default: those of the data, or ImageNet's 1281167 for synthetic data)",
    )  # fmt: skip
    parser.add_argument(
        "--measure", action="store_true",
        help="measure the ops at the batch sizes that were found, run them, and compare with the prediction",
    )  # fmt: skip
    subject.report(parser, "a page (.html), the curve alone as a picture (.svg, .png), the rows")


def run(args: argparse.Namespace) -> int:
    from minidnn.api import tune
    from minidnn.results.counted import planned

    subject.check_report(args, tune.Tuning)
    job = subject.read(args)
    several = args.ranks if args.ranks is not None and len(args.ranks) > 1 else ()
    tell = partial(_tell, planned(job.tokens))
    result = tune.of(job, args.policy, args.grid, args.samples, args.measure, several, tell)
    subject.deliver(args, result)
    return 0  # also if nothing fits: that is a result, not a failure


def _tell(samples: Counted, policy: str, row: TuneRow) -> None:
    from minidnn.report.table import rate

    if sys.stderr.isatty():
        speed = f"{rate(samples.speed(row.samples_per_second))} {samples.per_second}" if row.fits else "refused"
        say(f"{policy}: batch {row.batch} {speed}", file=sys.stderr, flush=True)
