"""`minidnn tune MODEL --budget 12GB`: the minibatch of the highest throughput, and a learning rate to match.

It is AccUDNN-style: of the paper's own tuner little is known (jobs/tune.py). With --rate it looks for the learning rate
itself, by a range test (training/rate_range.py).
"""

from __future__ import annotations

import argparse
import sys
from functools import partial
from typing import TYPE_CHECKING

from minidnn.cli import subject
from minidnn.cli.help import examples
from minidnn.cli.options import Arguments
from minidnn.cli.values import above_zero, counts, positive
from minidnn.visible import say, status

if TYPE_CHECKING:
    from minidnn.results.budgets import TuneRow
    from minidnn.results.counted import Counted

# the options that need --rate, and those that exclude it
OF_RATES = ("iterations", "lowest", "highest", "weights", "data")
OF_BATCHES = ("grid", "samples", "measure", "gpu", "ranks", "link", "global_batch")


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = examples(
        "minidnn tune resnet50 --gpu titan_x --budget 8GiB",
        "minidnn tune models/digits_solver.yaml --budget 32MiB --measure",
        "minidnn tune vgg16 --gpu k40 --ranks 4 --link 10GB,20us --samples 50000 --report vgg16.html",
        "minidnn tune models/digits_solver.yaml --rate --report rates.html",
    )
    subject.arguments(
        parser, "policy_tuned", "budget", "host_budget", "device", "format", "state", "gpu", "ranks_several",
        "facts", "seed", "json",
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
    _rates(parser.add_argument_group("the learning rate"))
    subject.report(parser, "a page (.html), the curve alone as a picture (.svg, .png), the rows")


def _rates(group: Arguments) -> None:
    text = "find the learning rate instead: train on --device while the rate grows, and show where the loss falls"
    group.add_argument("--rate", action="store_true", help=text)
    text = "with --rate: iterations of the test (default: 200)"
    group.add_argument("--iterations", type=positive, metavar="N", help=text)
    group.add_argument("--lowest", type=above_zero, metavar="RATE", help="with --rate: the first one (default: 1e-6)")
    group.add_argument("--highest", type=above_zero, metavar="RATE", help="with --rate: the last one (default: 10)")
    text = "with --rate: begin with these weights, as `minidnn train --weights` does"
    group.add_argument("--weights", metavar="FILE", help=text)
    text = "with --rate: the samples of a net whose inputs are Input layers, as `minidnn train --data` has it"
    group.add_argument("--data", metavar="SOURCE", help=text)


def run(args: argparse.Namespace) -> int:
    from minidnn.errors import InvalidInput

    for name in OF_BATCHES if args.rate else OF_RATES:
        if getattr(args, name) not in (None, False):
            flag = f"--{name.replace('_', '-')}"
            raise InvalidInput(f"--rate takes no {flag}: leave it out" if args.rate else f"{flag} goes with --rate")
    return _tune_rate(args) if args.rate else _tune_batch(args)


def _tune_rate(args: argparse.Namespace) -> int:
    from minidnn.api import tune_rate
    from minidnn.training.rate_range import HIGHEST, ITERATIONS, LOWEST

    subject.check_report(args, tune_rate.RateRange)
    result = tune_rate.of(
        subject.read(args), args.iterations or ITERATIONS, args.lowest or LOWEST, args.highest or HIGHEST, args.data,
        args.weights, lambda text: None if args.json else status(text),
    )  # fmt: skip
    subject.deliver(args, result)
    return 0  # also if no rate is found: that is a result, not a failure


def _tune_batch(args: argparse.Namespace) -> int:
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
